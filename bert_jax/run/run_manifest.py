"""RUN/manifest.json: the sizes and checksums of the files that a run is built on."""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import Field

from bert_jax.run.hosts import is_first
from bert_jax.system.bucket import Place, in_bucket
from bert_jax.system.errors import RunError
from bert_jax.system.files import FileSum, absolute, as_json, files_below, sync, write_json, write_text
from bert_jax.system.json_file import Shape, as_shape, check_format, read_object
from bert_jax.system.progress import warn

MANIFEST = "manifest.json"
_FORMAT = 1
"""Version of the format."""
_LOOKS = 3
"""How often a file is compared with its checksum before it counts as changed: a training may be writing both."""
_CHANGING = threading.Lock()
"""Held while a manifest is read, changed and written: another thread adds checkpoints."""

Natural = Annotated[int, Field(ge=0, lt=2**63)]
Sum = Annotated[list[Natural], Field(min_length=2, max_length=2)]
"""A FileSum as JSON has it."""


class _Written(Shape):
    format: Natural
    files: dict[str, list[Sum]]


class RunManifest:
    """The sums of a run's config.json, tokenizer, records of its data, results.json and checkpoints' manifests.

    Each file that is noted is there and has one of its noted sums, whenever the process that writes the run is killed:
    a file that is replaced has its coming sum noted besides the old one before; a new file is noted after it was
    written, and one that is deleted is forgotten before. A file that isn't noted is not covered.
    Only the first of several processes writes.
    """

    def __init__(self, run: Place):
        self.run, self.path = run, run / MANIFEST

    def noted(self) -> dict[str, list[FileSum]] | None:
        """The sums of every file that is covered, by its path in the run; None of a run that has no manifest.

        Raises OSError if it can't be read, ValueError if it is damaged, UsageError if another release wrote it.
        """
        try:
            value = read_object(self.path)
        except FileNotFoundError:
            return None
        if value.pop("sum", None) != checksum(value):
            raise ValueError("it hasn't the sum that it had")
        if "step" in value:
            raise ValueError("it is that of a checkpoint")
        check_format(self.path, value.get("format"), _FORMAT)  # before the shape, which is that of a format
        written = as_shape(value, _Written)
        if outside := [name for name in written.files if not _is_inside(name)]:
            raise ValueError(f"it names {outside[0]!r}, which is no file of the run")
        return {name: [FileSum(*total) for total in totals] for name, totals in written.files.items()}

    def note(self, *places: Place) -> None:
        """Covers files, and all files in directories, as they are now. Raises OSError or RunError."""
        now = {self._name(file): [FileSum.of(file)] for place in places for file in _files_of(place)}
        self._change(lambda files: files | now)

    def forget(self, *places: Place) -> None:
        """Covers files, or all files in directories, no more. Raises OSError or RunError."""
        gone = {self._name(place) for place in places}
        self._change(lambda files: {name: totals for name, totals in files.items() if not gone & _ways_to(name)})

    def write_json(self, path: Place, value: Any) -> None:
        """Writes a file of the run as JSON, and covers it. Raises OSError or RunError."""
        text, name = as_json(value), self._name(path)
        coming = FileSum.of_bytes(text.encode())
        self._change(lambda files: _expecting(files, name, coming))
        write_text(path, text)
        sync(path.parent)
        self._change(lambda files: files | {name: [coming]})

    def renew(self) -> None:
        """Writes the manifest anew, from the files as they are now."""
        files = {name: [FileSum.of(self.run / name)] for name in self.built_on()}
        self._write(files)

    def built_on(self) -> Iterator[str]:
        """The files that are there and may be covered, by their paths in the run."""
        patterns = ("config.json", "tokenizer/*", "data-*.json", "data/*/prepared.json", "results.json")
        for pattern in (*patterns, f"checkpoints/{'[0-9]' * 8}/{MANIFEST}"):
            yield from sorted(self._name(path) for path in self.run.glob(pattern) if path.is_file())

    def listed(self, place: Place) -> dict[str, list[FileSum]]:
        """What is noted of the covered files that are, or are in, `place`; {} where the manifest can't be read."""
        name = self._name(place)
        try:
            files = self.noted() or {}
        except (OSError, ValueError):
            return {}
        return {file: totals for file, totals in files.items() if name in _ways_to(file)}

    def damage(self, place: Place) -> str | None:
        """What is wrong with the first covered file that is, or is in, `place`; None where all are as they were noted.

        A copy of the file from a checkpoint is as good. Also None where the manifest itself can't be read. Raises
        RunError where a bucket can't be reached.
        """
        for look in range(_LOOKS):
            before = self.listed(place)
            found = {name: _sum_of(self.run / name) for name in before}
            # Whoever changes a file changes what is noted too: so that is read after the file as well.
            after = self.listed(place)
            wrong = [name for name, total in found.items() if name in after and total not in after[name]]
            wrong = [name for name in wrong if found[name] not in self._copies(name)]
            if not wrong:
                return None
        return f"{wrong[0]} {'is not as it was written' if (self.run / wrong[0]).exists() else 'is gone'}"

    def check(self, *places: Place) -> None:
        """Raises RunError where a covered file that is, or is in, one of `places` isn't as it was written."""
        for place in places:
            if damage := self.damage(place):
                raise RunError(
                    f"{self.run}: {damage}; put a good copy in its place: every checkpoint of the run has one"
                )

    def _copies(self, name: str) -> list[FileSum | None]:
        """The sums of the copies of a file that checkpoints carry."""
        return [_sum_of(path) for path in self.run.glob(f"checkpoints/{'[0-9]' * 8}/{name}")]

    def _change(self, changed: Callable[[dict[str, list[FileSum]]], dict[str, list[FileSum]]]) -> None:
        if not is_first():
            return
        with _CHANGING:
            try:
                before = self.noted()
            except ValueError as error:
                warn(f"{self.path} is damaged ({error}); what is there is taken as it is")
                self.renew()
                before = self.noted()
            after = changed(before or {})
            if after != before and (after or before):
                self._write(after)

    def _write(self, files: dict[str, list[FileSum]]) -> None:
        value = {"format": _FORMAT, "files": dict(sorted(files.items()))}
        write_json(self.path, value | {"sum": checksum(value)})
        sync(self.run)  # before a file changes of which it tells

    def _name(self, path: Place) -> str:
        return absolute(path).relative_to(absolute(self.run)).as_posix()


def checksum(value: dict[str, Any]) -> str:
    """Checksum of a JSON object's fields, whatever their order."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).hexdigest()


def out_of_reach(path: Place, error: Exception) -> RunError:
    """The error for a bucket that doesn't answer. Its files may be undamaged."""
    reason = str(error).partition("\n")[0] or type(error).__name__
    return RunError(f"{path} can't be read now ({reason}); give the same command again")


def _files_of(place: Place) -> list[Place]:
    return list(files_below(place).values()) if place.is_dir() else [place]


def _expecting(files: dict[str, list[FileSum]], name: str, coming: FileSum) -> dict[str, list[FileSum]]:
    """`files` where that of `name` may have another sum soon."""
    known = files.get(name)
    return files if known is None or coming in known else files | {name: [*known, coming]}


def _sum_of(path: Place) -> FileSum | None:
    """Size and checksum of a file; None if it is gone or unreadable. Raises RunError if a bucket can't be reached."""
    try:
        return FileSum.of(path)
    except OSError as error:
        if in_bucket(path) and not isinstance(error, FileNotFoundError):
            raise out_of_reach(path, error) from None
        return None


def _ways_to(name: str) -> set[str]:
    """A path and the paths of all its parent directories."""
    return {name, *map(str, PurePosixPath(name).parents)}


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts
