"""Chooses and reads a checkpoint of a run while a training in another process may delete checkpoints."""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple, TypeVar

from bert_jax.interchange.model_directory import other_model
from bert_jax.run.manifest import Manifest, checkpoint_damage, checkpoint_path, complete, has_manifest, lost_checkpoints
from bert_jax.run.run_manifest import MANIFEST
from bert_jax.system.bucket import Place
from bert_jax.system.errors import RunError, UsageError, listed
from bert_jax.system.json_file import read_object
from bert_jax.system.progress import warn

_LOOKS = 20
"""Maximum number of times that a checkpoint is chosen again because a training has deleted it."""

Read = TypeVar("Read")


class CheckpointGone(RunError):
    """A checkpoint was deleted while it was read: a training in another process deletes its old checkpoints."""

    def __init__(self, path: Place):
        super().__init__(f"{path} was deleted while it was read; give the same command again, or another checkpoint")


@contextlib.contextmanager
def being_read(path: Place) -> Iterator[None]:
    """Raises CheckpointGone if the checkpoint at `path` is deleted during the block, even if the block raises another
    error.

    A deletion removes the manifest first. While the manifest exists, the checkpoint is whole.
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
    """Returns the result of `read`, a function that chooses a checkpoint and reads it. Calls `read` again after
    CheckpointGone.

    Raises CheckpointGone after _LOOKS attempts.
    """
    for _ in range(_LOOKS - 1):
        with contextlib.suppress(CheckpointGone):
            return read()
    return read()


def earlier_undamaged(checkpoint: Place, count: int, after: int) -> list[Place]:
    """The last `count` undamaged checkpoints of a run that were saved before `checkpoint` and at a step above `after`,
    newest first. The list is shorter if the run has fewer. Damaged checkpoints are reported. Raises CheckpointGone if a
    checkpoint is deleted meanwhile.
    """
    earlier = [path for path in complete(checkpoint.parent) if after < int(path.name) < int(checkpoint.name)]
    return list(itertools.islice(_undamaged(reversed(earlier)), count))


def _undamaged(paths: Iterable[Place], next_one: str = "the one before it") -> Iterator[Place]:
    """Yields the undamaged checkpoints. Warns of damaged ones; `next_one` says what is used instead. Reads each
    checkpoint just before it is yielded."""
    for path in paths:
        with being_read(path):
            damage = checkpoint_damage(path)
        if not damage:
            yield path
        else:
            warn(f"{path} is damaged ({damage}); {next_one} is used, if any")


def checkpoint_of(path: Place, step: int | None = None, newest: bool = False) -> Place:
    """The checkpoint to use at `path`, which is a checkpoint or a run.

    Of a run it is the checkpoint of `step`. Without `step` it is the undamaged checkpoint with the best score on its
    task; without scores, or with `newest`, the newest undamaged one.

    Raises UsageError if there is no checkpoint, none of `step`, or `path` is itself a checkpoint and `step` is given;
    RunError if the chosen one or all are damaged; CheckpointGone if one is deleted meanwhile.
    """
    if not is_checkpoint(path):
        return _checkpoint_of_run(path, step, newest)
    if step is not None or newest:
        raise not_of_a_run(path)
    return _checked(path)


def not_of_a_run(path: Place) -> UsageError:
    """The error for a command that wants a step or an average, if `path` holds a single model and not a run."""
    return UsageError(
        f"{path} is one model, and a step or an average is chosen from the saved steps of a run; give the run, or "
        "leave both out"
    )


def _checked(path: Place) -> Place:
    """The checkpoint at `path`. Raises RunError if it is damaged, CheckpointGone if it is deleted meanwhile."""
    with being_read(path):
        damage = checkpoint_damage(path)
    if damage:
        raise RunError(f"{path} is damaged: {damage}; use another checkpoint of the run")
    return path


def is_checkpoint(path: Place) -> bool:
    """Whether `path` has a checkpoint's manifest. A run's manifest has the same name, and no step."""
    if not (path / MANIFEST).is_file() or (path / "checkpoints").is_dir():
        return False
    try:
        return "step" in read_object(path / MANIFEST)
    except (OSError, ValueError):
        return True


def _checkpoint_of_run(path: Place, step: int | None, newest: bool) -> Place:
    """The checkpoint to use of the run at `path`, as `checkpoint_of` describes it."""
    directory = path / "checkpoints"
    saved, gone = complete(directory), lost_checkpoints(directory)
    if step is not None and saved:
        if checkpoint_path(directory, step) not in saved:
            steps = ", ".join(str(int(one.name)) for one in saved)
            raise UsageError(f"{path} has no saved step {step}; its saved steps are {steps}: give one of them")
        return _checked(checkpoint_path(directory, step))
    by_score, unknown = ([], []) if newest else judged(saved, by="score")
    found = None
    if by_score:
        found = next(_undamaged([*unknown, *by_score], "the one with the next best score"), None)
    found = found or next(_undamaged(reversed(saved)), None)
    for one in gone:
        if found and (by_score or one.name > found.name):
            warn(f"{one} was finished and its {MANIFEST} is gone; {found} is used")
    if found:
        return found
    if gone and not any(one.is_dir() for one in gone):
        raise UsageError(
            f"{path} is a run without its checkpoints: {gone[-1]} isn't there; give a copy of the run's whole folder"
        )
    if saved or gone:
        raise RunError(f"{path} holds damaged checkpoints only; give the command that trained it again")
    raise no_run(path, "holds no finished checkpoint", "a run, a checkpoint or a Hugging Face directory")


def no_run(path: Place, lacks: str, wanted: str = "a run") -> UsageError:
    """The error for a `path` that isn't the `wanted` thing that a command needs. The message says what is at the path.
    For a folder it says what the folder `lacks` ("has no config.json") and which runs are in it."""
    if not path.exists():
        return UsageError(f"there is nothing at {path}; give {wanted}")
    if path.is_file():
        return UsageError(f"{path} is a file; give {wanted}")
    if is_checkpoint(path):
        return UsageError(f"{path} is a checkpoint, a part of a run; give {wanted}")
    if other := other_model(path):
        return UsageError(other)
    patterns = "*/checkpoints", "*/*/checkpoints", "runs/*/*/checkpoints"  # of several seeds, and of a suite
    runs = sorted({found.parent.relative_to(path).as_posix() for pattern in patterns for found in path.glob(pattern)})
    best = " (results.json names the best)" if (path / "results.json").is_file() else ""
    there = f", but there are the runs {listed(runs)} in it{best}" if runs else ""
    return UsageError(f"{path} {lacks}{there}; give {wanted}")


def best_of(paths: list[Place]) -> Place | None:
    """The best of the checkpoints by score or held-out loss; None if none was evaluated. Raises what `judged` does."""
    return next(iter(judged(paths).best_first), None)


class Judged(NamedTuple):
    """Checkpoints by their evaluation."""

    best_first: list[Place]
    """The checkpoints that were evaluated. Of equal ones the earliest comes first."""
    unknown: list[Place]
    """The checkpoints with damaged manifests; a manifest holds the evaluation."""


def judged(paths: list[Place], by: Literal["score", "any"] = "any") -> Judged:
    """Orders checkpoints by the score on a task or, if `by` is any, also by held-out loss.

    A copy of a checkpoint under another step is left out. Raises OSError if a manifest can't be read, CheckpointGone if
    a checkpoint is deleted meanwhile.
    """
    values: dict[Place, float] = {}
    unknown = []
    for path in paths:
        try:
            manifest = Manifest.at(path)
        except FileNotFoundError:
            raise CheckpointGone(path) from None
        except ValueError:
            unknown.append(path)
            continue
        evaluation = manifest.evaluation or {}
        loss = evaluation.get("loss") if by == "any" else None
        score = evaluation.get("score")
        value = score if score is not None else loss and -loss
        if value is not None and path.name == checkpoint_path(path.parent, manifest.step).name:
            values[path] = value
    return Judged(sorted(values, key=lambda path: -values[path]), unknown)
