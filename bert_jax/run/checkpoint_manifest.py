"""Checkpoints on disk: directories named by their steps. Each has a manifest of all its files, written last."""

import contextlib
from collections.abc import Iterator
from typing import Annotated, NamedTuple

from pydantic import Field

from bert_jax.run.measurement import as_sums
from bert_jax.run.run_files import RunFiles
from bert_jax.run.run_manifest import CHECKPOINT_DIGITS, CHECKPOINT_NAMES, MANIFEST, Covered, RunManifest
from bert_jax.run.state import StateCheck
from bert_jax.system.bucket import Place
from bert_jax.system.copies import copy_into
from bert_jax.system.files import FileSum, files_below, finite_or_null, remove_directory, sync, sync_below
from bert_jax.system.progress import warn
from bert_jax.system.sealed import Natural, Sealed

KEPT = "kept_for_good"
"""Empty file that marks a checkpoint which is never deleted. A user may set and remove such marks, so no manifest lists
them."""


class Manifest(Sealed):
    """The seal of one checkpoint. It is written last: a directory without it is not a checkpoint."""

    step: Natural
    evaluation: dict[str, float | None] | None
    """Measurements on held-out documents at this step, if there are any. A value that is not finite is None."""
    bits: Natural | None = None
    """`sum_of_bits` of the state when it was saved; None for a model that was not trained here."""
    skipped_in_a_row: Natural = 0
    """Number of steps in a row, up to this one, that were skipped because a gradient wasn't finite."""
    window: dict[str, Annotated[tuple[float, float], Field(strict=False)]] = {}  # JSON has lists
    """Measurements since the last line of metrics.jsonl, each as its total and count. They aren't part of the saved
    state, so a run can continue after the set of measurements has changed."""

    @classmethod
    def of(
        cls, directory: Place, step: int, evaluation: dict[str, float] | None, check: StateCheck | None
    ) -> "Manifest":
        """Computes sizes and checksums of the files in `directory`."""
        found = files_below(directory).items()
        files = {name: FileSum.of(path) for name, path in found if name not in (MANIFEST, KEPT)}
        manifest = cls(files=files, step=step, evaluation=finite_or_null(evaluation))
        if check is None:
            return manifest
        numbers = {"bits": int(check.bits), "skipped_in_a_row": int(check.skipped_in_a_row)}
        return manifest.model_copy(update={**numbers, "window": as_sums(check.window)})

    @classmethod
    def at(cls, directory: Place) -> "Manifest":
        """The manifest of the checkpoint at `directory`. Raises what `read` does."""
        return cls.read(directory / MANIFEST)

    def seal(self, directory: Place) -> None:
        """Writes the manifest into the checkpoint at `directory`; the run's manifest then lists the checkpoint."""
        _run_of(directory).write_json(directory / MANIFEST, self.as_sealed())


def checkpoint_path(directory: Place, step: int) -> Place:
    """The directory of the checkpoint of `step`."""
    return directory / f"{step:0{CHECKPOINT_DIGITS}d}"


def complete(directory: Place) -> list[Place]:
    """The finished checkpoints in `directory`, oldest first."""
    return sorted(path.parent for path in directory.glob(f"{CHECKPOINT_NAMES}/{MANIFEST}"))


def incomplete(directory: Place) -> set[Place]:
    """The checkpoints without a manifest: a process was killed while it wrote or deleted them.

    Raises OSError if the disk or bucket doesn't answer; a glob would hide that, and callers delete these checkpoints.
    """
    return {path for path in directory.glob(CHECKPOINT_NAMES) if not has_manifest(path)}


def has_manifest(path: Place) -> bool:
    """Whether the checkpoint at `path` is finished and not deleted. Raises OSError if the storage doesn't answer."""
    try:
        (path / MANIFEST).stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def make_complete(
    path: Place, carried: tuple[Place, ...], step: int, evaluation: dict[str, float] | None, check: StateCheck | None
) -> None:
    """Copies the files and directories `carried` into a checkpoint and seals it with its manifest."""
    for source in carried:
        copy_into(source, path)
    sync_below(path)
    sync(path.parent)
    Manifest.of(path, step, evaluation, check).seal(path)


def write_evaluation(path: Place, evaluation: dict[str, float]) -> None:
    """Writes these measurements into the manifest of the finished checkpoint at `path`."""
    Manifest.at(path).model_copy(update={"evaluation": finite_or_null(evaluation)}).seal(path)


class OpenCheckpoint(NamedTuple):
    """A finished, undamaged checkpoint with the contents of its files."""

    path: Place
    manifest: Manifest
    files: RunFiles
    """Its config.json and its tokenizer."""


class DamagedCheckpoint(Exception):
    """A file of a finished checkpoint isn't as it was written, or is gone."""

    def __init__(self, file: str):
        super().__init__(f"{file} is not as it was written")


def open_checkpoint(path: Place, run: RunManifest | None = None, manifest: Manifest | None = None) -> OpenCheckpoint:
    """Opens the finished checkpoint at `path`. Reads all its files, each once.

    `run` and `manifest`: the manifests of its run and of the checkpoint, if they were read already; the run's must be
    read first. A checkpoint is damaged if its name and its manifest are of different steps; the name of a copy needn't
    be a step.

    Raises DamagedCheckpoint; RunError if a bucket doesn't answer: the checkpoint may be undamaged.
    """
    run = run or _run_of(path).as_read()
    try:
        manifest = manifest or Manifest.at(path)
    except (OSError, ValueError):  # damaged, gone, or on a disk that can't read it
        raise DamagedCheckpoint(MANIFEST) from None
    if path.match(CHECKPOINT_NAMES) and path != checkpoint_path(path.parent, manifest.step):
        raise DamagedCheckpoint(f"{MANIFEST}, which is of step {manifest.step:,},")
    file_sum = manifest.file_sum
    if run.damage(path / MANIFEST, differs=lambda _, written: file_sum != written):
        raise DamagedCheckpoint(MANIFEST)
    files = RunFiles(path, RunManifest(path, Covered(files=manifest.files, data={})))
    for name, written in manifest.files.items():
        if files.differs(name, written):
            raise DamagedCheckpoint(name)
    return OpenCheckpoint(path, manifest, files)


def checkpoint_damage(path: Place) -> str | None:
    """Why the checkpoint at `path` is damaged; None if it isn't. Raises RunError if a bucket doesn't answer."""
    try:
        open_checkpoint(path)
    except DamagedCheckpoint as damage:
        return str(damage)
    return None


def lost_checkpoints(directory: Place, run: RunManifest | None = None) -> list[Place]:
    """The checkpoints in `directory` that were finished and have lost their manifests, oldest first. `run`: the run's
    manifest, if it is read already."""
    run = run or RunManifest(directory.parent)
    listed = [(run.run / name).parent for name in run.listed(directory)]
    return sorted(path for path in listed if not has_manifest(path) and run.damage(path / MANIFEST))


def agree_with_list(directory: Place) -> None:
    """Lists in the run's manifest the checkpoints that are in `directory`, and no others; warns of lost ones.

    A checkpoint isn't listed if its process was killed between writing and listing it. Raises OSError or RunError.
    """
    run = RunManifest(directory.parent)
    for path in lost_checkpoints(directory):
        if path.is_dir():
            set_aside(path, f"its {MANIFEST} is gone")
        else:
            warn(f"{path} was finished and is gone; the one before it is used, if any")
            run.forget(path)
    listed = run.listed(directory)
    files = [path / MANIFEST for path in complete(directory)]
    if unlisted := [file for file in files if file.relative_to(run.run).as_posix() not in listed]:
        run.note(*unlisted)


def _run_of(path: Place) -> RunManifest:
    """The manifest of the run in which the checkpoint at `path` lies."""
    return RunManifest(path.parent.parent)


def is_sound(path: Place) -> bool:
    """Whether the step before the checkpoint at `path` had finite gradients. Raises OSError if it can't be read."""
    try:
        return Manifest.at(path).skipped_in_a_row == 0
    except ValueError:
        return False


def delete_checkpoint(path: Place) -> None:
    """Deletes a checkpoint. The manifest is deleted first, so that an interrupted deletion leaves no checkpoint."""
    with _unlisted(path):
        (path / MANIFEST).unlink(missing_ok=True)
        remove_directory(path)


def set_aside(path: Place, damage: str) -> None:
    """Renames a damaged checkpoint, so that it is no longer used but can still be examined."""
    aside = path.with_name(f"damaged-{path.name}")
    remove_directory(aside)
    with _unlisted(path):
        path.rename(aside)
    warn(f"{path} is damaged ({damage}); it is set aside as {aside.name}, and the one before it used, if any")


@contextlib.contextmanager
def _unlisted(path: Place) -> Iterator[None]:
    """Takes a checkpoint off the run's list before the block, or after it if a full disk has no room before."""
    run = _run_of(path)
    try:
        run.forget(path)
        forgotten = True
    except Exception:  # OSError, RunError, and the errors of a bucket's library
        forgotten = False
    yield
    if not forgotten:
        run.forget(path)
