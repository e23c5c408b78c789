"""Sharding constraints on activations, and the kind of device that computes the model."""

import functools
import os
from pathlib import Path

import jax
from jax.experimental.layout import Layout, with_layout_constraint
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float

BATCH_AXES = ("data", "fsdp")
"""Mesh axes over which a batch's rows are split."""

_BFLOAT16_INSTRUCTIONS = {"avx512_bf16", "amx_bf16"}
"""Flags in /proc/cpuinfo of CPUs that multiply bfloat16 without converting it."""


def platform() -> str:
    """The kind of device of the mesh in force or, without a mesh, of JAX' default: `cpu`, `gpu` or `tpu`."""
    mesh = jax.sharding.get_abstract_mesh()
    return jax.default_backend() if mesh.empty else mesh.abstract_device.platform


def multiplies_bfloat16() -> bool:
    """Whether the devices in force multiply bfloat16 faster than float32.

    $BERT_JAX_AUTO_DTYPE, float32 or bfloat16, overrides this, so that tests compute the same on every machine.
    """
    if setting := os.environ.get("BERT_JAX_AUTO_DTYPE"):
        return setting == "bfloat16"
    kind = platform()
    if kind == "gpu":
        return is_ampere_or_newer()
    return kind != "cpu" or bool(_BFLOAT16_INSTRUCTIONS & cpu_flags())


def is_ampere_or_newer() -> bool:
    """Whether this machine's GPU is an NVIDIA GPU that multiplies bfloat16 (compute capability 8.0 and later). Without
    a GPU it is True, because the program may be compiled for one."""
    if jax.default_backend() != "gpu":
        return True
    try:
        return float(jax.devices()[0].compute_capability) >= 8.0
    except ValueError:  # AMD's capabilities are names, such as gfx90a
        return False


@functools.cache
def cpu_flags() -> frozenset[str]:
    """The instruction sets of this machine's CPU, by their names in Linux; empty on other systems."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line for line in lines if line.startswith("flags")), "").partition(":")[2].split())


def split_by_rows(x: Float[Array, "B *rest"]) -> Float[Array, "B *rest"]:
    """`x` with its rows split over BATCH_AXES of the mesh in force and all other axes whole; `x` itself without a mesh.

    Constrains the activations between blocks, so that XLA gathers the weights that `fsdp` splits. Without it, XLA also
    splits the activations' features and has to sum partial products in every block.
    """
    return _constrained(x, P(BATCH_AXES))


def on_one_device(kind: str) -> bool:
    """Whether the mesh in force, or JAX' default, is one device of this kind: `cpu`, `gpu` or `tpu`."""
    mesh = jax.sharding.get_abstract_mesh()
    return platform() == kind and (mesh.empty or mesh.size == 1)


def row_major(x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
    """`x` with a row-major layout on a GPU. XLA would otherwise choose a layout with the batch axis last for the
    residual stream, and transpose it before and after each norm.

    On a mesh of several devices, XLA would gather the whole batch for such a constraint, so `x` is returned as it is.
    """
    return with_layout_constraint(x, Layout(major_to_minor=(0, 1, 2))) if on_one_device("gpu") else x


def gathered(table: Float[Array, "V *D"]) -> Float[Array, "V *D"]:
    """`table` with its rows split over `tensor` alone, so that a lookup keeps the sharding of its ids."""
    return _constrained(table, P("tensor"))


def whole(weights: Float[Array, "..."]) -> Float[Array, "..."]:
    """`weights` in full on each device, so that they are gathered once and not at each time of a loop."""
    return _constrained(weights, P())


def _constrained(x: Array, spec: P) -> Array:
    return x if jax.sharding.get_abstract_mesh().empty else jax.lax.with_sharding_constraint(x, spec)
