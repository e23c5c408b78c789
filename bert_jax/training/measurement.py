"""Sums and counts, which add up over rows, microbatches, devices and steps as means don't."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class Mean(NamedTuple):
    """A mean that is still a sum and a count."""

    total: Float[Array, ""]
    count: Float[Array, ""]

    @classmethod
    def of(cls, values: Float[Array, "..."], weights: Float[Array, "..."]) -> "Mean":
        """The weighted mean of `values`."""
        return cls(jnp.sum(values * weights), jnp.sum(weights))

    @classmethod
    def zero(cls) -> "Mean":
        """Nothing seen yet."""
        return cls(jnp.zeros(()), jnp.zeros(()))

    def __add__(self, other: "Mean") -> "Mean":
        return Mean(self.total + other.total, self.count + other.count)

    def where(self, condition: Bool[Array, ""], other: "Mean") -> "Mean":
        """This one where `condition` holds, `other` where it doesn't."""
        return Mean(jnp.where(condition, self.total, other.total), jnp.where(condition, self.count, other.count))

    @property
    def value(self) -> Float[Array, ""]:
        """The mean; 0 of nothing."""
        return self.total / jnp.maximum(self.count, 1e-9)


Means = dict[str, Mean]
"""Measurements by name."""


def add(first: Means, second: Means) -> Means:
    """Both together, name by name."""
    return {name: first[name] + second[name] for name in first}
