"""One record of a source, as named values with a location; and the settings by which files of records are read."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bert_jax.config.data import FileFormat
from bert_jax.system.errors import UsageError, json_kind, listed, quoted

_SURROGATE = re.compile("[\ud800-\udfff]")
_REMEDY = (
    "give rows that have it, or name a column that is there: by --task.texts or --task.label of finetune, by --texts "
    "of features; if the first line holds no names, name the columns by --task.columns of finetune, by --columns of "
    "predict and evaluate"
)


class RowFormat(NamedTuple):
    """How a file of records is written. A value of None means that the file itself shows it."""

    format: FileFormat | None = None
    """The file format. None: by the suffix."""
    columns: tuple[str, ...] | None = None
    """Names of the columns; for Parquet, of those to read. None: the file has a header line, or its format names the
    columns."""
    separator: str | None = None
    """The character between columns. None: the usual one of the format."""
    label: str = "tags"
    """The column of tags in a CoNLL file. It distinguishes comments from words."""
    named_by_task: bool = True
    """Whether the settings of a task say how the file is written, so that messages name them."""

    @property
    def settings(self) -> dict[str, Any]:
        """The fields that are settings of a task, by name."""
        return {name: value for name, value in self._asdict().items() if name != "named_by_task"}


BY_SUFFIX = RowFormat()
"""The suffix and the first line of the file show everything."""


class Record(NamedTuple):
    """One record of any source: a row of a table, a sentence with its tags, or a question with its context."""

    place: str
    """File and line of the record, for error messages."""
    values: dict[str, Any]
    columns: tuple[str, ...] = ()
    """The names of all columns of a table; a row may lack the last ones. Empty for other formats."""

    def value(self, name: str, remedy: str | None = None) -> Any:
        """The value of column `name`, or of a nested field `a.b`. It is null if the object that contains it is null.

        Raises UsageError if the column is missing; `remedy` ends the message, by default with the flags that name
        columns.
        """
        if name in self.values:
            return self.values[name]
        value: Any = self.values
        for part in name.split("."):
            if value is None:
                return None
            if not isinstance(value, dict) or part not in value:
                there = f"there is {listed(value)}" if isinstance(value, dict) else f"it is {json_kind(value)}"
                if not remedy and len(self.values) == 1:  # as files of an unknown suffix are read
                    remedy = f"{_REMEDY}; if a line holds several columns, name the format by --task.format of finetune"
                raise UsageError(f"{self.place} has no column {name!r}: {there}; {remedy or _REMEDY}")
            value = value[part]
        return value

    def has(self, name: str) -> bool:
        """Whether the column or nested field `name` exists and isn't null."""
        try:
            return self.value(name) is not None
        except UsageError:
            return False

    def mended(self, repairs: Counter[str]) -> "Record":
        """The record with U+FFFD for lone surrogates, which UTF-8 can't encode; `repairs` counts the texts."""
        return self._replace(values=_mended(self.values, repairs))


def _mended(value: Any, repairs: Counter[str]) -> Any:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            repairs["texts with half a surrogate pair, replaced"] += 1
            return _SURROGATE.sub("\ufffd", value)
        return value
    if isinstance(value, list):
        return [_mended(element, repairs) for element in value]
    if isinstance(value, dict):
        return {_mended(name, repairs): _mended(field, repairs) for name, field in value.items()}
    return value


def row_id(values: Mapping[str, Any]) -> str:
    """The id of a row of columns: its column `_id`, as in BEIR's corpora, or `id`; "" if it has neither."""
    named = (values.get(column) for column in ("_id", "id"))
    return next((str(value) for value in named if value is not None), "")


def check_names(names: Sequence[str], place: str) -> None:
    """Raises UsageError if a column name occurs twice. `place`: where the names come from, for the message."""
    if len(set(names)) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise UsageError(f"{place} names the column {quoted(twice)} twice; rename one")
