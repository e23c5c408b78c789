"""Reads files with one row per line: a text, or a JSON object, in which lone surrogates are repaired."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from bert_jax.corpora.decoded_lines import decoded_lines
from bert_jax.corpora.jsonl_files import parsed
from bert_jax.corpora.shown import kind_of
from bert_jax.corpora.task_record import Record
from bert_jax.rows.table_files import without_empty
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError

_ESCAPED = re.compile(r"\\u[dD][89a-fA-F]")
"""A JSON escape of one half of a surrogate pair."""
_HALVES = re.compile("[\ud800-\udfff]")
_REPLACED = "texts with half a surrogate pair, replaced"


def text_records(path: Place, columns: Sequence[str] | None, repairs: Counter[str]) -> Iterator[Record]:
    """Yields a record per line, including empty lines; the only column is named by `columns`, by default `text`.

    Raises UsageError if `columns` has more than one name.
    """
    name, *others = columns or ("text",)
    if others:
        raise UsageError(f"{path} has a text a line, and {len(others) + 1} columns are named; name one")
    for number, line in enumerate(decoded_lines(path, repairs), 1):
        yield Record(f"{path}, line {number}", {name: line.rstrip("\r\n")}, (name,))


def jsonl_records(path: Place, repairs: Counter[str]) -> Iterator[Record]:
    """Yields a record per line, which must be a JSON object. Empty lines are skipped.

    `repairs` counts empty lines, except at the file's end, and replaced surrogates. Raises UsageError for other lines.
    """
    lines = enumerate(decoded_lines(path, repairs), 1)
    rows = ((number, [line] if line.strip() else []) for number, line in lines)
    for number, (line,) in without_empty(rows, False, repairs):
        place = f"{path}, line {number}"
        value = mended(line, parsed(line, place), repairs)
        if not isinstance(value, dict):
            raise UsageError(f"{place} is {kind_of(value)}; a row is an object with a value for each column")
        yield Record(place, value)


def mended(text: str, value: Any, repairs: Counter[str]) -> Any:
    """Replaces lone surrogates by U+FFFD in `value`, parsed from the JSON `text`: UTF-8 can't encode them."""
    return _mended(value, repairs) if _ESCAPED.search(text) else value


def _mended(value: Any, repairs: Counter[str]) -> Any:
    if isinstance(value, str):
        whole, count = _HALVES.subn("\ufffd", value)
        repairs[_REPLACED] += count > 0
        return whole
    if isinstance(value, list):
        return [_mended(element, repairs) for element in value]
    if isinstance(value, dict):
        return {_mended(name, repairs): _mended(field, repairs) for name, field in value.items()}
    return value
