"""The base class of all sources of text: it makes documents of lines and records, and counts what it repairs."""

import io
from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

from bert_jax.records.decoded_lines import Decoder, numbered_parts
from bert_jax.records.record import Record
from bert_jax.system.errors import Setting, UsageError, json_kind
from bert_jax.text.text_spans import with_spans

_DOCUMENTS_A_CHUNK = 8
"""Smallest number of documents in a chunk; a document that is too long for this is cut.

A random second segment comes from another document of the same chunk, so a chunk needs several. Without the cut, text
without blank lines would be a single document."""


class TextSettings(NamedTuple):
    """How the text of a source is read."""

    undecodable: str
    """What happens to bytes that aren't UTF-8: "replace" or "refuse"."""
    chunk_bytes: int
    """Size of a chunk. A document that is longer than an eighth of it is cut between two lines."""
    language: str = "en"
    """Language code of the text, by which an error message suggests an encoding."""
    spans: str | None = None
    """Field with spans of the text, which the documents are then marked with (bert_jax/text/text_spans.py)."""


class TextSource:
    """A corpus of records, one document each, or of lines. Every pass yields the same documents in the same order.

    Subclasses set the attributes, and define `_records` or `_lines`, which update `position`. Records without text
    (null or only white space) are skipped.
    """

    unit: str
    """Unit of `position` and `total`, such as MB or records."""
    total: float
    """Size of the whole corpus, in `unit`."""
    position: float
    """Amount that the current pass has read, in `unit`."""
    repairs: Counter[str]
    """Kinds of damage that the current pass repaired, with their counts."""
    revision: str
    """Hash of the files' revisions: it changes when a file is written again or copied, even with the same text."""
    portion: int = 0
    """The number of the portion that the current pass reads."""
    _is_whole: bool = True
    """Whether it isn't a portion of another source."""

    def __init__(self, settings: TextSettings, field: str = ""):
        """`field` is the field of the records that holds the text; it may be nested, with dots: `a.b`."""
        self._settings, self._field = settings, field
        self._begin_pass()

    @property
    def stamp(self) -> str:
        """Hash of names, sizes and samples of the content, which identifies the text without reading it all."""
        raise NotImplementedError

    @property
    def lines(self) -> int:
        """Lines with text that the current pass has read."""
        return self._decoder.lines

    def was_read(self, repairs: Counter[str], lines: int) -> None:
        """Ends a pass whose text other processes read, in `lines` lines. Raises UsageError as `documents` does at the
        end."""
        self._begin_pass()
        self.repairs.update(repairs)
        self._decoder.lines, self.position = lines, self.total
        self._decoder.check("at the end of the source")

    def portions(self) -> Sequence["TextSource"]:
        """The portions of the source, in order: they are cut into chunks independently of each other."""
        return [self]

    def _begin_pass(self) -> None:
        self.position, self.repairs, self._text_bytes = 0.0, Counter[str](), 0
        replace, language = self._settings.undecodable == "replace", self._settings.language
        self._decoder = Decoder(self.repairs, replace, f"set {Setting('data.undecodable')} replace", language)
        self._decoder.reads_all = self._is_whole

    def documents(self) -> Iterator[list[str]]:
        """Starts a pass over the documents; none is empty.

        Raises UsageError if the input is damaged, if a record lacks the field, if many lines aren't UTF-8, or, with
        `undecodable` "refuse", if any line isn't.
        """
        self._begin_pass()
        document: list[str] = []
        size = 0
        for line in self._lines():
            if document and (not line or size >= self._settings.chunk_bytes // _DOCUMENTS_A_CHUNK):
                if line:
                    self.repairs["over-long documents cut"] += 1
                yield document
                document, size = [], 0
            if line:
                document.append(line)
                size += len(line.encode())
        if document:
            yield document
        self._decoder.check("at the end of the source")
        self.position = self.total

    def _records(self) -> Iterator[Record]:
        """Yields all records with at least the text's field, as str, bytes or null."""
        raise NotImplementedError

    def _lines(self) -> Iterator[str]:
        """Yields all lines, stripped, and an empty line at the end of each document."""
        for record in self._records():
            text = self._text(record)
            self._text_bytes += len(text)
            parts = numbered_parts(io.BytesIO(text))
            lines = list(filter(None, self._text_lines(parts, f"{record.place}, {self._field!r}")))
            if not lines:
                self.repairs["records without text"] += 1
            yield from lines
            yield ""

    def _text(self, record: Record) -> bytes:
        """The text of a record, with its spans; empty if the field is null."""
        text = record.value(self._field, "name another after #")
        if text is None:
            text = ""
        if self._settings.spans and isinstance(text, str):
            spans = record.value(self._settings.spans, f"name another by {Setting('data.spans')}")
            text = with_spans(text, spans, f"{record.place}: {self._settings.spans!r}", self.repairs)
        if isinstance(text, str):
            # A lone surrogate isn't valid UTF-8: pass it on, to be handled like other undecodable bytes.
            return text.encode(errors="surrogatepass")
        if not isinstance(text, bytes):
            raise UsageError(
                f"{record.place}: {self._field!r} is {json_kind(text)} and not a string; name another field after #"
            )
        return text

    def _text_lines(self, parts: Iterator[tuple[int, bytes]], place: str) -> Iterator[str]:
        """Decodes and strips the `parts` that `numbered_parts` yields; counts lines that were cut."""
        before = 0
        for number, part in parts:
            if number == before:
                self.repairs["over-long lines cut"] += 1
            before = number
            yield self._decoder.decode(part, place, number).strip()


def short_hash(value: object) -> str:
    """A hash of plain data, by its `repr`, for the stamps and revisions of corpora."""
    return blake2b(repr(value).encode(), digest_size=8).hexdigest()
