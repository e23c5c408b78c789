"""Records where a run is computed: versions, commit, devices and processor."""

import functools
import os
import platform
import re
import subprocess
from pathlib import Path

import jax
import jaxlib
from jax.sharding import Mesh

from bert_jax.system.bucket import Place
from bert_jax.system.journal import read_journal
from bert_jax.system.version import __version__
from bert_jax.system.workers import available_cores

Scalar = str | int | float | bool | None
_THREADS = re.compile(r"(\d+) threads")
_GIT_S = 5.0
"""Seconds that git may take."""


def versions() -> dict[str, str]:
    """Versions of bert_jax and of the libraries that compute."""
    return {"bert_jax": __version__, "jax": jax.__version__, "jaxlib": jaxlib.__version__}


def machine(mesh: Mesh) -> dict[str, Scalar]:
    """The devices of `mesh` and the processor of this machine."""
    device = jax.devices()[0]
    return {
        "device": device.device_kind,
        "devices": mesh.size,
        "platform": device.platform,
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": os.environ.get("PJRT_NPROC") or os.environ.get("NPROC") or available_cores(),
    }


def changed_threads(file: Place, now: str) -> str | None:
    """A remark if the run of the journal `file` goes on with another number of CPU threads than before; otherwise None.
    `now`: the `environment` here."""
    noted = [event.message for event in read_journal(file) if event.event == "environment"]
    then, here = (_THREADS.findall(text) for text in (noted[-1] if noted else "", now))
    if not then or then == here or "x cpu;" not in now:
        return None
    return (
        f"the run computed with {then[0]} threads of a CPU before, and here with {here[0]}: its figures are no longer "
        f"those of an undisturbed run bit for bit; PJRT_NPROC={then[0]} sets as many"
    )


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
    package, *libraries = (f"{name} {version}" for name, version in versions().items())
    here = machine(mesh)
    parts = [
        package + (f" (commit {known})" if (known := commit()) else ""),
        *libraries,
        f"Python {platform.python_version()}",
        f"{here['devices']} x {here['device']}",
        f"{here['processor']}, {here['cores']} cores, {here['threads']} threads",
        platform.system(),
    ]
    if jax.process_count() > 1:
        parts.append(f"{jax.process_count()} processes")
    return "; ".join(parts)
