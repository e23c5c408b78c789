"""Progress of long stages: a bar on a terminal, plain lines elsewhere."""

import contextlib
import errno
import math
import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.segment import Segment
from rich.table import Column
from rich.text import Text

from bert_jax.system import journal
from bert_jax.system.errors import FULL_DISK, message_line, printable, without_passwords
from bert_jax.system.journal import here


class _Console(Console):
    """A console that prints control characters as escapes such as \\x1b, since pieces, texts and names come from files.

    It raises BrokenPipeError if its pipe is closed. rich would exit with code 1, but the command chooses the code.
    """

    said: set[str] | None = None
    """The lines that `say` has printed `without_repeats`; None outside."""

    def render_str(self, text: str, **style: Any) -> Text:
        """Converts a string to a Text that already has the escapes, so that table columns are wide enough for them."""
        return super().render_str(printable(text), **style)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Renders anything, such as a Text that was made elsewhere."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))

    def on_broken_pipe(self) -> None:
        """Raises the BrokenPipeError that rich is handling."""
        raise


console = _Console(stderr=True, highlight=False, emoji=False)
"""Standard error, for progress and messages."""
_FILE_WIDTH = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else 120
output = _Console(highlight=False, emoji=False, width=_FILE_WIDTH)
"""Standard output, for results. In a file or pipe, tables have up to 120 columns and no figure is cut."""

Item = TypeVar("Item")
_COUNTED_TOGETHER = 64
"""Number of items after which `Stage.counted` updates the display."""
_WIDE = 120
"""Least width of a terminal, in columns, for a long bar and the elapsed time."""
PLAIN_FIRST_S = 2.0
"""Without a terminal, a stage prints its first line after this many seconds."""
PLAIN_EVERY_S = 15.0
"""Seconds between the next lines of that stage."""


def say(message: str) -> None:
    """Prints one line, above the progress bar if there is one. Passwords in URLs are left out. A full or broken disk
    under the log is ignored; a closed pipe raises BrokenPipeError."""
    line = without_passwords(message_line(message))
    if console.said is None or line not in console.said:
        try:
            console.print(line, markup=False, soft_wrap=True)
        except OSError as error:
            if error.errno not in (*FULL_DISK, errno.EIO):
                raise
    if console.said is not None:
        console.said.add(line)


def print_line(text: str) -> None:
    """Prints one line of a result to standard output."""
    output.print(text, markup=False, soft_wrap=True)


def warn(message: str) -> None:
    """Prints a warning about a fault that doesn't end the command, and notes it in the run's journal."""
    say(f"WARNING: {message}")
    journal.note("fault", message_line(message))


def tell(event: journal.Event, message: str) -> None:
    """Prints one line about an event of the run, and notes it in the run's journal."""
    say(message)
    journal.note(event, message_line(message))


@contextlib.contextmanager
def without_repeats() -> Iterator[None]:
    """Within the block, `say` prints each line once, for work that reads the same models and texts several times."""
    before = console.said
    console.said = set() if before is None else before
    try:
        yield
    finally:
        console.said = before


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Within the block, this process prints no messages or progress: what the block opens was opened, and described,
    before."""
    before = console.quiet
    console.quiet = True
    try:
        yield
    finally:
        console.quiet = before


def keep_quiet() -> None:
    """From now on this process prints no messages or progress, because another process of the run does."""
    console.quiet = True


def complain(reason: str) -> None:
    """Prints why the command failed, also after `keep_quiet`."""
    console.quiet = False
    say(f"bert-jax: {reason}")


def duration(seconds: float) -> str:
    """`seconds` as text: 8.4 s, 3:07, 2:15:00, 12 days."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 100:
        return f"{seconds / 86_400:,.0f} days"
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class Stage:
    """A stage in progress. `done` counts from `start` to `total` (None if unknown) in `unit`. `later`: the work that
    follows the stage, in its units, which counts for the remaining time."""

    def __init__(self, name: str, total: float | None, unit: str, start: float = 0, later: float = 0):
        self.name, self.total, self.unit, self.start, self.done = name, total, unit, start, start
        self.later = later
        self.note = ""
        self.began = time.monotonic()
        self._paced = self.began, start
        self._other_work, self._other_name = 0.0, ""

    def advance(self, amount: float = 1, note: str = "") -> None:
        """Adds `amount` to `done`. From now on `note` is shown at the end of the line."""
        self.done += amount
        self.note = note or self.note
        self.show()

    def counted(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yields `items` and counts them in groups, because an update may take longer than an item."""
        passed = 0
        for passed, item in enumerate(items, 1):
            yield item
            if passed % _COUNTED_TOGETHER == 0:
                self.advance(_COUNTED_TOGETHER)
        self.advance(passed % _COUNTED_TOGETHER)

    def show(self) -> None:
        """Updates the display."""

    @property
    def elapsed(self) -> float:
        """Seconds since the stage began."""
        return time.monotonic() - self.began

    @property
    def rate(self) -> float:
        """Units a second since `pace_from_here` was called or, if it wasn't, since the stage began."""
        since, done = self._paced
        return (self.done - done) / max(time.monotonic() - since, 1e-9)

    def pace_from_here(self, amount: float) -> None:
        """Adds `amount` to `done`, and measures rate and remaining time from now on, because the time until now went to
        something else, such as compilation."""
        self.done += amount
        self._paced, self._other_work, self._other_name = (time.monotonic(), self.done), 0.0, ""
        self.note = ""

    @contextlib.contextmanager
    def other_work(self, name: str) -> Iterator[None]:
        """Leaves the time of the block out of the summary's rate, and says so by the `name` of the work. It counts for
        the remaining time, because more of such work may follow."""
        began = time.monotonic()
        yield
        self._other_work, self._other_name = self._other_work + time.monotonic() - began, name

    def time_left(self, rate: float) -> str:
        """The remaining time at `rate` units a second as text; with later work, that of both."""
        assert self.total is not None
        left = duration((self.total - self.done + self.later) / rate)
        return f"{left} left in all" if self.later else f"{left} left"

    def amount(self) -> str:
        """Progress as text: `120/3,000 steps`."""
        total = f"/{self._number(self.total)}" if self.total is not None else ""
        return f"{self._number(self.done)}{total} {self.unit}"

    def summary(self) -> str:
        """What was done in all, as text, with the time that it took and the rate without `other_work`."""
        done = f"{self.name}: {self._number(self.done - self.start)} {self.unit} in {duration(self.elapsed)}"
        since, before = self._paced
        if self.done == before:
            return done
        rate = (self.done - before) / max(time.monotonic() - since - self._other_work, 1e-9)
        compiled = " once compiled" if since > self.began else ""
        aside = f", {self._other_name} aside" if self._other_name else ""
        return f"{done}{_pace(rate, self.unit)}{compiled}{aside}"

    def _number(self, amount: float) -> str:
        small = isinstance(self.total, float) and self.total < 10
        return f"{amount:,.{2 if small else 0}f}"


class _PlainStage(Stage):
    _shown = 0.0

    def show(self) -> None:
        elapsed = self.elapsed
        if elapsed < PLAIN_FIRST_S or (self._shown and elapsed - self._shown < PLAIN_EVERY_S):
            return
        self._shown = elapsed
        pace = ""
        fewest = min(1, (self.total or math.inf) / 100)  # a part of the first of many files says nothing of the pace
        if self.done - self._paced[1] >= fewest:
            pace = _pace(self.rate, self.unit)
            pace += f", {self.time_left(self.rate)}" if self.total is not None else ""
        say(f"{self.name}: {self.amount()}{pace}" + (f" | {self.note}" if self.note else ""))


class _BarStage(Stage):
    def __init__(self, *settings, **named):
        super().__init__(*settings, **named)
        wide = console.width >= _WIDE
        self._bar = Progress(
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24 if wide else 8),
            TextColumn("{task.fields[amount]}"),
            *([] if self.unit == "%" else [_RateColumn(self.unit)]),
            *([TimeElapsedColumn()] if wide else []),
            _TimeLeftColumn(self),
            _NoteColumn(),
            console=console,
            speed_estimate_period=20,
        )
        self._task = self._bar.add_task(self.name, total=self.total, amount=self.amount(), note="")
        self._reset()

    def pace_from_here(self, amount: float) -> None:
        super().pace_from_here(amount)
        self._reset()

    def _reset(self) -> None:
        """Restarts the bar's clock at the current count."""
        completed = cast(int, self.done)  # rich takes any number
        self._bar.reset(self._task, completed=completed, amount=self.amount(), note="")

    def show(self) -> None:
        self._bar.update(self._task, completed=self.done, amount=self.amount(), note=self.note)


class _TimeLeftColumn(ProgressColumn):
    """The stage's remaining time, at the speed of the last seconds."""

    max_refresh = 0.5

    def __init__(self, of: Stage):
        super().__init__()
        self._of = of

    def render(self, task: Task) -> Text:
        known = task.speed and task.total is not None and not task.finished
        return Text(self._of.time_left(task.speed) if known and task.speed else "", style="cyan")


class _NoteColumn(ProgressColumn):
    """The stage's note, on one line and cut at the end, so that no other column is cut."""

    def __init__(self):
        super().__init__(Column(no_wrap=False))

    def render(self, task: Task) -> Text:
        return Text(task.fields["note"], no_wrap=True, overflow="ellipsis")


class _RateColumn(ProgressColumn):
    def __init__(self, unit: str):
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        return Text(_rate(task.finished_speed or task.speed, self._unit) if task.speed else "", style="cyan")


def _pace(rate: float, unit: str) -> str:
    """The rate after a comma; empty for a share, whose rate says less than the remaining time."""
    return "" if unit == "%" else f", {_rate(rate, unit)}"


def _rate(rate: float, unit: str) -> str:
    return f"{rate:,.{0 if rate >= 100 else 1 if rate >= 1 else 2}f} {unit}/s"


@contextlib.contextmanager
def stage(name: str, total: float | None, unit: str, start: float = 0, later: float = 0) -> Iterator[Stage]:
    """Shows a stage while the block runs (see `Stage`). The block calls `advance` of the stage."""
    here.at(name)
    if console.is_terminal:
        bar = _BarStage(name, total, unit, start, later)
        with bar._bar:
            yield bar
            if bar.total is None:
                bar._bar.update(bar._task, total=bar.done)
    else:
        plain = _PlainStage(name, total, unit, start, later)
        yield plain
        if plain.elapsed >= PLAIN_FIRST_S:
            say(plain.summary())
