"""Means as sums and counts, which add up over rows, microbatches, devices and steps."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float


class Mean(NamedTuple):
    """A mean as a sum and a count."""

    total: Float[Array, ""]
    count: Float[Array, ""]  # type: ignore[assignment]  # hides tuple.count

    @classmethod
    def of(cls, values: Float[Array, "..."], weights: Float[Array, "..."]) -> "Mean":
        """The weighted mean of `values`."""
        return cls(jnp.sum(values * weights), jnp.sum(weights))

    @classmethod
    def zero(cls) -> "Mean":
        """The mean of no values."""
        return cls(jnp.zeros(()), jnp.zeros(()))

    def __add__(self, other: "Mean") -> "Mean":  # type: ignore[override]  # tuples would be joined
        return Mean(self.total + other.total, self.count + other.count)

    def where(self, condition: Bool[Array, ""], fallback: "Mean") -> "Mean":
        """This mean if `condition` holds, otherwise `fallback`."""
        return jax.tree.map(lambda ours, theirs: jnp.where(condition, ours, theirs), self, fallback)

    @property
    def value(self) -> Float[Array, ""]:
        """The mean; 0 if the count is 0."""
        return self.total / jnp.maximum(self.count, 1e-9)


Means = dict[str, Mean]
"""Measurements by name."""


def add(first: Means, second: Means) -> Means:
    """The means over both sets of values, name by name."""
    return {name: first[name] + second[name] for name in first}


Sums = dict[str, tuple[float, float]]
"""Measurements as JSON has them: total and count by name."""


def as_sums(means: Means) -> Sums:
    """Fetched measurements as JSON stores them. Values that are not finite are left out, because JSON lacks them."""
    sums = {name: (float(mean.total), float(mean.count)) for name, mean in means.items()}
    return {name: both for name, both in sums.items() if all(map(math.isfinite, both))}


def with_sums(shapes: Means, sums: Sums) -> Means:
    """Measurements with the names and shardings of `shapes` and the values of `sums`. Names that `sums` lacks get 0, so
    a run can go on from a checkpoint that has other measurements."""

    def placed(leaf: Any, value: float) -> Float[Array, ""]:
        return jax.make_array_from_callback((), leaf.sharding, lambda _: np.float32(value))

    return {name: Mean(*map(placed, mean, sums.get(name, (0.0, 0.0)))) for name, mean in shapes.items()}
