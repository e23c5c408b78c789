"""How foreign input was understood. It is shown before the input is used, and kept in the run, with warnings about odd
figures."""

from collections.abc import Iterable, Iterator

from rich.table import Table
from rich.text import Text

from bert_jax.system.bucket import Place
from bert_jax.system.errors import on_one_line
from bert_jax.system.json_file import Shape, as_shape, check_format, read_object
from bert_jax.system.progress import console, say, warn

READINGS_FILE = "reading.json"
_FORMAT = 1
"""Version of the file's format."""


class Fact(Shape):
    """One fact about the input."""

    name: str
    """Its subject, such as "format" or "casing"."""
    value: str
    """How the input was understood, in words."""
    known_by: str = ""
    """Where the fact comes from: "suffix .jsonl", "content", "config.json", "default of AlbertConfig"; empty for
    counts."""


class Reading(Shape):
    """How one input was understood: a corpus, the rows of a task, a model with its tokenizer."""

    subject: str
    """The input, as "corpus text:FILE" or "model FOLDER"; a run keeps one reading for each."""
    facts: list[Fact]
    """At most a dozen facts, the most important first."""
    remarks: list[str] = []
    """Warnings about odd figures, each with its remedy."""

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yields the name of each fact, and a text with the fact and its source."""
        for fact in self.facts:
            yield fact.name, f"{fact.value} ({fact.known_by})" if fact.known_by else fact.value


class _File(Shape):
    readings: list[Reading]


def show(readings: Iterable[Reading]) -> None:
    """Prints a table for each reading to standard error, and its remarks as warnings."""
    for reading in readings:
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
        for cells in reading.rows():
            table.add_row(*(Text(on_one_line(cell)) for cell in cells))
        say(f"Read {reading.subject}:")
        console.print(table)
        for remark in reading.remarks:
            warn(remark)


def as_file(readings: Iterable[Reading]) -> dict[str, object]:
    """The content of a run's reading.json."""
    return {"format": _FORMAT, "readings": [reading.model_dump() for reading in readings]}


def read_readings(file: Place) -> list[Reading]:
    """The readings that a run keeps; [] if there are none. Raises OSError if the file can't be read, ValueError if it
    is damaged, UsageError if another release wrote it."""
    try:
        content = read_object(file)
    except FileNotFoundError:
        return []
    check_format(file, content.get("format"), _FORMAT)
    return as_shape(content, _File).readings
