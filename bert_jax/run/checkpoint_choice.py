"""Which checkpoint of a run is used, and reading it while a training beside may delete it."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Literal, TypeVar

from bert_jax.run.manifest import Manifest, complete, damaged_file, has_manifest, lost
from bert_jax.run.run_manifest import MANIFEST
from bert_jax.system.bucket import Place
from bert_jax.system.errors import RunError, UsageError
from bert_jax.system.json_file import read_object
from bert_jax.system.progress import warn

_LOOKS = 20
"""How often a checkpoint is picked anew because a training beside has deleted the one before."""

Read = TypeVar("Read")


class CheckpointGone(RunError):
    """A checkpoint that was being read has been deleted, as a training beside does with old ones."""

    def __init__(self, path: Place):
        super().__init__(f"{path} was deleted while it was read; give the same command again, or another checkpoint")


@contextlib.contextmanager
def being_read(path: Place) -> Iterator[None]:
    """Raises CheckpointGone, whatever else the block raises, where the checkpoint at `path` is deleted meanwhile.

    A deletion takes the manifest first. So while that is there, all that was read is of a whole checkpoint.
    """
    try:
        yield
    except Exception:
        if has_manifest(path):
            raise
        raise CheckpointGone(path) from None
    if not has_manifest(path):
        raise CheckpointGone(path)


def looking_again(read: Callable[[], Read]) -> Read:
    """What `read` returns, which picks a checkpoint and reads it: anew where a training beside has deleted that.

    Raises CheckpointGone where that happens time after time.
    """
    for _ in range(_LOOKS - 1):
        with contextlib.suppress(CheckpointGone):
            return read()
    return read()


def newest_undamaged(directory: Place) -> Place | None:
    """The newest checkpoint in `directory` whose files are as they were written; damaged ones are reported.

    Raises CheckpointGone where one is deleted meanwhile.
    """
    for path in reversed(complete(directory)):
        with being_read(path):
            damaged = damaged_file(path)
        if not damaged:
            return path
        warn(f"{path} is damaged ({damaged} is not as it was written); the one before it is used, if any")
    return None


def checkpoint_of(path: Place) -> Place:
    """`path` if it is a checkpoint; or the one of the run there to be used: of a task the undamaged one with the best
    score, otherwise the newest undamaged one.

    Raises UsageError where there is no checkpoint, RunError where there are damaged ones only, CheckpointGone where
    one is deleted meanwhile.
    """
    if not _is_checkpoint(path):
        return _checkpoint_of_run(path)
    with being_read(path):
        damaged = damaged_file(path)
    if damaged:
        raise RunError(f"{path} is damaged: {damaged} is not as it was written; use another checkpoint of the run")
    return path


def _is_checkpoint(path: Place) -> bool:
    """Whether `path` has a checkpoint's manifest. That of a run has the same name, and no step."""
    if not (path / MANIFEST).is_file() or (path / "checkpoints").is_dir():
        return False
    try:
        return "step" in read_object(path / MANIFEST)
    except (OSError, ValueError):
        return True


def _checkpoint_of_run(path: Place) -> Place:
    directory = path / "checkpoints"
    best = best_of(complete(directory), by="score")
    if best:
        with being_read(best):
            damaged = damaged_file(best)
        if not damaged:
            return best
        warn(f"{best}, which has the best score, is damaged ({damaged} is not as it was written); another is used")
    found, gone = newest_undamaged(directory), lost(directory)
    for newer in gone:
        if found and newer.name > found.name:
            warn(f"{newer} was finished and its {MANIFEST} is gone; {found} is used")
    if found:
        return found
    if complete(directory) or gone:
        raise RunError(f"{path} holds damaged checkpoints only; give the command that trained it again")
    raise UsageError(
        f"{path} holds no finished checkpoint{runs_within(path)}; give a run that was trained, or a checkpoint of one"
    )


def runs_within(path: Place) -> str:
    """What to add to an error about `path` where there is no run itself but there are some in it."""
    runs = sorted(child.name for child in path.iterdir() if (child / "checkpoints").is_dir()) if path.is_dir() else []
    if not runs:
        return ""
    best = " (results.json names the best)" if (path / "results.json").is_file() else ""
    return f", but there are the runs {', '.join(runs)} in it{best}"


def best_of(paths: list[Place], by: Literal["score", "any"] = "any") -> Place | None:
    """The first with the highest score on a task or, where `by` is any, with the lowest held-out loss; None where none
    was so evaluated. Raises OSError where a manifest can't be read, CheckpointGone where one is deleted meanwhile."""
    values = {}
    for path in paths:
        try:
            evaluation = Manifest.read(path).evaluation or {}
        except FileNotFoundError:
            raise CheckpointGone(path) from None
        except ValueError:  # damaged: found out, and said, by whoever reads it
            continue
        loss = evaluation.get("loss") if by == "any" else None
        score = evaluation.get("score")
        values[path] = score if score is not None else loss and -loss
    return max((path for path, value in values.items() if value is not None), key=values.get, default=None)
