"""Tables of plain text, and numbers with units as commands print them."""

from collections.abc import Iterable
from typing import Any

from rich.table import Table as RichTable
from rich.text import Text


class Table(RichTable):
    """A table whose title and cells are plain text: rich's markup has no effect in them.

    ">" before a column's heading aligns the column to the right.
    """

    def __init__(self, title: str, *headings: str, **options: Any):
        super().__init__(title=Text(title) if title else None, title_justify="left", **options)
        for heading in headings:
            self.add_column(heading.removeprefix(">"), justify="right" if heading.startswith(">") else "left")

    def add_row(self, *cells: Any, **options: Any) -> None:
        """Adds a row of texts or of rich's renderables; `options` are those of rich."""
        super().add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells), **options)


def facts_table(title: str, facts: Iterable[tuple[str, ...]]) -> Table:
    """A table without headings: the name of each fact and, in further columns, its value."""
    table = Table(title, show_header=False)
    for fact in facts:
        table.add_row(*fact)
    return table


def gib(size: float) -> str:
    """`size` in bytes as text in GiB."""
    return f"{size / 2**30:,.2f} GiB"


def milliseconds(seconds: float, decimals: int = 2) -> str:
    """`seconds` as text in ms."""
    return f"{seconds * 1e3:,.{decimals}f} ms"
