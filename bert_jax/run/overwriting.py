"""--overwrite: deletes a run before another one begins in its directory."""

import fcntl
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from bert_jax.corpora.corpus import KINDS
from bert_jax.run.hosts import first_alone, is_first
from bert_jax.run.run_config import read_config
from bert_jax.run.run_directory import OF_A_RUN, RunDirectory
from bert_jax.system.bucket import Place, in_bucket
from bert_jax.system.errors import UsageError
from bert_jax.system.files import open_lock, remove_directory
from bert_jax.system.progress import say

_SEED = re.compile(r"seed-\d+")


def as_if_absent(path: Place) -> RunDirectory:
    """A run at `path` as if the existing one had already been deleted."""
    return RunDirectory(path / ".overwritten")


def overwrite(workdir: Place, check: Callable[[RunDirectory], object], read: Sequence[str | None]) -> None:
    """Deletes the run at `workdir`, on the first host, if `check` raises nothing.

    `check` gets the directory as if it were empty. `read`: the sources and models of the next run, which must lie
    outside.
    """
    with first_alone("overwrite"):
        if is_first():
            check(as_if_absent(workdir))
            start_over(workdir, read)


def start_over(path: Place, read: Iterable[str | None]) -> None:
    """Deletes the run at `path`, or the runs of several seeds there, if there are any.

    Raises UsageError, before anything is deleted, as `runs_to_delete` does and if another process works on the run.
    """
    runs = runs_to_delete(path, read)
    for run in runs:
        _delete(RunDirectory(run))
    if runs not in ([], [path]):
        (path / "results.json").unlink(missing_ok=True)


def runs_to_delete(path: Place, read: Iterable[str | None]) -> list[Place]:
    """The run at `path`, or the runs of several seeds there; [] if `path` doesn't exist.

    Raises UsageError if `path` isn't a run, holds other files, or contains one of the sources and models `read`.
    """
    if not path.exists():
        return []
    if in_bucket(path):
        raise UsageError(f"--overwrite deletes no run in a bucket: delete {path} there, or choose another --workdir")
    runs = [path / child.name for child in sorted(path.iterdir()) if _SEED.fullmatch(child.name)] or [path]
    beside = [] if runs == [path] else [child for child in path.iterdir() if child not in runs]
    strange = [child for child in beside if child.name != "results.json"]
    for run in runs:
        if any(run.iterdir()):
            read_config(run)  # raises UsageError if it is no run
        strange += [child for child in run.iterdir() if not OF_A_RUN.fullmatch(child.name)]
    if strange:
        raise UsageError(
            f"--overwrite deletes runs alone, and {strange[0]} is none of a run's files; move it, or choose another "
            "--workdir"
        )
    for name in filter(None, read):
        if any(_is_below(place, path) for place in _places(name)):
            raise UsageError(f"--overwrite would delete {name}, which is to be read; choose another --workdir")
    return runs


def _places(name: str) -> list[str]:
    """The paths in the name of a source or model, such as FILES of jsonl:FILES#FIELD; [] for a TFDS set."""
    kind, _, rest = name.partition(":")
    if kind == "tfds":
        return []
    if kind == "hf":  # the name may be a folder
        return [rest.partition("#")[0].rpartition(":")[0]]
    return [rest.partition("#")[0] if kind in KINDS else name]


def _is_below(place: str, path: Path) -> bool:
    return Path(os.path.expanduser(place)).resolve().is_relative_to(path.resolve())


def _delete(run: RunDirectory) -> None:
    """Deletes the run's files but its lock, which it holds meanwhile; config.json, which makes it a run, last."""
    with open_lock(run.path / ".lock") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"another process is working on {run.path}; stop it first, or choose another --workdir"
            ) from None
        step = run.newest_step
        for child in sorted(run.path.iterdir(), key=lambda child: child.name == "config.json"):
            if child.is_dir() and not child.is_symlink():
                remove_directory(child)
            elif child.name != ".lock":
                child.unlink()
    if step is not None:
        say(f"--overwrite: the run at {run.path}, at step {step:,}, was deleted")
