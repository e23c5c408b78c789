"""The facts of each format of files that records are read from, in one table. `bert_jax.records.formats` reads them."""

import re
from typing import Annotated, NamedTuple

from bert_jax.config.wording import OneOf

BLANK_LINE, LINE_END = re.compile(rb"\n[ \t\r]*\n|\n(?=<doc )"), re.compile(rb"\n")
"""The end of a document in a text file, and of a record in JSON lines."""


class Format(NamedTuple):
    """A format of files, plain or compressed."""

    suffixes: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    """Those of the settings `task.columns` and `task.separator` that apply to the format. Other formats name their own
    columns."""
    separator: re.Pattern[bytes] | None = None
    """The end of a document; None if reading from the middle of a file can't find an end."""
    has_rows: bool = True
    """Whether a task's rows may be in such files."""


FORMATS = {
    "csv": Format((".csv",), ("columns", "separator")),
    "tsv": Format((".tsv", ".txt"), ("columns", "separator")),
    "jsonl": Format((".jsonl", ".ndjson"), separator=LINE_END),
    "conll": Format((".conll", ".bio", ".bmes"), ("columns",)),
    "conllu": Format((".conllu",)),
    "squad": Format((".json",)),
    "text": Format(settings=("columns",), separator=BLANK_LINE),
    "parquet": Format((".parquet",), has_rows=False),
}
ROW_FORMATS = tuple(name for name, format in FORMATS.items() if format.has_rows)
"""The formats of a task's rows."""
FileFormat = Annotated[str, OneOf(ROW_FORMATS)]
"""The name of a format of rows."""
