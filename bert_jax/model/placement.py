"""Where the model is computed: sharding constraints on activations, and the kind of device."""

import jax
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float

BATCH_AXES = ("data", "fsdp")
"""Mesh axes over which a batch's rows are split."""


def platform() -> str:
    """The kind of device that is traced for, `cpu`, `gpu` or `tpu`: that of the mesh in force, or JAX' default."""
    mesh = jax.sharding.get_abstract_mesh()
    return jax.default_backend() if mesh.empty else mesh.abstract_device.platform


def split_by_rows(x: Float[Array, "B *rest"]) -> Float[Array, "B *rest"]:
    """`x` with its rows split over BATCH_AXES of the mesh in force, all else whole; `x` itself where there is none.

    Constrains the activations between blocks, so that XLA gathers the weights that `fsdp` splits. Without it, XLA also
    splits the activations' features and has to sum partial products in every block.
    """
    return _constrained(x, P(BATCH_AXES))


def gathered(table: Float[Array, "V *D"]) -> Float[Array, "V *D"]:
    """`table` with its rows split over `tensor` alone, so that a lookup keeps the sharding of its ids."""
    return _constrained(table, P("tensor"))


def _constrained(x: Array, spec: P) -> Array:
    return x if jax.sharding.get_abstract_mesh().empty else jax.lax.with_sharding_constraint(x, spec)
