"""Records where a run is computed: versions, commit, devices and processor."""

import functools
import importlib
import os
import platform
import subprocess
from pathlib import Path

import jax
import jaxlib
from jax.sharding import Mesh

Scalar = str | int | float | bool | None
_GIT_S = 5.0
"""Seconds that git may take."""


def versions() -> dict[str, str]:
    """Versions of bert_jax and of the libraries that compute."""
    own = importlib.import_module("bert_jax").__version__
    return {"bert_jax": own, "jax": jax.__version__, "jaxlib": jaxlib.__version__}


def machine(mesh: Mesh) -> dict[str, Scalar]:
    """The devices of `mesh` and the processor of this machine."""
    device = jax.devices()[0]
    return {
        "device": device.device_kind,
        "devices": mesh.size,
        "platform": device.platform,
        "processor": processor(),
        "cores": os.cpu_count(),
    }


def processor() -> str:
    """The name of the CPU's model from /proc/cpuinfo, or on systems without it from Python's `platform`."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return named or platform.processor() or platform.machine()


@functools.cache
def commit() -> str | None:
    """The commit of the checkout that bert_jax runs from, with -dirty if its files were changed; None without one."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():  # or git would find a repository around it
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_S)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def environment(mesh: Mesh) -> str:
    """Versions, commit and machine in one line, for the journal of a run."""
    own, *others = (f"{name} {version}" for name, version in versions().items())
    here = machine(mesh)
    parts = [
        own + (f" (commit {known})" if (known := commit()) else ""),
        *others,
        f"Python {platform.python_version()}",
        f"{here['devices']} x {here['device']}",
        f"{here['processor']}, {here['cores']} cores",
        platform.system(),
    ]
    if jax.process_count() > 1:
        parts.append(f"{jax.process_count()} processes")
    return "; ".join(parts)
