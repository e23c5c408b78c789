"""The renderer of facts: tables of plain text and JSON."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from pydantic import BaseModel
from rich.table import Table as RichTable
from rich.text import Text

from bert_jax.system.facts import Facts, Figure, facts_of
from bert_jax.system.progress import output, printable


class Table(RichTable):
    """A table whose title, headings and cells are plain text: rich's markup has no effect in them.

    ">" before a column's heading aligns the column to the right.
    """

    def __init__(self, title: str, *headings: str, **options: Any):
        super().__init__(title=Text(printable(title)) if title else None, title_justify="left", **options)
        for heading in headings:
            self.add_column(Text(heading.removeprefix(">")), justify="right" if heading.startswith(">") else "left")

    def add_row(self, *cells: Any, **options: Any) -> None:
        """Adds a row of texts or of rich's renderables; `options` are those of rich.

        Control characters become escapes here, before rich measures the widths of columns.
        """
        super().add_row(*(Text(printable(cell)) if isinstance(cell, str) else cell for cell in cells), **options)


def rows_table(title: str, rows: Sequence[Facts], names: Iterable[str] = (), **options: Any) -> Table:
    """One row for each record and one column for each of `names`: fields or properties, also of fields' records, as
    `time.at_best.hours`. Without `names`: all fields. `options` are those of rich's tables."""
    if not rows:
        return Table(title)
    names = list(names or facts_of(type(rows[0])))
    facts = [_fact(rows[0], name) for name in names]
    first = [_value(rows[0], name) for name in names]
    numbers = [isinstance(value, int | float) or value is None for value in first]
    table = Table(
        title, *(f"{'>' * number}{fact.heading}" for fact, number in zip(facts, numbers, strict=True)), **options
    )
    for row in rows:
        table.add_row(*(fact.text(_value(row, name)) for fact, name in zip(facts, names, strict=True)))
    return table


def facts_table(title: str, columns: Mapping[str, Facts], names: Iterable[str] = ()) -> Table:
    """One column for each record, under its heading, and one row for each of its facts.

    A record in a field has rows of its own below the field's name, and so has each record in a list.
    """
    table = Table(title, "", *(f">{heading}" for heading in columns))
    _add_rows(table, list(columns.values()), list(names), "")
    return table


def meanings_table(title: str, record: Facts, names: Iterable[str]) -> Table:
    """The facts of one record that are known, each with its value and what it means."""
    table = Table(title, "", ">", "", show_header=False)
    for name in names:
        fact, value = Figure(type(record), name), getattr(record, name)
        if value is not None:
            table.add_row(fact.heading, fact.text(value), fact.meaning.partition(". ")[0].rstrip("."))
    return table


def print_rows(title: str, headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Prints a table of such rows; without `headings`, one without a header."""
    table = Table(title, *headings, show_header=bool(headings))
    for row in rows:
        table.add_row(*row)
    output.print(table)


def markdown(rows: Sequence[Mapping[str, str]]) -> str:
    """Cells by their headings, as a table in Markdown; a row may lack some.

    ">" before a heading aligns its column to the right.
    """
    longest: Mapping[str, str] = max(rows, key=len, default={})
    headings = list(longest)
    rule = ["---:" if heading.startswith(">") else "---" for heading in headings]
    cells = [[row.get(heading, "") for heading in headings] for row in rows]
    lines = [[heading.removeprefix(">") for heading in headings], rule, *cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def as_json(facts: Any) -> str:
    """Facts, or objects that hold some, as one line of JSON."""
    return json.dumps(facts, ensure_ascii=False, default=BaseModel.model_dump)


def _add_rows(table: Table, records: Sequence[Facts | None], names: Iterable[str], indent: str) -> None:
    kind = next((type(record) for record in records if record is not None), Facts)
    for name in names or facts_of(kind):
        fact, values = Figure(kind, name), [record and getattr(record, name) for record in records]
        if any(isinstance(value, Facts) for value in values):
            table.add_row(f"{indent}{fact.heading}", style="bold")
            _add_rows(table, values, (), f"{indent}  ")
        elif any(isinstance(value, list) for value in values):
            entries = [
                {str(getattr(entry, next(facts_of(type(entry))))): str(entry) for entry in value or ()}
                for value in values
            ]
            table.add_row(f"{indent}{fact.heading}", style="bold")
            for entry in dict.fromkeys(name for each in entries for name in each):
                table.add_row(f"{indent}  {entry}", *(each.get(entry, "") for each in entries))
        else:
            table.add_row(f"{indent}{fact.heading}", *map(fact.text, values))


def _value(record: Any, name: str) -> Any:
    return reduce(getattr, name.split("."), record)


def _fact(record: Any, name: str) -> Figure:
    before, _, last = name.rpartition(".")
    return Figure(type(_value(record, before) if before else record), last)
