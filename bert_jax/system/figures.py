"""Records of figures with units (Figures), and the tables and lines of JSON that show them."""

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Annotated, Any, Literal, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict
from rich.console import RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from bert_jax.system.errors import on_one_line
from bert_jax.system.files import finite_or_null
from bert_jax.system.json_file import Shape
from bert_jax.system.progress import duration, output


@dataclass(frozen=True)
class Unit:
    """The unit of a figure, in the Annotated type of a field or property of a Figures."""

    text: Callable[[Any], str]
    """Writes a figure as text with its unit."""
    unknown: str = ""
    """The text of None."""


def _rounded(value: float) -> str:
    return f"{value:,.{0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 2}f}"


def percent(share: float) -> str:
    """A share as text in percent, with one decimal below 10%."""
    return f"{share:.0%}" if abs(share) >= 0.1 else f"{share:.1%}"


def three_digits(value: float) -> str:
    """A number as text, with three digits."""
    return f"{float(f'{value:.3g}'):,.15g}"


def gigabytes(size: float) -> str:
    """`size` in bytes as text in MB or GB."""
    return f"{size / 1e9:,.2f} GB" if size >= 1e9 else f"{size / 1e6:,.2f} MB"


def flops_per_second(rate: float) -> str:
    """A rate of FLOPs as text in GFLOP/s or TFLOP/s."""
    return f"{rate / 1e12:,.1f} TFLOP/s" if rate > 1e13 else f"{rate / 1e9:,.1f} GFLOP/s"


def milliseconds(seconds: float, decimals: int = 2) -> str:
    """`seconds` as text in ms."""
    return f"{seconds * 1e3:,.{decimals}f} ms"


def gib(size: float) -> str:
    """`size` in bytes as text in GiB."""
    return f"{size / 2**30:,.2f} GiB"


MemoryBytes = Annotated[int, Unit(gib)]
Traffic = Annotated[int, Unit(gigabytes)]
Milliseconds = Annotated[float, Unit(milliseconds)]
BareMilliseconds = Annotated[float, Unit(lambda seconds: _rounded(seconds * 1e3))]
"""Milliseconds without a unit, because the unit is in the heading."""
Flops = Annotated[float, Unit("{:.3e}".format)]
Gigaflops = Annotated[float, Unit(lambda flops: _rounded(flops / 1e9))]
FlopRate = Annotated[float, Unit(flops_per_second)]
PerSecond = Annotated[float, Unit(lambda rate: f"{rate:,.0f} /s")]
Percentage = Annotated[float, Unit("{:.1%}".format)]
Hours = Annotated[float, Unit(lambda hours: duration(3600 * hours), "?")]
Seconds = Annotated[float, Unit(duration)]


class Figures(Shape):
    """A record of figures. Its fields and properties have a heading for tables as a text in their Annotated type;
    without it, the heading is the name."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class Figure:
    """A field or property of a Figures: its heading, what it means, and its value as text."""

    def __init__(self, kind: type[Figures], name: str):
        if field := kind.model_fields.get(name):
            annotation, self.meaning = get_type_hints(kind, include_extras=True)[name], field.description or ""
        else:
            getter: Any = inspect.getattr_static(kind, name)
            getter = getattr(getter, "wrapped", getter).fget  # the property of a computed_field
            annotation, self.meaning = get_type_hints(getter, include_extras=True)["return"], getter.__doc__
        metadata = _metadata(annotation)
        self._unit = next((each for each in metadata if isinstance(each, Unit)), None)
        self.heading = next((each for each in metadata if isinstance(each, str)), name.replace("_", " "))

    def text(self, value: object) -> str:
        """The value as text, with its unit if it has one."""
        if value is None:
            return self._unit.unknown if self._unit else ""
        if self._unit:
            return self._unit.text(value)
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, dict):
            return " x ".join(f"{name} {size}" for name, size in value.items())
        return f"{value:,}" if isinstance(value, int | float) else str(value)


def _metadata(annotation: object) -> list[object]:
    """The metadata in `annotation`, an Annotated type or a union with one."""
    inner = [each for option in get_args(annotation) for each in _metadata(option)]
    return [*getattr(annotation, "__metadata__", ()), *inner]


def figure_names(kind: type[Figures]) -> Iterator[str]:
    """The names of a Figures' fields and computed fields, in order."""
    yield from kind.model_fields
    yield from kind.model_computed_fields


class Table(RichTable):
    """A table whose title, headings and cells are plain text: rich's markup has no effect in them.

    ">" before a column's heading aligns the column to the right.
    """

    def __init__(self, title: str, *headings: str, **options: Any):
        super().__init__(title=Text(on_one_line(title)) if title else None, title_justify="left", **options)
        for heading in headings:
            justify: Literal["left", "right"] = "right" if heading.startswith(">") else "left"
            # "fold": the end of a path, which tells it from others, is not cut off.
            self.add_column(Text(heading.removeprefix(">")), justify=justify, overflow="fold")

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        """Adds a row of texts or of rich's renderables; `options` are those of rich. Control characters become escapes
        here, before rich measures the widths of columns. Numbers are kept whole."""
        for column, cell in zip(self.columns, cells, strict=False):
            if column.justify == "right" and isinstance(cell, str):
                column.min_width = max(column.min_width or 0, *map(len, cell.split()), 0)
        super().add_row(*(Text(on_one_line(cell)) if isinstance(cell, str) else cell for cell in cells), **options)


def rows_table(title: str, rows: Sequence[Figures], names: Iterable[str] = (), **options: Any) -> Table:
    """One row for each record and one column for each of `names`. These are fields or properties, also of a record in a
    field, as in `time.at_best.hours`. Without `names`: all figures that at least one row has. `options` are those of
    rich's tables."""
    if not rows:
        return Table(title)
    names = list(names) or _known(rows)
    figures = [_figure(rows[0], name) for name in names]
    first = [_value(rows[0], name) for name in names]
    numbers = [isinstance(value, int | float) or value is None for value in first]
    table = Table(
        title, *(f"{'>' * number}{figure.heading}" for figure, number in zip(figures, numbers, strict=True)), **options
    )
    for row in rows:
        table.add_row(*(figure.text(_value(row, name)) for figure, name in zip(figures, names, strict=True)))
    return table


def figures_table(title: str, columns: Mapping[str, Figures], names: Iterable[str] = ()) -> Table:
    """One column for each record, under its heading, and one row for each of `names`, or of the figures that are known.
    A record in a field has rows of its own below the field's name."""
    table = Table(title, "", *(f">{heading}" for heading in columns))
    _add_rows(table, list(columns.values()), list(names), "")
    return table


def meanings_table(title: str, record: Figures, names: Iterable[str]) -> Table:
    """The known figures of one record, each with its value and meaning."""
    table = Table(title, "", ">", "", show_header=False)
    for name in names:
        figure, value = Figure(type(record), name), getattr(record, name)
        if value is not None:
            table.add_row(figure.heading, figure.text(value), figure.meaning.partition(". ")[0].rstrip("."))
    return table


def print_rows(title: str, headings: Sequence[str], rows: Iterable[Sequence[RenderableType]]) -> None:
    """Prints a table of texts or of rich's renderables. Without `headings` it has no header."""
    table = Table(title, *headings, show_header=bool(headings))
    for row in rows:
        table.add_row(*row)
    output.print(table)


def markdown(rows: Sequence[Mapping[str, str]]) -> str:
    """A table in Markdown of `rows`, each with its cells by heading; a row may lack some. ">" before a heading aligns
    its column to the right."""
    longest: Mapping[str, str] = max(rows, key=len, default={})
    headings = list(longest)
    rule = ["---:" if heading.startswith(">") else "---" for heading in headings]
    cells = [[row.get(heading, "") for heading in headings] for row in rows]
    lines = [[heading.removeprefix(">") for heading in headings], rule, *cells]
    escaped = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in escaped)


def json_line(figures: object) -> str:
    """Figures, or objects that hold some, as one line of JSON. Numbers that are not finite are null."""

    def dumped(model: BaseModel) -> object:
        return finite_or_null(model.model_dump())

    return json.dumps(finite_or_null(figures), ensure_ascii=False, default=dumped)


def _add_rows(table: Table, records: Sequence[Figures | None], names: Iterable[str], indent: str) -> None:
    kind = next((type(record) for record in records if record is not None), Figures)
    for name in names or _known([record for record in records if record is not None]):
        figure, values = Figure(kind, name), [record and getattr(record, name) for record in records]
        if any(isinstance(value, Figures) for value in values):
            table.add_row(f"{indent}{figure.heading}", style="bold")
            _add_rows(table, values, (), f"{indent}  ")
        else:
            table.add_row(f"{indent}{figure.heading}", *map(figure.text, values))


def _known(records: Sequence[Figures]) -> list[str]:
    """The figures, in order, that at least one of `records` has: that aren't None there."""
    kind = type(records[0])
    return [name for name in figure_names(kind) if any(getattr(record, name) is not None for record in records)]


def _value(record: Figures, name: str) -> Any:
    return reduce(getattr, name.split("."), record)


def _figure(record: Figures, name: str) -> Figure:
    before, _, last = name.rpartition(".")
    return Figure(type(_value(record, before) if before else record), last)
