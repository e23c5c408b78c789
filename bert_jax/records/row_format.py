"""How a file of rows is written."""

from typing import NamedTuple

from bert_jax.config.task import FileFormat


class RowFormat(NamedTuple):
    """The settings of TaskConfig that describe a file of rows; None where the file itself shows it."""

    format: FileFormat | None = None
    """The file format; None: by the suffix."""
    columns: tuple[str, ...] | None = None
    """Names of the columns; None: the file has a header line, or its format names them."""
    separator: str | None = None
    """The character between columns; None: the usual one of the format."""
    label: str = "tags"
    """The column of tags in a file of CoNLL, which distinguishes comments from words."""


BY_SUFFIX = RowFormat()
"""Everything as the suffix and the first line of the file show it."""
