"""Chooses and reads a checkpoint of a run while a training in another process may delete checkpoints."""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Literal, TypeVar

from bert_jax.interchange.model_path import ANY_MODEL
from bert_jax.run.checkpoint_manifest import (
    DamagedCheckpoint,
    Manifest,
    OpenCheckpoint,
    checkpoint_path,
    complete,
    has_manifest,
    lost_checkpoints,
    open_checkpoint,
)
from bert_jax.run.run_files import RunFiles, is_checkpoint, no_run
from bert_jax.run.run_manifest import MANIFEST, RunManifest
from bert_jax.system.bucket import Place
from bert_jax.system.errors import RunError, UsageError
from bert_jax.system.progress import warn

_LOOKS = 20
"""Maximum number of times that a checkpoint is chosen and read, since a training may delete it meanwhile."""

Read = TypeVar("Read")


class CheckpointGone(RunError):
    """A checkpoint was deleted while it was read: a training in another process deletes its old checkpoints."""

    def __init__(self, path: Place):
        super().__init__(f"{path} was deleted while it was read; give the same command again, or another checkpoint")


@contextlib.contextmanager
def raising_if_deleted(path: Place) -> Iterator[None]:
    """Raises CheckpointGone if the checkpoint at `path` is deleted during the block, whatever the block raises.

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


def retrying_if_deleted(read: Callable[[], Read]) -> Read:
    """The result of `read`, a function that chooses a checkpoint and reads it. After CheckpointGone it is called again,
    _LOOKS times in all at most."""
    for _ in range(_LOOKS - 1):
        with contextlib.suppress(CheckpointGone):
            return read()
    return read()


def earlier_undamaged(run: RunFiles, checkpoint: Place, count: int, after: int) -> list[OpenCheckpoint]:
    """The last `count` undamaged checkpoints of a run that were saved before `checkpoint` and at a step above `after`,
    newest first. The list is shorter if the run has fewer. Damaged checkpoints are reported. Raises CheckpointGone if a
    checkpoint is deleted meanwhile.
    """
    earlier = [path for path in complete(checkpoint.parent) if after < int(path.name) < int(checkpoint.name)]
    return list(itertools.islice(_undamaged(run, reversed(earlier)), count))


def _undamaged(
    run: RunFiles,
    paths: Iterable[Place],
    manifests: Mapping[Place, Manifest | None] = MappingProxyType({}),
    next_one: str = "the one before it",
) -> Iterator[OpenCheckpoint]:
    """Yields the undamaged checkpoints, each read just before. Warns of damaged ones; `next_one`: what is used instead.
    `manifests`: those that are read already."""
    for path in paths:
        try:
            with raising_if_deleted(path):
                checkpoint = open_checkpoint(path, run.manifest, manifests.get(path))
        except DamagedCheckpoint as damage:
            warn(f"{path} is damaged ({damage}); {next_one} is used, if any")
        else:
            yield checkpoint


def chosen_checkpoint(run: RunFiles, step: int | None = None, newest: bool = False) -> OpenCheckpoint:
    """The checkpoint to use of `run`, which may also be the files of a checkpoint itself.

    Of a run it is the checkpoint of `step`. Without `step` it is the undamaged checkpoint with the best score on its
    task; without scores, or with `newest`, the newest undamaged one.

    Raises UsageError if there is no checkpoint, none of `step`, or `run` is a checkpoint and `step` is given; RunError
    if the chosen one or all are damaged; CheckpointGone if one is deleted meanwhile.
    """
    if not is_checkpoint(run.path):
        return _checkpoint_of_run(run, step, newest)
    if step is not None or newest:
        raise not_of_a_run(run.path)
    return _checked(run.path)


def not_of_a_run(path: Place) -> UsageError:
    """The error for a command that wants a step or an average, if `path` holds a single model and not a run."""
    return UsageError(
        f"{path} is one model, and a step or an average is chosen from the saved steps of a run; give the run, or "
        "leave both out"
    )


def _checked(path: Place, run: RunManifest | None = None) -> OpenCheckpoint:
    """The checkpoint at `path`. Raises RunError if it is damaged, CheckpointGone if it is deleted meanwhile."""
    try:
        with raising_if_deleted(path):
            return open_checkpoint(path, run)
    except DamagedCheckpoint as damage:
        raise RunError(f"{path} is damaged: {damage}; use another checkpoint of the run") from None


def _checkpoint_of_run(run: RunFiles, step: int | None, newest: bool) -> OpenCheckpoint:
    path, directory = run.path, run.path / "checkpoints"
    saved, gone = complete(directory), lost_checkpoints(directory, run.manifest)
    if step is not None and saved:
        if checkpoint_path(directory, step) not in saved:
            steps = ", ".join(str(int(one.name)) for one in saved)
            raise UsageError(f"{path} has no saved step {step}; its saved steps are {steps}: give one of them")
        return _checked(checkpoint_path(directory, step), run.manifest)
    manifests = manifests_of(saved)
    chosen, scored = None, [] if newest else best_first(manifests, criterion="score")
    if scored:
        paths = [*(path for path in saved if manifests[path] is None), *scored]
        chosen = next(_undamaged(run, paths, manifests, "the one with the next best score"), None)
    chosen = chosen or next(_undamaged(run, reversed(saved), manifests), None)
    for lost in gone:
        if chosen and (scored or lost.name > chosen.path.name):
            warn(f"{lost} was finished and its {MANIFEST} is gone; {chosen.path} is used")
    if chosen:
        return chosen
    if gone and not any(lost.is_dir() for lost in gone):
        raise UsageError(
            f"{path} is a run without its checkpoints: {gone[-1]} isn't there; give a copy of the run's whole folder"
        )
    if saved or gone:
        raise RunError(f"{path} holds damaged checkpoints only; give the command that trained it again")
    raise no_run(path, "holds no finished checkpoint", ANY_MODEL)


def best_of(paths: list[Place]) -> Place | None:
    """The best checkpoint by score or held-out loss; None if none was evaluated. Raises what `manifests_of` does."""
    return next(iter(best_first(manifests_of(paths))), None)


def manifests_of(paths: Iterable[Place]) -> dict[Place, Manifest | None]:
    """The manifests of checkpoints; None for a damaged one. Raises OSError if a manifest can't be read, CheckpointGone
    if a checkpoint is deleted meanwhile."""
    manifests: dict[Place, Manifest | None] = {}
    for path in paths:
        try:
            manifests[path] = Manifest.at(path)
        except FileNotFoundError:
            raise CheckpointGone(path) from None
        except ValueError:
            manifests[path] = None
    return manifests


def best_first(manifests: Mapping[Place, Manifest | None], criterion: Literal["score", "any"] = "any") -> list[Place]:
    """The checkpoints that were evaluated, by the score on a task or, if `criterion` is any, also by held-out loss. Of
    equal ones the earliest comes first. A copy of a checkpoint under another step is left out."""
    values: dict[Place, float] = {}
    for path, manifest in manifests.items():
        if manifest is None or path.name != checkpoint_path(path.parent, manifest.step).name:
            continue
        evaluation = manifest.evaluation or {}
        value, loss = evaluation.get("score"), evaluation.get("loss")
        if value is None and criterion == "any" and loss is not None:
            value = -loss
        if value is not None:
            values[path] = value
    return sorted(values, key=lambda path: -values[path])
