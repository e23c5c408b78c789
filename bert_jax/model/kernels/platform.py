"""The kind of device that computes the model, and the type that it computes in."""

import functools
import os
from pathlib import Path
from typing import get_args

import jax
import jax.numpy as jnp
from jaxtyping import DTypeLike

from bert_jax.config.model import ComputeType, ModelConfig
from bert_jax.system.errors import UsageError

_BFLOAT16_INSTRUCTIONS = {"avx512_bf16", "amx_bf16"}
"""Flags in /proc/cpuinfo of CPUs that multiply bfloat16 without converting it."""


def platform() -> str:
    """The kind of device of the mesh in force or, without a mesh, of JAX' default: `cpu`, `gpu` or `tpu`."""
    mesh = jax.sharding.get_abstract_mesh()
    return jax.default_backend() if mesh.empty else mesh.abstract_device.platform


def on_one_device(kind: str) -> bool:
    """Whether the mesh in force, or JAX' default, is one device of this kind: `cpu`, `gpu` or `tpu`."""
    mesh = jax.sharding.get_abstract_mesh()
    return platform() == kind and (mesh.empty or mesh.size == 1)


def multiplies_bfloat16() -> bool:
    """Whether the devices in force multiply bfloat16 faster than float32. $BERT_JAX_AUTO_DTYPE, float32 or bfloat16,
    overrides this, so that tests compute the same on every machine."""
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


def compute_dtype(config: ModelConfig) -> jnp.dtype:
    """The type of activations and matrix products, on the devices in force."""
    if config.compute_dtype == "auto":
        return jnp.dtype(jnp.bfloat16 if multiplies_bfloat16() else jnp.float32)
    return jnp.dtype(config.compute_dtype)


def product_precision(dtype: DTypeLike) -> jax.lax.Precision | None:
    """The precision of a product of two arrays of `dtype`: of float32 arrays, that of float32.

    XLA's default for them is TF32 on GPUs and one pass of bfloat16 on TPUs, which a model with
    `compute_dtype="float32"` isn't expected to have. None leaves the choice to XLA on CPUs, which round nothing, and to
    $JAX_DEFAULT_MATMUL_PRECISION where the user set it. A bfloat16 array has DEFAULT: a higher precision changes
    nothing for it, and the TPU's compiler refuses it in kernels.
    """
    if dtype == jnp.bfloat16:
        return jax.lax.Precision.DEFAULT
    chosen = jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]
    return None if platform() == "cpu" or chosen else jax.lax.Precision.HIGHEST


def for_inference(config: ModelConfig, dtype: str | None = None) -> ModelConfig:
    """`config` for using a trained model, with the compute type `dtype`: `auto`, `float32` or `bfloat16`.

    Without `dtype`, the compute type is float32 on CPUs, whatever the training's type, and the training's type
    elsewhere. Raises UsageError for another `dtype`.
    """
    if dtype not in (None, *get_args(ComputeType)):
        raise UsageError(f"dtype={dtype} isn't a type to compute in; give {', '.join(get_args(ComputeType))}")
    return config.replace(compute_dtype=dtype or ("float32" if platform() == "cpu" else config.compute_dtype))
