"""The source `jsonl:GLOB#FIELD`: one JSON object per line, with the document in one of its fields."""

import io
import itertools
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any

from bert_jax.corpora.file_source import FileSource
from bert_jax.corpora.shown import kind_of, listed
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError
from bert_jax.system.json_file import parse_json
from bert_jax.text.text_spans import with_spans

MAX_RECORD_BYTES = 1 << 25
"""Longest line that is read: a JSON object can only be parsed when all of it is in memory."""
MOST_RECORD_VALUES = 2_000_000
"""Most commas and brackets per line: each may stand for a value that takes up to 100 bytes of memory."""


class JsonlFiles(FileSource):
    """Plain, .gz and .zst files of JSON records. Records without text (null or only white space) are skipped."""

    def __init__(self, pattern: str, field: str, undecodable: str, document_bytes: int, spans: str | None = None):
        """Finds the files and reads the first record. `field` may be nested, with dots: `a.b`.

        `spans`: a field with spans of the text, which the documents are then marked with (bert_jax/text/text_spans.py).
        Raises UsageError if no file matches `pattern`, or if the first record lacks a field.
        """
        super().__init__(pattern, undecodable, document_bytes)
        self.field, self.spans = field, spans
        next(self.documents(), None)

    def _file_lines(self, path: Place, raw: io.BufferedReader) -> Iterator[tuple[int, str]]:
        for number, whole in whole_lines(path, self._numbered_parts(path, raw)):
            place = f"{path}, line {number}"
            line = self._decoded(whole, str(path), number)
            if line.strip():
                text = self._text(line, place)
                # A lone surrogate isn't valid UTF-8: pass it on, to be handled like other undecodable bytes.
                encoded = text.encode(errors="surrogatepass")
                for text_line in self._record_lines(encoded, f"{place}, {self.field!r}"):
                    yield raw.tell(), text_line

    def _text(self, line: str, place: str) -> str:
        """The text in the field of the record in `line`, with its spans; empty if the field is null."""
        record = parsed(line, place)  # may contain lone surrogates, which `_file_lines` handles
        text = _value(record, self.field, place, "after #")
        if not isinstance(text, str | None):
            raise UsageError(f"{place}: {self.field!r} is {kind_of(text)} and not a string; name another field after #")
        if not self.spans:
            return text or ""
        spans = _value(record, self.spans, place, "by data.spans")
        return with_spans(text or "", spans, f"{place}: {self.spans!r}", self.repairs)


def _value(record: Any, field: str, place: str, named: str) -> Any:
    """The value of a field, which may be nested. Raises UsageError where there is none; `named`: how it is named."""
    value = record
    for name in field.split("."):
        if not isinstance(value, dict):
            raise UsageError(f"{place} has no field {field!r}: it is {kind_of(value)}; name a field {named}")
        if name not in value:
            raise UsageError(f"{place} has no field {field!r}: there is {listed(value)}; name another {named}")
        value = value[name]
    return value


def parsed(text: str, place: str, most_values: int = MOST_RECORD_VALUES) -> Any:
    """Parses `text` as JSON. Strings in the result may contain lone surrogates.

    Raises UsageError, naming `place`, if it isn't JSON, is nested too deep, or has more than `most_values` values.
    """
    try:
        return parse_json(text, most_values=most_values, surrogates="keep")
    except ValueError as error:
        raise UsageError(f"{place} is not JSON that can be read: {error}; mend it or leave it out") from None


def whole_lines(path: Place, parts: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Joins the parts of each line; yields the line's number and bytes. Raises UsageError if a line is too long."""
    for number, of_line in itertools.groupby(parts, itemgetter(0)):
        yield number, _joined(map(itemgetter(1), of_line), f"{path}, line {number}")


def _joined(parts: Iterator[bytes], place: str) -> bytes:
    whole = bytearray()
    for part in parts:
        whole += part
        if len(whole) > MAX_RECORD_BYTES:
            raise UsageError(f"{place} is longer than {MAX_RECORD_BYTES:,} bytes; cut it into several or leave it out")
    return bytes(whole)
