"""Finds the accelerators of this machine without starting JAX."""

import os
import sys
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path


def has_tpu() -> bool:
    """Whether this machine has TPU devices, under the driver's old or new name."""
    return any(Path("/dev").glob("accel*")) or any(Path("/dev/vfio").glob("[0-9]*"))


def accelerated() -> bool:
    """Whether JAX may find a GPU or a TPU."""
    return bool(entry_points(group="jax_plugins")) or has_tpu()


def leave_out_absent_tpu() -> None:
    """Keeps JAX from looking for a TPU if libtpu is installed only for `plan`: that takes a second and prints warnings.

    To be called before JAX computes anything. Platforms that the user has chosen are kept.
    """
    if find_spec("libtpu") is None or accelerated():
        return
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    if (jax := sys.modules.get("jax")) and not jax.config.jax_platforms:  # it has read the variable already
        jax.config.update("jax_platforms", os.environ["JAX_PLATFORMS"])
