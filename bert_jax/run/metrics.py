"""The measurements of a run: metrics.jsonl, and trackers that receive the same lines."""

import contextlib
import io
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple

from pydantic import Field

from bert_jax.run.hosts import is_first
from bert_jax.run.tracking import GuardedTracker
from bert_jax.system.bucket import Place
from bert_jax.system.copies import Publisher, local_path
from bert_jax.system.errors import first_of
from bert_jax.system.files import finite_or_null, open_regular, write_text
from bert_jax.system.journal import JOURNAL_FILE
from bert_jax.system.json_file import JsonObject, Shape, as_shape, parse_object
from bert_jax.system.progress import warn

OnMeasured = Callable[[int, str, Mapping[str, float | None]], object]
"""A function that is called each time that a line of metrics.jsonl is written. Its arguments are the step, `train` or
`eval`, and the measurements by name, of which some may be NaN or None. If it returns True, the training
ends after this step: a checkpoint is written, and the run is finished. Of several processes only the first calls it."""
_MOST_LISTED = 3
"""Maximum number of damaged lines that a warning lists."""
_LONGEST = 1 << 20
"""Maximum bytes of a line. Lines that we write have some hundreds, and with a hundred languages some thousands."""


class MetricsLog:
    """The file metrics.jsonl: one JSON object a line. A restart removes the lines of steps that are done again.

    A full disk doesn't end the training: lines that couldn't be written are kept and written later. Of several
    processes only the first writes. An object in a bucket can't be appended to: a copy is uploaded there every minute
    and with each checkpoint.
    """

    def __init__(
        self,
        directory: Place,
        step: int,
        trackers: Sequence[GuardedTracker] = (),
        check_owner: Callable[[], None] = lambda: None,
    ):
        """Removes the lines after `step`, from which training goes on; at step 0, which has no checkpoint, all lines.
        The caller closes the `trackers`. If `check_owner` raises RunError, another process has taken over the run, and
        nothing is uploaded."""
        self._trackers = trackers
        self.path = directory / "metrics.jsonl"
        kept = [line for line in _read_lines(self.path) if 0 < step >= line.values["step"]]
        self._last = {line.values["split"]: line.values["step"] for line in kept}
        evaluations = [line.values for line in kept if line.values["split"] == "eval"]
        self.scores = {values["step"]: _score(values) for values in evaluations if "score" in values}
        """The score of a task at the steps at which it was evaluated."""
        started = (values for values in evaluations if values["step"] == 0)
        self.started_from: Mapping[str, float | None] = next(started, {})
        """The measurements before the first step; empty if the run doesn't watch the model that it begins with."""
        self._file: io.FileIO | None = None
        text = "".join(line.text + "\n" for line in kept)
        if not is_first():
            return
        file = local_path(self.path)
        write_text(file, text)
        self._file = io.FileIO(file, "ab")  # unbuffered: the number of written bytes is known
        self._unwritten, self._failing = b"", False
        self._publisher = Publisher(
            self.path, directory / "tensorboard", directory / JOURNAL_FILE, check_owner=check_owner
        )

    def last_step(self, split: str) -> int:
        """Step of the newest line of `split`; -1 if there is none."""
        return self._last.get(split, -1)

    def write(self, step: int, split: str, values: dict[str, float | None]) -> None:
        """Adds a line. Numbers that are not finite become null, since JSON can't hold them."""
        finite = finite_or_null(values)
        self._last[split] = step
        if split == "eval" and step == 0:
            self.started_from = finite
        if split == "eval" and "score" in finite:
            self.scores[step] = _score(finite)
        if not self._file:
            return
        line = (json.dumps({"step": step, "split": split} | finite) + "\n").encode()
        self._unwritten += line
        named = {f"{split}/{name}": value for name, value in finite.items() if value is not None}
        for tracker in self._trackers:
            tracker.log(step, named)
        with self._warning_of_failures():
            self._write_lines()
        self._publisher.publish_if_due()

    def close(self) -> None:
        """Closes the files."""
        if not self._file:
            return
        try:
            self._write_lines()
        except OSError as error:
            warn(f"the last lines of {self.path} are lost ({error.strerror})")
        with contextlib.suppress(OSError):
            self._file.close()
        self._publisher.publish()

    def publish(self) -> None:
        """Flushes all lines, also to a bucket, before a checkpoint is written: a restart needs the lines before it."""
        if not self._file:
            return
        with self._warning_of_failures():
            self._write_lines()
            os.fsync(self._file.fileno())
        self._publisher.publish()

    @contextlib.contextmanager
    def _warning_of_failures(self) -> Iterator[None]:
        """Warns once if the disk takes no more, and again only after a write has succeeded."""
        try:
            yield
        except OSError as error:
            if not self._failing:
                warn(f"{self.path} can't be written ({error.strerror}); training goes on, its lines are kept")
            self._failing = True
        else:
            self._failing = False

    def _write_lines(self) -> None:
        assert self._file is not None, "only the first process writes"
        while self._unwritten:
            self._unwritten = self._unwritten[self._file.write(self._unwritten) :]


def _score(values: JsonObject) -> float:
    """The score of an evaluation; -inf if the score wasn't finite."""
    score = values["score"]
    return score if isinstance(score, int | float) else -math.inf


class Line(NamedTuple):
    """A line that can be read."""

    text: str
    values: JsonObject
    """The line's object: it has a `step` from 0 and a `split`; the other values may be anything that JSON has."""


class DamagedLine(NamedTuple):
    """A line that can't be read."""

    number: int
    """From 1."""
    reason: str


class _Named(Shape):
    """The fields that every line has."""

    step: Annotated[int, Field(ge=0, lt=2**63)]
    split: str


def metrics_lines(path: Place) -> Iterator[Line | DamagedLine]:
    """Yields the lines of a metrics.jsonl in bounded memory; none if it is missing.

    A line without newline at the end is ignored: it is being written, or its process was killed.
    """
    if not path.is_file():
        return
    with open_regular(path) as file:
        number = 0
        while line := file.readline(_LONGEST):
            number += 1
            if len(line) == _LONGEST:
                while not line.endswith(b"\n") and (line := file.readline(_LONGEST)):
                    pass
                yield DamagedLine(number, f"it has more than {_LONGEST:,} bytes, which no such line needs")
            elif line.endswith(b"\n"):
                yield _parsed_line(number, line[:-1])


def _parsed_line(number: int, line: bytes) -> Line | DamagedLine:
    try:
        values = parse_object(line)
        as_shape(values, _Named)
    except ValueError as error:
        return DamagedLine(number, str(error))
    return Line(line.decode(), values)


def _read_lines(path: Place) -> list[Line]:
    """The lines that can be read. Warns of the others."""
    lines = list(metrics_lines(path))
    if damaged := listed_damage([line for line in lines if isinstance(line, DamagedLine)]):
        warn(f"{path}: lines that can't be read are left out: {damaged}")
    return [line for line in lines if isinstance(line, Line)]


def read_metrics(path: Place) -> list[JsonObject]:
    """The lines of a metrics.jsonl as `metrics_lines` yields them. Damaged lines are left out, with a warning."""
    return [line.values for line in _read_lines(path)]


def listed_damage(damaged: Sequence[DamagedLine]) -> str:
    """The first damaged lines as text: "3 (it is no JSON ...), 7 (...) and 2 more"; empty if there are none."""
    return first_of([f"{line.number:,} ({line.reason})" for line in damaged], _MOST_LISTED)
