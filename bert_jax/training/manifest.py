"""What a checkpoint is on disk: a directory named by its step, with a manifest, written last, of all its files."""

import contextlib
import hashlib
import json
from typing import Any, Literal, NamedTuple

from bert_jax.system.bucket import Place, in_bucket
from bert_jax.system.copies import copy_into
from bert_jax.system.errors import RunError, UsageError
from bert_jax.system.files import FileSum, files_below, remove_directory, sync, sync_below, write_json, write_text
from bert_jax.system.progress import say
from bert_jax.training.state_check import StateCheck

_MANIFEST = "manifest.json"
_DIGITS = 8
"""Of a checkpoint's name, its step."""


_KEPT = "kept_for_good"
"""File in a checkpoint that is never deleted."""


class Manifest(NamedTuple):
    """What one checkpoint holds. Written last: a directory without it is not a checkpoint."""

    step: int
    evaluation: dict[str, float] | None
    """Measurements on held-out documents at this step, if there are any."""
    files: dict[str, FileSum]
    """Every other file by its path below the checkpoint."""
    bits: int | None = None
    """`sum_of_bits` of the state when it was saved; None of a model that was not trained here."""
    skipped_in_a_row: int = 0
    """Steps skipped up to this one because a gradient wasn't finite."""

    @classmethod
    def of(
        cls, directory: Place, step: int, evaluation: dict[str, float] | None, check: StateCheck | None
    ) -> "Manifest":
        """Sums up the files in `directory`."""
        files = {name: FileSum.of(path) for name, path in files_below(directory).items() if name != _MANIFEST}
        return cls(step, evaluation, files, *((int(check.bits), int(check.skipped_in_a_row)) if check else ()))

    @classmethod
    def read(cls, directory: Place) -> "Manifest":
        """Raises OSError where it can't be read, ValueError where it is damaged."""
        try:
            value = json.loads((directory / _MANIFEST).read_text(encoding="utf-8"))
            written = value.pop("sum", None)
            if written not in (None, _sum(value)):  # None: of a release that had none
                raise ValueError("it hasn't the sum that it had")
            return cls(**value | {"files": {name: FileSum(*total) for name, total in value["files"].items()}})
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(str(error)) from None

    def write(self, directory: Place) -> None:
        """Writes it whole or not at all, with a checksum of its own."""
        value = self._asdict()
        write_json(directory / _MANIFEST, value | {"sum": _sum(value)})


def _sum(value: dict[str, Any]) -> str:
    """Of a manifest's other fields, in whatever order."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).hexdigest()


def path_of(directory: Place, step: int) -> Place:
    """Where the checkpoint of `step` lies."""
    return directory / f"{step:0{_DIGITS}d}"


def complete(directory: Place) -> list[Place]:
    """The finished checkpoints in `directory`, oldest first."""
    return sorted(path.parent for path in directory.glob(f"{'[0-9]' * _DIGITS}/{_MANIFEST}"))


def incomplete(directory: Place) -> set[Place]:
    """What was killed before its manifest was written, or while it was deleted.

    Raises OSError where that can't be told, which a glob for manifests would hide: what is returned here is deleted.
    """
    return {path for path in directory.glob("[0-9]" * _DIGITS) if not _has_manifest(path)}


def _has_manifest(path: Place) -> bool:
    try:
        (path / _MANIFEST).stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def make_complete(
    path: Place,
    carried: tuple[Place, ...],
    step: int,
    evaluation: dict[str, float] | None,
    check: StateCheck | None,
) -> None:
    """Copies what is `carried` into a checkpoint and, last, writes its manifest."""
    for source in carried:
        copy_into(source, path)
    sync_below(path)
    Manifest.of(path, step, evaluation, check).write(path)
    sync(path)
    sync(path.parent)


def write_evaluation(path: Place, evaluation: dict[str, float]) -> None:
    """Has the manifest of the finished checkpoint at `path` hold these measurements."""
    Manifest.read(path)._replace(evaluation=evaluation).write(path)


def damaged_file(path: Place) -> str | None:
    """The first file of the finished checkpoint at `path` that isn't as it was written, or None. Reads all of it.

    Raises RunError where a bucket can't be reached: what is there may be as good as ever.
    """
    name = _MANIFEST
    try:
        manifest, there = Manifest.read(path), files_below(path)
        for name, expected in manifest.files.items():
            if name not in there or FileSum.of(there[name]) != expected:
                return name
    except ValueError:
        return _MANIFEST
    except OSError as error:
        if in_bucket(path) and not isinstance(error, FileNotFoundError):
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise RunError(f"{path / name} can't be read now ({reason}); give the same command again") from None
        return name  # gone, or on a disk that can't read it
    return None


def newest_undamaged(directory: Place) -> Place | None:
    """The newest checkpoint in `directory` whose files are as they were written; damaged ones are reported."""
    for path in reversed(complete(directory)):
        damaged = damaged_file(path)
        if not damaged:
            return path
        say(f"WARNING: {path} is damaged ({damaged} is not as it was written); the one before it is used, if any")
    return None


def checkpoint_of(path: Place) -> Place:
    """`path` if it is a checkpoint; or the one of the run there to be used: of a task the undamaged one with the best
    score, otherwise the newest undamaged one.

    Raises UsageError where there is no checkpoint, RunError where there are damaged ones only.
    """
    if not (path / _MANIFEST).is_file():
        best = best_of(complete(path / "checkpoints"), by="score")
        if best and not damaged_file(best):
            return best
        if found := newest_undamaged(path / "checkpoints"):
            return found
        if not complete(path / "checkpoints"):
            raise UsageError(
                f"{path} holds no finished checkpoint{runs_within(path)}; give a run that was trained, or a checkpoint "
                "of one"
            )
        raise RunError(f"{path} holds damaged checkpoints only; give the command that trained it again")
    if damaged := damaged_file(path):
        raise RunError(f"{path} is damaged: {damaged} is not as it was written; use another checkpoint of the run")
    return path


def runs_within(path: Place) -> str:
    """What to add to an error about `path` where there is no run itself but there are some in it."""
    runs = sorted(child.name for child in path.iterdir() if (child / "checkpoints").is_dir()) if path.is_dir() else []
    if not runs:
        return ""
    best = " (results.json names the best)" if (path / "results.json").is_file() else ""
    return f", but there are the runs {', '.join(runs)} in it{best}"


def best_of(paths: list[Place], by: Literal["score", "any"] = "any") -> Place | None:
    """The first with the highest score on a task or, where `by` is any, with the lowest held-out loss; None where none
    was so evaluated. Raises OSError where a manifest can't be read."""
    values = {}
    for path in paths:
        with contextlib.suppress(ValueError):  # damaged: found out, and said, by whoever reads it
            evaluation = Manifest.read(path).evaluation or {}
            loss = evaluation.get("loss") if by == "any" else None
            score = evaluation.get("score")
            values[path] = score if score is not None else loss and -loss
    return max((path for path, value in values.items() if value is not None), key=values.get, default=None)


def is_sound(path: Place) -> bool:
    """Whether the step before the checkpoint at `path` had finite gradients. Raises OSError where it can't be read."""
    try:
        return Manifest.read(path).skipped_in_a_row == 0
    except ValueError:
        return False


def delete(path: Place) -> None:
    """Deletes a checkpoint: without its manifest it is none, so half a deletion leaves none either."""
    (path / _MANIFEST).unlink(missing_ok=True)
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
    path.rename(aside)
    say(f"WARNING: {path} is damaged ({damage}); it is set aside as {aside.name}, and the one before it used, if any")
