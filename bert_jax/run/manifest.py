"""What a checkpoint is on disk: a directory named by its step, with a manifest, written last, of all its files."""

import contextlib
import math
from collections.abc import Iterator
from typing import Annotated, NamedTuple

from pydantic import Field

from bert_jax.run.measurement import Sums, as_sums
from bert_jax.run.run_manifest import MANIFEST, Natural, RunManifest, Sum, checksum, out_of_reach
from bert_jax.run.state_check import StateCheck
from bert_jax.system.bucket import Place, in_bucket
from bert_jax.system.copies import copy_into
from bert_jax.system.files import FileSum, absolute, files_below, remove_directory, sync, sync_below, write_text
from bert_jax.system.json_file import Shape, as_shape, check_format, read_object
from bert_jax.system.progress import warn

_DIGITS = 8
"""Digits of the step that is a checkpoint's name."""
_NAMES = "[0-9]" * _DIGITS
"""Glob pattern of the names of checkpoints."""
_KEPT = "kept_for_good"
"""File in a checkpoint that is never deleted."""


_FORMAT = 1
"""Version of the format of a checkpoint and its manifest."""


class _Written(Shape):
    """What manifest.json holds, but for its own checksum."""

    step: Natural
    evaluation: dict[str, float | None] | None
    files: dict[str, Sum]
    bits: Natural | None
    skipped_in_a_row: Natural
    metrics: Sum | None
    window: dict[str, Annotated[list[float], Field(min_length=2, max_length=2)]]


class Manifest(NamedTuple):
    """What one checkpoint holds. Written last: a directory without it is not a checkpoint."""

    step: int
    evaluation: dict[str, float | None] | None
    """Measurements on held-out documents at this step, if there are any; None for one that is not finite."""
    files: dict[str, FileSum]
    """Every other file by its path below the checkpoint."""
    bits: int | None = None
    """`sum_of_bits` of the state when it was saved; None for a model that was not trained here."""
    skipped_in_a_row: int = 0
    """Steps skipped up to this one because a gradient wasn't finite."""
    metrics: FileSum | None = None
    """Size and checksum of the run's metrics.jsonl up to this step; None for a model that was not trained here."""
    window: Sums = {}
    """Measurements since the last line of metrics.jsonl. They are here and not in the state, so that a run goes on
    whatever else is measured by then."""

    @classmethod
    def of(
        cls,
        directory: Place,
        step: int,
        evaluation: dict[str, float] | None,
        check: StateCheck | None,
        metrics: FileSum | None = None,
    ) -> "Manifest":
        """Sums up the files in `directory`."""
        files = {name: FileSum.of(path) for name, path in files_below(directory).items() if name != MANIFEST}
        found = cls(step, evaluation, files, metrics=metrics)
        if check is None:
            return found
        return found._replace(
            bits=int(check.bits), skipped_in_a_row=int(check.skipped_in_a_row), window=as_sums(check.window)
        )

    @classmethod
    def read(cls, directory: Place) -> "Manifest":
        """Raises OSError if it can't be read, ValueError if it is damaged, UsageError if another release wrote it."""
        value = read_object(directory / MANIFEST)
        if value.pop("sum", None) != checksum(value):
            raise ValueError("it hasn't the sum that it had")
        check_format(directory / MANIFEST, value.get("format"), _FORMAT)  # first: the fields depend on it
        found = as_shape(value, _Written)
        files = {name: FileSum(*total) for name, total in found.files.items()}
        metrics = found.metrics and FileSum(*found.metrics)
        window = {name: tuple(both) for name, both in found.window.items()}
        return cls(found.step, found.evaluation, files, found.bits, found.skipped_in_a_row, metrics, window)

    def write(self, directory: Place) -> None:
        """Writes it whole or not at all, with a checksum of its own; then the run's manifest lists it."""
        value = {"format": _FORMAT, **self._asdict(), "evaluation": _finite(self.evaluation)}
        _manifest_of(directory.parent).write_json(absolute(directory) / MANIFEST, value | {"sum": checksum(value)})


def _finite(evaluation: dict[str, float] | None) -> dict[str, float | None] | None:
    """The measurements with None for numbers that are not finite, which JSON doesn't have."""
    return evaluation and {name: value if math.isfinite(value) else None for name, value in evaluation.items()}


def path_of(directory: Place, step: int) -> Place:
    """Where the checkpoint of `step` lies."""
    return directory / f"{step:0{_DIGITS}d}"


def complete(directory: Place) -> list[Place]:
    """The finished checkpoints in `directory`, oldest first."""
    return sorted(path.parent for path in directory.glob(f"{_NAMES}/{MANIFEST}"))


def incomplete(directory: Place) -> set[Place]:
    """What was killed before its manifest was written, or while it was deleted.

    Raises OSError where that can't be told, which a glob for manifests would hide: what is returned here is deleted.
    """
    return {path for path in directory.glob(_NAMES) if not has_manifest(path)}


def has_manifest(path: Place) -> bool:
    """Whether the checkpoint at `path` is finished and not deleted. Raises OSError where that can't be told."""
    try:
        (path / MANIFEST).stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def make_complete(
    path: Place,
    carried: tuple[Place, ...],
    step: int,
    evaluation: dict[str, float] | None,
    check: StateCheck | None,
    metrics: FileSum | None = None,
) -> None:
    """Copies what is `carried` into a checkpoint and, last, writes its manifest; then the run's manifest lists it."""
    for source in carried:
        copy_into(source, path)
    sync_below(path)
    sync(path.parent)
    Manifest.of(path, step, evaluation, check, metrics).write(path)


def write_evaluation(path: Place, evaluation: dict[str, float]) -> None:
    """Writes these measurements into the manifest of the finished checkpoint at `path`."""
    Manifest.read(path)._replace(evaluation=evaluation).write(path)


def damaged_file(path: Place) -> str | None:
    """The first file of the finished checkpoint at `path` that isn't as it was written, or None. Reads all of it.

    One that is named by another step than its manifest's is damaged; a copy may have any other name. Raises RunError
    where a bucket can't be reached: what is there may be as good as ever.
    """
    name = MANIFEST
    try:
        manifest, there = Manifest.read(path), files_below(path)
        if path.match(_NAMES) and path != path_of(path.parent, manifest.step):
            return f"{MANIFEST}, which is of step {manifest.step:,},"
        if _manifest_of(path.parent).damage(absolute(path) / MANIFEST):
            return MANIFEST
        for name, expected in manifest.files.items():
            if name not in there or FileSum.of(there[name]) != expected:
                return name
    except ValueError:
        return MANIFEST
    except OSError as error:
        if in_bucket(path) and not isinstance(error, FileNotFoundError):
            raise out_of_reach(path / name, error) from None
        return name  # gone, or on a disk that can't read it
    return None


def lost(directory: Place) -> list[Place]:
    """The checkpoints in `directory` that were finished and whose manifests are gone, oldest first."""
    run = _manifest_of(directory)
    listed = [directory / (run.run / name).parent.name for name in run.listed(directory)]
    return sorted(path for path in listed if not has_manifest(path) and run.damage(path / MANIFEST))


def agree_with_list(directory: Place) -> None:
    """Makes the list in the run's manifest that of the checkpoints in `directory`; says which are lost.

    Killed between writing one and listing it, a run has one that isn't listed. Raises OSError or RunError.
    """
    run = _manifest_of(directory)
    for path in lost(directory):
        if path.is_dir():
            set_aside(path, f"its {MANIFEST} is gone")
        else:
            warn(f"{path} was finished and is gone; the one before it is used, if any")
            run.forget(path)
    listed = run.listed(directory)
    files = [absolute(path) / MANIFEST for path in complete(directory)]
    run.note(*[file for file in files if file.relative_to(run.run).as_posix() not in listed])


def _manifest_of(directory: Place) -> RunManifest:
    """The manifest of the run whose checkpoints lie in `directory`."""
    return RunManifest(absolute(directory).parent)


def is_sound(path: Place) -> bool:
    """Whether the step before the checkpoint at `path` had finite gradients. Raises OSError where it can't be read."""
    try:
        return Manifest.read(path).skipped_in_a_row == 0
    except ValueError:
        return False


def noted_metrics(directory: Place, last: int | None = None) -> dict[int, FileSum]:
    """What the checkpoints in `directory` note of the run's metrics.jsonl, by their steps, none after `last`."""
    noted = {}
    for path in complete(directory):
        with contextlib.suppress(OSError, ValueError):  # damaged or deleted meanwhile: others say so
            manifest = Manifest.read(path)
            if manifest.metrics and (last is None or manifest.step <= last):
                noted[manifest.step] = manifest.metrics
    return noted


def delete(path: Place) -> None:
    """Deletes a checkpoint: without its manifest it is none, so half a deletion leaves none either."""
    with _unlisted(path):
        (path / MANIFEST).unlink(missing_ok=True)
        remove_directory(path)


def keep_for_good(path: Place) -> None:
    """Marks the checkpoint at `path`, before its manifest is written, as one that is never deleted."""
    write_text(path / _KEPT, "")


def is_kept_for_good(path: Place) -> bool:
    """Whether the checkpoint at `path` is never deleted; a user may mark one by an empty file of this name too."""
    return (path / _KEPT).exists()


def set_aside(path: Place, damage: str) -> None:
    """Renames a damaged checkpoint, so that it counts no more and can still be looked at."""
    aside = path.with_name(f"damaged-{path.name}")
    remove_directory(aside)
    with _unlisted(path):
        path.rename(aside)
    warn(f"{path} is damaged ({damage}); it is set aside as {aside.name}, and the one before it used, if any")


@contextlib.contextmanager
def _unlisted(path: Place) -> Iterator[None]:
    """Takes a checkpoint out of the run's list before the block; after it, where a full disk has no room before."""
    run, file = _manifest_of(path.parent), absolute(path)
    try:
        run.forget(file)
        forgotten = True
    except Exception:  # OSError, RunError, and a bucket's library has errors of its own
        forgotten = False
    yield
    if not forgotten:
        run.forget(file)
