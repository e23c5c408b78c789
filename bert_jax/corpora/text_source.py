"""The base class of all sources of text: it bounds lines and documents, and counts what it repairs."""

import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from bert_jax.config.language import usual_encoding
from bert_jax.system.errors import UsageError

MAX_LINE_BYTES = 1 << 20
"""Longest line in bytes; longer lines are cut at a space, so that memory stays bounded."""
MOST_UNDECODABLE = 0.1
"""Highest share of lines that aren't UTF-8. Beyond it the text has another encoding, and a model would learn U+FFFD."""
FEWEST_UNDECODABLE = 10
"""Number of undecodable lines from which on MOST_UNDECODABLE applies."""
_MARKUP = re.compile(r'<(?=[A-Za-z!?/])|\{\{|\{"|\[\[|==')
"""What documents of HTML, XML, wikitext or JSON begin with."""
_BEGIN = "documents that begin with "
_FEWEST_MARKED, _MOST_MARKED = 10, 0.1
"""A warning is given if at least so many documents, and this share of all, begin with the same markup."""
_CHECKED_EVERY = 1000
_REPLACED = "lines with undecodable bytes"


class TextSource:
    """A Corpus made of lines of text. Subclasses define `_lines`, which yields the lines and the ends of documents."""

    total: float
    language = "en"
    """Language code of the text, by which an error message suggests an encoding."""

    def __init__(self, undecodable: str, document_bytes: int):
        """Sets how text is repaired.

        `undecodable` says what happens to bytes that aren't UTF-8: "replace" or "refuse". A document longer than
        `document_bytes` is cut between two lines.
        """
        self.undecodable, self.document_bytes = undecodable, document_bytes
        self.position = 0.0
        self.repairs = Counter()
        self._decoded_lines = 0

    def documents(self) -> Iterator[list[str]]:
        """Starts a pass over the documents; none is empty.

        Raises UsageError if the input is damaged, if many lines aren't UTF-8, or, with `undecodable` "refuse", if any
        line isn't.
        """
        self.position, self.repairs, self._decoded_lines = 0.0, Counter(), 0
        document, size = [], 0
        for line in self._lines():
            if document and (not line or size >= self.document_bytes):
                if line:
                    self.repairs["over-long documents cut"] += 1
                yield document
                document, size = [], 0
            if line:
                if not document and (markup := _MARKUP.match(line)):
                    self.repairs[_BEGIN + markup[0]] += 1
                document.append(line)
                size += len(line.encode())
        if document:
            yield document
        self._check_decodable("at the end of the source")
        self.position = self.total

    def _lines(self) -> Iterator[str]:
        """Yields all lines, stripped, and an empty line at the end of each document; updates `position`."""
        raise NotImplementedError

    def _text_lines(self, parts: Iterable[tuple[int, bytes]], place: str) -> Iterator[str]:
        """Decodes and strips the `parts` that `numbered_parts` yields; counts lines that were cut."""
        before = 0
        for number, part in parts:
            if number == before:
                self.repairs["over-long lines cut"] += 1
            before = number
            yield self._decoded(part, place, number).strip()

    def _record_lines(self, text: bytes | None, place: str) -> Iterator[str]:
        """Yields the lines of a record that is one document, without its blank lines, and an empty line at its end."""
        lines = list(filter(None, self._text_lines(numbered_parts(io.BytesIO(text or b"")), place)))
        if not lines:
            self.repairs["records without text"] += 1
        yield from lines
        yield ""

    def _decoded(self, line: bytes, place: str, number: int) -> str:
        self._decoded_lines += not line.isspace()
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            if self.undecodable == "refuse":
                raise UsageError(
                    f"{place}, line {number}: byte {error.start + 1} is not UTF-8; mend it, or set "
                    "--data.undecodable replace"
                ) from None
            self.repairs[_REPLACED] += 1
            if self.repairs[_REPLACED] % _CHECKED_EVERY == 0:
                self._check_decodable(place)
            return line.decode(errors="replace")

    def _check_decodable(self, place: str) -> None:
        """Raises UsageError if too many lines weren't UTF-8. `place` is what was read last, for the message."""
        bad, seen = self.repairs[_REPLACED], self._decoded_lines
        if bad >= FEWEST_UNDECODABLE and bad > MOST_UNDECODABLE * seen:
            raise UsageError(
                f"{place}: {bad:,} of {seen:,} lines with text read so far are not UTF-8, and at most "
                f"{MOST_UNDECODABLE:.0%} are replaced; convert the text from the encoding that it is written in, for "
                f"example by iconv -f {usual_encoding(self.language)} -t UTF-8 OLD > NEW"
            )


def markup_remark(repairs: Counter[str], documents: int) -> str | None:
    """A warning if many of `documents` documents begin with the same markup, as counted in `repairs`; else None."""
    for name, count in repairs.items():
        if name.startswith(_BEGIN) and count >= max(_FEWEST_MARKED, _MOST_MARKED * documents):
            return (
                f"{count:,} {name}, of {documents:,} used for training: that looks like markup, which the model would "
                "learn as text; give the text without it"
            )
    return None


def numbered_parts(file: io.BufferedIOBase) -> Iterator[tuple[int, bytes]]:
    """Yields each line with its number, from 1. An over-long line is cut at spaces; its parts share its number."""
    number, rest = 1, b""
    while line := rest + file.readline(MAX_LINE_BYTES - len(rest)):
        rest = b""
        if len(line) >= MAX_LINE_BYTES and not line.endswith(b"\n"):
            line, rest = _cut(line)
        yield number, line
        number += not rest


def _cut(line: bytes) -> tuple[bytes, bytes]:
    """Splits a line at the last space of its second half, or if there is none, between two UTF-8 characters."""
    at = line.rfind(b" ", len(line) // 2)
    if at < 0:
        at = len(line) - 1
        while at > len(line) - 4 and line[at] & 0xC0 == 0x80:
            at -= 1
    return line[:at], line[at:]
