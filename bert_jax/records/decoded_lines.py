"""Reads the lines of UTF-8 files, plain or compressed, in bounded memory, and counts what it repairs."""

import codecs
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterator
from operator import itemgetter
from typing import NamedTuple
from unicodedata import category

from bert_jax.config.language import usual_encoding
from bert_jax.records import limits
from bert_jax.records.compressed_files import DAMAGE, check_expansion, damage_of, decompressed, opened
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError, command_line

_OTHER_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",  # tested before UTF-16's mark, which is a prefix of it
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
_UNPACK = "unpack it, and give the files of text that it holds"
_SAVE = "save its text as UTF-8 from a program that opens it"
_FOREIGN = {
    rb"%PDF-": "a PDF document; take its text out, as by pdftotext",
    rb"PK\x03\x04.{26}(?:mimetype|\[Content_Types\]|_rels/|docProps/|word/)": f"a document (docx, odt, epub); {_SAVE}",
    rb"PK(?:\x03\x04|\x05\x06)": f"a zip archive; {_UNPACK}",
    rb"7z\xbc\xaf\x27\x1c|Rar!\x1a": f"a 7z or RAR archive; {_UNPACK}",
    rb".{257}ustar": f"a tar archive; {_UNPACK}",
    rb"BZh[1-9][1\x17]": "compressed by bzip2; unpack it: bzip2 -d FILE",
    rb"\xfd7zXZ\0|LZIP|\x04\x22\x4d\x18|\x1f[\x9d\xa0]": "compressed by xz, lzip, lz4 or compress; unpack it",
    rb"PAR1": "a Parquet file; rename it to end with .parquet, or give its text as parquet:FILE#COLUMN",
    rb"SQLite format 3\0|ARROW1|\x93NUMPY|\x89HDF": "a database or an array; write its texts as JSON lines",
    rb"\xd0\xcf\x11\xe0\xa1\xb1|\{\\rtf": f"an Office document (doc, rtf); {_SAVE}",
}
"""Files that hold no lines of text: the kind and the remedy, by a pattern of the first bytes."""
_FIRST_BYTES = 512
"""Bytes that the patterns of _FOREIGN need, at least."""
_NO_TEXT = {"Cc", "Cn", "Co", "Cs"}
"""Unicode categories of the characters that bytes of other files give if decoded as UTF-16: control, unassigned,
private use, surrogate."""
_DOC = re.compile(r'<doc id="[^"]*"(?: (?!url=)\w+="[^"]*")* url="[^"]*" title="(.*)">')
"""The line before each article in the output of WikiExtractor, which repeats the title in the next line."""
_REPLACED = "lines with undecodable bytes"
_CHECKED_EVERY = 1000
"""The share of undecodable lines is checked each time that this many more of them were read."""


class Pass:
    """One pass over a source: it decodes lines as UTF-8, and counts what it reads and repairs.

    Undecodable bytes are an error; with `replace` they become U+FFFD and are counted.
    """

    def __init__(
        self,
        repairs: Counter[str] | None = None,
        replace: bool = False,
        remedy: str = "save it as UTF-8",
        language: str = "en",
        reads_all: bool = True,
        mends: bool = False,
    ):
        """`remedy`: what the error for an undecodable byte tells the user to do.

        `language`: the language of the text; it decides which encoding the error for too many undecodable lines
        suggests. `reads_all`: whether the pass reads a whole source. Only then are too many undecodable lines an error.
        `mends`: whether halves of surrogate pairs in records are replaced.
        """
        self.repairs = Counter() if repairs is None else repairs
        """Kinds of damage that were repaired, with their counts."""
        self.position = 0.0
        """Amount that was read, in the unit of the source."""
        self.text_bytes = 0
        """Bytes of the text of records that were read."""
        self.lines = 0
        """Lines with text that were read. A record counts as one line, however many lines its text has."""
        self._before = 0, 0
        self.mends = mends
        self._replace, self._remedy, self._language, self._reads_all = replace, remedy, language, reads_all

    def decode(self, line: bytes | bytearray, place: str, number: int) -> str:
        """Decodes line `number` of `place`. Raises UsageError if it isn't UTF-8, or if too many lines aren't."""
        self.lines += not line.isspace()
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            if not self._replace:
                raise UsageError(
                    f"{place}, line {number}: byte {error.start + 1} is not UTF-8; mend it, or {self._remedy}"
                ) from None
            self.repairs[_REPLACED] += 1
            if self.repairs[_REPLACED] % _CHECKED_EVERY == 0:
                self.check(place)
            return line.decode(errors="replace")

    def stripped(self, parts: Iterator[tuple[int, bytes]], place: str) -> Iterator[str]:
        """Decodes and strips the `parts` that `numbered_parts` yields; counts lines that were cut."""
        before = 0
        for number, part in parts:
            if number == before:
                self.repairs["over-long lines cut"] += 1
            before = number
            yield self.decode(part, place, number).strip()

    def end_record(self) -> None:
        """Counts all lines decoded since the previous record as one line, and those with undecodable bytes as at most
        one."""
        (lines, bad), now = self._before, self.repairs[_REPLACED]
        if now > bad:
            self.repairs[_REPLACED] = now = bad + 1
        self.lines, self._before = lines + 1, (lines + 1, now)

    def check(self, place: str) -> None:
        """Raises UsageError if too many lines weren't UTF-8. `place` names what was read last, for the message."""
        bad = self.repairs[_REPLACED]
        if self._reads_all and bad >= limits.FEWEST_UNDECODABLE and bad > limits.UNDECODABLE * self.lines:
            raise UsageError(
                f"{place}: {bad:,} of {self.lines:,} lines with text read so far are not UTF-8, and at most "
                f"{limits.UNDECODABLE:.0%} are replaced; convert the text from the encoding that it is written in, for "
                f"example by iconv -f {usual_encoding(self._language)} -t UTF-8 OLD > NEW"
            )


class InputFile(NamedTuple):
    """A file of text or records, plain, .gz or .zst, that is open for reading."""

    path: Place
    raw: io.BufferedReader
    progress: Pass
    """The pass that reads it."""

    def lines(self, most_bytes: int | None = None) -> Iterator[str]:
        """Yields the decoded lines. Only a line feed ends a line; each line includes it.

        Raises UsageError for what `parts` refuses, for a line that isn't UTF-8, and for a line longer than `most_bytes`
        (by default RECORD_BYTES).
        """
        most_bytes = most_bytes or limits.RECORD_BYTES
        for number, parts in itertools.groupby(self.parts(), itemgetter(0)):
            line = bytearray()
            for _, part in parts:
                line += part
                if len(line) > most_bytes:
                    raise UsageError(
                        f"{self.path}, line {number} is longer than {most_bytes:,} bytes; cut it into several or leave "
                        "it out"
                    )
            yield self.progress.decode(line, str(self.path), number)

    def parts(self) -> Iterator[tuple[int, bytes]]:
        """Yields the numbered lines, decompressed; an over-long line comes in several parts.

        A byte-order mark is removed and counted. Raises UsageError if the file is damaged, has the first bytes of
        another format or encoding, contains a NUL byte, ends its lines in CR alone, or decompresses to more than
        EXPANSION allows.
        """
        path, raw = self.path, self.raw
        content = decompressed(path, raw)
        number, size, next_check_size = 0, 0, limits.FREE_BYTES
        try:
            _check_format(path, content.peek(_FIRST_BYTES))
            for number, part in numbered_parts(content):
                size += len(part)
                if content is not raw and size > next_check_size and raw.seekable():  # a pipe has no position
                    check_expansion(path, "it unpacks to", size, raw.tell())
                    next_check_size = size + limits.LINE_BYTES
                _check_nuls(path, number, part)
                _check_line_ends(path, number, part)
                if number == 1 and part.startswith(codecs.BOM_UTF8):
                    self.progress.repairs["byte-order marks taken off"] += 1
                    part = part.removeprefix(codecs.BOM_UTF8)
                yield number, part
        except DAMAGE as error:
            raise damage_of(path, error, number) from None

    def document_lines(self) -> Iterator[str]:
        """Yields the stripped lines of a corpus' text, with an empty line after each document.

        An element <doc> of WikiExtractor is one document without its header, title and end; headers are counted.
        """
        inside, title = False, None
        for line in self.progress.stripped(self.parts(), str(self.path)):
            if header := _DOC.fullmatch(line):
                self.progress.repairs["<doc> headers left out, with titles"] += 1
                inside, title = True, header[1]
                yield ""
            elif inside and line == "</doc>":
                inside = False
                yield ""
            elif not (inside and line in ("", title)):
                title = None
                yield line
        yield ""


def decoded_lines(path: Place, repairs: Counter[str] | None = None) -> Iterator[str]:
    """Yields the lines of a file as `InputFile.lines` does; counts in `repairs`. Raises UsageError if it can't be
    read."""
    with opened(path) as raw:
        yield from InputFile(path, raw, Pass(repairs)).lines()


def numbered_parts(file: io.BufferedIOBase) -> Iterator[tuple[int, bytes]]:
    """Yields each line with its number, from 1. An over-long line is cut at spaces; its parts share its number."""
    number, rest = 1, b""
    while line := rest + file.readline(limits.LINE_BYTES - len(rest)):
        rest = b""
        if len(line) >= limits.LINE_BYTES and not line.endswith(b"\n"):
            line, rest = _cut(line)
        yield number, line
        number += not rest


def _cut(line: bytes) -> tuple[bytes, bytes]:
    """Splits a line at the last space of its second half, or between two UTF-8 characters if there is no space."""
    at = line.rfind(b" ", len(line) // 2)
    if at < 0:
        at = len(line) - 1
        while at > len(line) - 4 and line[at] & 0xC0 == 0x80:
            at -= 1
    return line[:at], line[at:]


def _check_format(path: Place, start: bytes) -> None:
    """Raises UsageError if the first bytes of the file, which may contain line feeds, are those of another format."""
    for pattern, kind in _FOREIGN.items():
        if re.match(pattern, start, re.DOTALL):
            raise UsageError(f"{path} is no text but {kind}")
    encoding = next((name for mark, name in _OTHER_MARKS.items() if start.startswith(mark)), None)
    if encoding:
        convert = command_line("iconv", "-f", encoding, "-t", "UTF-8", path)
        raise UsageError(f"{path} is {encoding} text; convert it: {convert} > NEW")


def _check_nuls(path: Place, number: int, part: bytes) -> None:
    """Raises UsageError if `part` of line `number` has a NUL byte."""
    if nuls := part.count(0):
        odd = part[1::2].count(0)
        # In little-endian order, a line feed's second byte, a NUL, begins the next line.
        is_little = (odd == nuls) == (number == 1)
        encoding, text = ("UTF-16LE", part[number > 1 :]) if is_little else ("UTF-16BE", part)
        remedy = "the file is not text; leave it out"
        if odd in (0, nuls) and not _NO_TEXT.intersection(map(category, text.decode(encoding, "replace")[:-1])):
            convert = command_line("iconv", "-f", encoding, "-t", "UTF-8", path)
            remedy = f"the file is UTF-16 without a mark; convert it: {convert} > NEW"
        raise UsageError(
            f"{path}, line {number:,}: byte {part.index(0) + 1:,} is NUL, which text doesn't have: {remedy}"
        )


def _check_line_ends(path: Place, number: int, part: bytes) -> None:
    """Raises UsageError if the file's first part, without a line feed, has carriage returns within it."""
    if number == 1 and not part.endswith(b"\n") and b"\r" in part.strip(b"\r"):
        convert = command_line("tr", "\\r", "\\n")
        raise UsageError(
            f"{path}: lines end in CR alone, as those of old programs; convert them: {convert} < FILE > NEW"
        )
