"""Sharding constraints on activations."""

import jax
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float

BATCH_AXES = ("data", "fsdp")
"""Mesh axes over which a batch's rows are split."""


def split_by_rows(x: Float[Array, "B *rest"]) -> Float[Array, "B *rest"]:
    """`x` with its rows split over BATCH_AXES of the mesh in force and all other axes whole; `x` itself without a mesh.

    Constrains the activations between blocks, so that XLA gathers the weights that `fsdp` splits. Without it, XLA also
    splits the activations' features and has to sum partial products in every block.
    """
    return _constrained(x, P(BATCH_AXES))


def gathered(table: Float[Array, "V *D"]) -> Float[Array, "V *D"]:
    """`table` with its rows split over `tensor` alone, so that a lookup keeps the sharding of its ids."""
    return _constrained(table, P("tensor"))


def whole(weights: Float[Array, "..."]) -> Float[Array, "..."]:
    """`weights` in full on each device, so that they are gathered once and not in each iteration of a loop."""
    return _constrained(weights, P())


def _constrained(x: Array, spec: P) -> Array:
    return x if jax.sharding.get_abstract_mesh().empty else jax.lax.with_sharding_constraint(x, spec)
