"""What accelerators this machine has, found without starting JAX."""

import os
import sys
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path


def has_tpu() -> bool:
    """Whether there are devices of the TPU's driver, by the old name or the new."""
    return any(Path("/dev").glob("accel*")) or any(Path("/dev/vfio").glob("[0-9]*"))


def accelerated() -> bool:
    """Whether JAX may find a GPU or TPU: the host's memory then hardly matters."""
    return bool(entry_points(group="jax_plugins")) or has_tpu()


def leave_out_absent_tpu() -> None:
    """Keeps JAX from looking for a TPU where libtpu is installed for `plan` alone: it takes a second, and complains.

    To be called before JAX computes anything; what somebody has asked JAX for stays.
    """
    if find_spec("libtpu") is None or accelerated():
        return
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    if (jax := sys.modules.get("jax")) and not jax.config.jax_platforms:  # it has read the variable already
        jax.config.update("jax_platforms", os.environ["JAX_PLATFORMS"])
