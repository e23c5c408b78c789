"""--overwrite: replaces a run by another one, which is prepared first."""

import contextlib
import fcntl
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from bert_jax.corpora.corpus import KINDS
from bert_jax.run.hosts import first_alone, is_first
from bert_jax.run.run_config import read_config
from bert_jax.run.run_directory import OF_A_RUN, RunDirectory
from bert_jax.system.bucket import Place, in_bucket
from bert_jax.system.errors import UsageError
from bert_jax.system.files import open_lock, remove_directory, remove_temporary, temporary_path
from bert_jax.system.interruption import deferred
from bert_jax.system.progress import say

_SEED = re.compile(r"seed-\d+")
_LEFT = re.compile(r"\.lock|\..*\.tmp")
"""Names of the files and directories that a deleted or killed run may leave."""


def as_if_absent(path: Place) -> RunDirectory:
    """A run at `path` as if the existing one had already been deleted."""
    return RunDirectory(path / ".overwritten")


def overwrite(workdir: Place, prepare: Callable[[Path], object], read: Iterable[str | None]) -> None:
    """Replaces the run at `workdir`, or the runs of several seeds there, by what `prepare` writes to a given path.

    Until `prepare` has returned, the existing run is complete and locked. The given path is a temporary directory
    within it: what a killed process leaves there is deleted when the run is opened again. On several hosts, only the
    first does this. `read`: the sources and models of the next run, which must lie outside.

    Raises what `prepare` does, and UsageError as `runs_to_delete` does, if another process works on the run, or if its
    files can't be moved.
    """
    with first_alone("overwrite"), contextlib.ExitStack() as stack:
        runs = runs_to_delete(workdir, read) if is_first() else []
        if not runs:
            return
        for run in runs:
            stack.enter_context(_locked(run))
        remove_temporary(workdir)
        steps = {run: step for run in runs if (step := RunDirectory(run).newest_step) is not None}
        if steps:
            say(f"--overwrite: the run at {workdir} stays until the next one is prepared")
        prepared = temporary_path(Path(workdir) / "prepared")
        stack.callback(remove_directory, prepared)
        prepare(prepared)
        _replace(Path(workdir), prepared)
        for run, step in steps.items():
            say(f"--overwrite: the run at {run}, at step {step:,}, was deleted")


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
    strange = [child for child in beside if child.name != "results.json" and not _LEFT.fullmatch(child.name)]
    for run in runs:
        if not all(_LEFT.fullmatch(child.name) for child in run.iterdir()):
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


@contextlib.contextmanager
def _locked(run: Place) -> Iterator[None]:
    """Holds the lock of a run. Raises UsageError if another process has it."""
    with open_lock(Path(run) / ".lock") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"another process is working on {run}; stop it first, or choose another --workdir"
            ) from None
        yield


def _replace(path: Path, prepared: Path) -> None:
    """Deletes everything at `path` but its lock, and moves what is in `prepared` there.

    After a kill in the milliseconds in which files are moved, the run has none of its checkpoints any more and begins
    anew. Raises UsageError, with all files back in their places, if one can't be moved.
    """
    replaced = temporary_path(path / "replaced")
    stay = {prepared.name, replaced.name, ".lock"}
    moves = [(child, replaced / child.name) for child in sorted(path.iterdir(), key=_order)]
    moves += [(child, path / child.name) for child in sorted(prepared.iterdir(), key=_order, reverse=True)]
    replaced.mkdir()
    try:
        with deferred(), contextlib.ExitStack() as back:
            for child, target in moves:
                if child.name not in stay:
                    back.callback(child.rename(target).rename, child)
            back.pop_all()
    except OSError as error:
        replaced.rmdir()
        raise UsageError(
            f"--overwrite can't move {error.filename} ({error.strerror}), and the run is as it was; choose another "
            "--workdir"
        ) from None
    remove_directory(replaced)


def _order(child: Path) -> int:
    """Order in which the files of a run are moved away: without checkpoints, it may change its settings; with a
    config.json, its directory is still that of a run."""
    return {"checkpoints": 0, "config.json": 2}.get(child.name, 1)
