"""RUN/manifest.json: the sizes and checksums of the files that a run is built on."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import Field

from bert_jax.system.bucket import Place
from bert_jax.system.files import FileSum, files_below, sync, write_json
from bert_jax.system.progress import warn
from bert_jax.system.reading import READINGS_FILE
from bert_jax.system.sealed import Sealed, file_damage

MANIFEST = "manifest.json"
CHECKPOINT_DIGITS = 8
"""Digits of the step that is a checkpoint's name."""
CHECKPOINT_NAMES = "[0-9]" * CHECKPOINT_DIGITS
"""Glob pattern of the names of checkpoints."""
_CHANGING = threading.Lock()
"""Held while a manifest is read, changed and written, because another thread adds checkpoints."""


class Covered(Sealed):
    """The content of a run's manifest."""

    data: dict[Annotated[str, Field(pattern=r"^\d{1,9}$")], str]
    """Hash of the shards of each prepared data set that the run reads, by the sequence length. It is required, so that
    a checkpoint's manifest, which has the same name, isn't taken for a run's."""


class RunManifest:
    """The checksums of the files that a run is built on: config.json, the tokenizer, results.json, reading.json, the
    checkpoints' manifests and the prepared data.

    Even if the writing process is killed, every listed file is present and has its checksum: a file is listed after it
    was written, and taken off the list before it is replaced or deleted. A file that isn't listed has no checksum here.
    Only the first of several processes writes.
    """

    def __init__(self, run: Place, covered: Covered | None = None):
        """`covered`: the manifest's content as it was read before, if later changes don't matter; None: the file is
        read anew each time."""
        self.run, self.path, self._covered = run, run / MANIFEST, covered

    def as_read(self) -> "RunManifest":
        """The manifest with the content that it has now."""
        return RunManifest(self.run, self.readable())

    def read(self) -> Covered | None:
        """The manifest; None if the run has none. Raises the errors of `Sealed.read`, except for a missing file."""
        try:
            return Covered.read(self.path)
        except FileNotFoundError:
            return None

    def readable(self) -> Covered:
        """The manifest; an empty one if it is missing or damaged. Raises RunError if a bucket doesn't answer."""
        if self._covered:
            return self._covered
        with contextlib.suppress(OSError, ValueError):
            return self.read() or Covered(data={})
        return Covered(data={})

    def note(self, *places: Place) -> None:
        """Lists files, and all files in directories, as they are now. Raises OSError or RunError."""
        now = {self._name(file): FileSum.of(file) for place in places for file in _files_of(place)}
        self._change(lambda covered: {"files": covered.files | now})

    def forget(self, *places: Place) -> None:
        """Takes files, or all files in directories, off the list. Raises OSError or RunError."""
        gone = {self._name(place) for place in places}
        self._change(
            lambda covered: {
                "files": {name: written for name, written in covered.files.items() if not gone & _ways_to(name)}
            }
        )

    def note_data(self, length: int, shards_hash: str | None) -> None:
        """Lists the prepared data of this length; None takes them off the list. Raises OSError or RunError."""
        listed = {} if shards_hash is None else {str(length): shards_hash}
        self._change(
            lambda covered: {"data": {key: covered.data[key] for key in covered.data if key != str(length)} | listed}
        )

    def write_json(self, path: Place, value: object) -> None:
        """Writes a file of the run as JSON, and lists it. Raises OSError or RunError."""
        self.forget(path)
        write_json(path, value)
        sync(path.parent)
        self.note(path)

    def mend(self, begun: bool) -> Covered | None:
        """Reads the manifest. Rewrites it from the existing files if it is damaged, or if it is missing in a `begun`
        run. Raises RunError if a bucket doesn't answer, UsageError if another release wrote it.
        """
        try:
            covered = self.read()
            if covered or not begun:
                return covered
            problem = f"{self.run} has no {self.path.name}"
        except (OSError, ValueError) as error:
            problem = f"{self.path} is damaged ({error})"
        warn(f"{problem}: the run's files are taken as they are")
        covered = Covered(files={name: FileSum.of(self.run / name) for name in self.built_on()}, data={})
        self._write(covered)
        return covered

    def built_on(self) -> Iterator[str]:
        """The existing files that a manifest may list, by their paths in the run."""
        for pattern in (
            "config.json",
            "tokenizer/*",
            "results.json",
            READINGS_FILE,
            f"checkpoints/{CHECKPOINT_NAMES}/{MANIFEST}",
        ):
            yield from sorted(self._name(path) for path in self.run.glob(pattern) if path.is_file())

    def listed(self, *places: Place) -> dict[str, FileSum]:
        """The listed files at or in `places`; {} if the manifest can't be read."""
        names = {*map(self._name, places)}
        return {file: written for file, written in self.readable().files.items() if names & _ways_to(file)}

    def damage(self, *places: Place, differs: Callable[[str, FileSum], object] | None = None) -> str | None:
        """Describes the first damaged file among the listed files at or in `places`; None if all are undamaged.

        A file restored from a checkpoint is undamaged. Also None if the manifest itself can't be read. `differs` tells
        whether a file isn't as it was written; None: the file is read. Raises RunError if a bucket doesn't answer.
        """
        differs = differs or (lambda name, written: file_damage(self.run / name, written))
        before = self.listed(*places)
        wrong = [name for name, written in before.items() if differs(name, written) and not self._is_copy(name)]
        # A training in another process unlists a file before replacing it, so the list is read after the file too.
        now = RunManifest(self.run).listed(*places) if wrong else {}
        for name in wrong:
            if now.get(name) == before[name]:
                return f"{name} {'is not as it was written' if (self.run / name).exists() else 'is gone'}"
        return None

    def _is_copy(self, name: str) -> bool:
        """Whether a checkpoint has a copy of the same file."""
        with contextlib.suppress(OSError):
            found = FileSum.of(self.run / name)
            copies = self.run.glob(f"checkpoints/{CHECKPOINT_NAMES}/{name}")
            return any(file_damage(copy, found) is None for copy in copies)
        return False

    def _change(self, changed: Callable[[Covered], dict[str, object]]) -> None:
        """Writes the manifest with the fields that `changed` returns."""
        from bert_jax.run.hosts import is_first  # imports JAX, which reading a manifest doesn't need

        if not is_first():
            return
        with _CHANGING:
            covered = self.mend(begun=False) or Covered(data={})
            after = covered.model_copy(update=changed(covered))
            if after != covered:
                self._write(after)

    def _write(self, covered: Covered) -> None:
        covered.model_copy(update={"files": dict(sorted(covered.files.items()))}).write(self.path)
        sync(self.run)  # before one of its files changes

    def _name(self, path: Place) -> str:
        return path.relative_to(self.run).as_posix()


def _files_of(place: Place) -> list[Place]:
    return list(files_below(place).values()) if place.is_dir() else [place]


def _ways_to(name: str) -> set[str]:
    """A path and the paths of all its parent directories."""
    return {name, *map(str, PurePosixPath(name).parents)}
