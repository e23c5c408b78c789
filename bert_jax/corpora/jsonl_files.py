"""The source `jsonl:GLOB#FIELD`: a JSON object a line, of which one field is a document."""

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

MAX_RECORD_BYTES = 1 << 25
"""A longer line is refused: nothing of it can be used before all of it is in memory."""
MOST_RECORD_VALUES = 2_000_000
"""Commas and brackets in a line, which may each stand for a value of up to a hundred bytes of memory."""


class JsonlFiles(FileSource):
    """Plain, .gz and .zst files of records. A record without text (null, or nothing but space) is left out."""

    def __init__(self, pattern: str, field: str, undecodable: str, document_bytes: int):
        """`field` names an object's field, or with dots one of an object in it: `a.b`.

        Raises UsageError also where the first record lacks it.
        """
        super().__init__(pattern, undecodable, document_bytes)
        self.field = field
        next(self.documents(), None)

    def _file_lines(self, path: Place, raw: io.BufferedReader) -> Iterator[tuple[int, str]]:
        for number, whole in whole_lines(path, self._numbered_parts(path, raw)):
            place = f"{path}, line {number}"
            line = self._decoded(whole, str(path), number)
            if line.strip():
                text = self._text(line, place)
                # A surrogate without its other half isn't UTF-8 and is treated like any other such bytes.
                encoded = text.encode(errors="surrogatepass")
                for text_line in self._record_lines(encoded, f"{place}, {self.field!r}"):
                    yield raw.tell(), text_line

    def _text(self, line: str, place: str) -> str:
        """The field of the record in `line`; empty where it is null."""
        value = parsed(line, place)  # also half a surrogate pair, which `_file_lines` mends
        for name in self.field.split("."):
            if not isinstance(value, dict):
                raise UsageError(f"{place} has no field {self.field!r}: it is {kind_of(value)}; name a field after #")
            if name not in value:
                raise UsageError(f"{place} has no field {self.field!r}: there is {listed(value)}; name another after #")
            value = value[name]
        if not isinstance(value, str | None):
            raise UsageError(
                f"{place}: {self.field!r} is {kind_of(value)} and not a string; name another field after #"
            )
        return value or ""


def parsed(text: str, place: str, most_values: int = MOST_RECORD_VALUES) -> Any:
    """The JSON value that `text` is; its strings may hold halves of surrogate pairs.

    Raises UsageError, which names its `place`, for what is no JSON, nested too deep, or of too many values.
    """
    try:
        return parse_json(text, most_values=most_values, surrogates="keep")
    except ValueError as error:
        raise UsageError(f"{place} is not JSON that can be read: {error}; mend it or leave it out") from None


def whole_lines(path: Place, parts: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """The lines of which `parts` are parts, with their numbers. Raises UsageError for one too long to be held."""
    for number, of_line in itertools.groupby(parts, itemgetter(0)):
        yield number, _joined(map(itemgetter(1), of_line), f"{path}, line {number}")


def _joined(parts: Iterator[bytes], place: str) -> bytes:
    whole = bytearray()
    for part in parts:
        whole += part
        if len(whole) > MAX_RECORD_BYTES:
            raise UsageError(f"{place} is longer than {MAX_RECORD_BYTES:,} bytes; cut it into several or leave it out")
    return bytes(whole)
