"""Reads JSON lines: one object per line."""

import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from bert_jax.records import limits
from bert_jax.records.decoded_lines import Decoder, whole_lines
from bert_jax.records.record import Record
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError, json_kind
from bert_jax.system.json_file import parse_json

EMPTY_LINES = "empty lines left out"
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def read_jsonl(path: Place, raw: io.BufferedReader, field: str, decoder: Decoder) -> Iterator[Record]:
    """Yields the records of an opened file, plain, .gz or .zst, for a corpus."""
    return jsonl_records(path, whole_lines(path, raw, decoder), decoder.repairs)


def jsonl_records(path: Place, lines: Iterable[str], repairs: Counter[str], mend: bool = False) -> Iterator[Record]:
    """Yields a record per line. Its strings may contain lone surrogates; with `mend` they are replaced.

    Empty lines are skipped; `repairs` counts them, except at the end. Raises UsageError, with the line, for anything
    that isn't a JSON object.
    """
    empty = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            empty += 1
            continue
        if empty:
            repairs[EMPTY_LINES] += empty
            empty = 0
        place = f"{path}, line {number}"
        value = parsed(line, place)
        if not isinstance(value, dict):
            raise UsageError(f"{place} is {json_kind(value)}; a record is an object with named values")
        record = Record(place, value)
        yield record.mended(repairs) if mend and _SURROGATE_ESCAPE.search(line) else record


def parsed(text: str, place: str, most_values: int = limits.RECORD_VALUES) -> Any:
    """Parses `text` as JSON. Strings in the result may contain lone surrogates.

    Raises UsageError, naming `place`, if it isn't JSON, is nested too deep, or has more than `most_values` values.
    """
    try:
        return parse_json(text, most_values=most_values, surrogates="keep")
    except ValueError as error:
        raise UsageError(f"{place} is not JSON that can be read: {error}; mend it or leave it out") from None
