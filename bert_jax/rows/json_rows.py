"""Rows written as JSON: an object a line; and what is mended in any JSON of rows."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from bert_jax.corpora.decoded_lines import decoded_lines
from bert_jax.corpora.jsonl_files import parsed
from bert_jax.corpora.shown import kind_of
from bert_jax.corpora.task_record import Record
from bert_jax.rows.table_files import without_empty
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError

_ESCAPED = re.compile(r"\\u[dD][89a-fA-F]")
"""As JSON writes halves of surrogate pairs, alone or together."""
_HALVES = re.compile("[\ud800-\udfff]")
_REPLACED = "texts with half a surrogate pair, replaced"


def jsonl_records(path: Place, repairs: Counter[str]) -> Iterator[Record]:
    """A JSON object a line. Empty lines are left out, which `repairs` counts unless they are at the file's end."""
    lines = enumerate(decoded_lines(path, repairs), 1)
    rows = ((number, [line] if line.strip() else []) for number, line in lines)
    for number, (line,) in without_empty(rows, False, repairs):
        place = f"{path}, line {number}"
        value = mended(line, parsed(line, place), repairs)
        if not isinstance(value, dict):
            raise UsageError(f"{place} is {kind_of(value)}; a row is an object with a value for each column")
        yield Record(place, value)


def mended(text: str, value: Any, repairs: Counter[str]) -> Any:
    """`value`, which `text` stands for, with U+FFFD for halves of surrogate pairs: UTF-8 can't write them."""
    return _mended(value, repairs) if _ESCAPED.search(text) else value


def _mended(value: Any, repairs: Counter[str]) -> Any:
    if isinstance(value, str):
        whole, count = _HALVES.subn("\ufffd", value)
        repairs[_REPLACED] += count > 0
        return whole
    if isinstance(value, list):
        return [_mended(one, repairs) for one in value]
    if isinstance(value, dict):
        return {_mended(name, repairs): _mended(one, repairs) for name, one in value.items()}
    return value
