"""Reads the lines of UTF-8 files, plain or compressed, in bounded memory."""

import codecs
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterator
from operator import itemgetter
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
    rb"PAR1": "a Parquet file; name it parquet:FILE#COLUMN, or FILE.parquet where rows are read",
    rb"SQLite format 3\0|ARROW1|\x93NUMPY|\x89HDF": "a database or an array; write its texts as JSON lines",
    rb"\xd0\xcf\x11\xe0\xa1\xb1|\{\\rtf": f"an Office document (doc, rtf); {_SAVE}",
}
"""What a file is that holds no lines of text, and what to do, by a pattern of its first bytes."""
_NO_TEXT = {"Cc", "Cn", "Co", "Cs"}
"""Categories of code points that other bytes have if they are taken for UTF-16: control, unassigned, private."""
_REPLACED = "lines with undecodable bytes"
_CHECKED_EVERY = 1000
"""Number of undecodable lines after which their share is checked again."""


class Decoder:
    """Decodes UTF-8. Undecodable bytes are an error, or with `replace` become U+FFFD and are counted in `repairs`."""

    def __init__(self, repairs: Counter[str], replace: bool = False, remedy: str = "save it as UTF-8", language="en"):
        """`remedy`: what the error for an undecodable byte tells the user to do. `language`: the language of the text;
        it decides which encoding the error for too many undecodable lines suggests."""
        self.repairs, self._replace, self._remedy, self._language = repairs, replace, remedy, language
        self.lines = 0
        """Lines with text that were read."""
        self.reads_all = True
        """Whether it reads a whole source, so that it can judge whether too many lines are undecodable."""

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

    def check(self, place: str) -> None:
        """Raises UsageError if too many lines weren't UTF-8. `place` is what was read last, for the message."""
        bad = self.repairs[_REPLACED]
        if self.reads_all and bad >= limits.FEWEST_UNDECODABLE and bad > limits.UNDECODABLE * self.lines:
            raise UsageError(
                f"{place}: {bad:,} of {self.lines:,} lines with text read so far are not UTF-8, and at most "
                f"{limits.UNDECODABLE:.0%} are replaced; convert the text from the encoding that it is written in, for "
                f"example by iconv -f {usual_encoding(self._language)} -t UTF-8 OLD > NEW"
            )


def decoded_lines(path: Place, repairs: Counter[str], most_bytes: int | None = None) -> Iterator[str]:
    """Yields the lines of a UTF-8 file, plain, .gz or .zst. Only a line feed ends a line; each line includes it.

    A byte-order mark is removed and counted in `repairs`. Raises UsageError if the file can't be read, is damaged or
    isn't UTF-8 (naming the line), or if a line is longer than `most_bytes`, by default RECORD_BYTES.
    """
    with opened(path) as raw:
        yield from whole_lines(path, raw, Decoder(repairs), most_bytes)


def whole_lines(path: Place, raw: io.BufferedReader, decoder: Decoder, most_bytes: int | None = None) -> Iterator[str]:
    """Yields the decoded lines of an opened file.

    Raises UsageError as `file_parts` and `decoder` do, and if a line is longer than `most_bytes`.
    """
    most_bytes = most_bytes or limits.RECORD_BYTES
    for number, parts in itertools.groupby(file_parts(path, raw, decoder.repairs), itemgetter(0)):
        line = bytearray()
        for _, part in parts:
            line += part
            if len(line) > most_bytes:
                raise UsageError(
                    f"{path}, line {number} is longer than {most_bytes:,} bytes; cut it into several or leave it out"
                )
        yield decoder.decode(line, str(path), number)


def file_parts(path: Place, raw: io.BufferedReader, repairs: Counter[str]) -> Iterator[tuple[int, bytes]]:
    """Yields the numbered lines of an opened file, decompressed; an over-long line comes in several parts.

    A byte-order mark is removed and counted in `repairs`. Raises UsageError if the file is damaged, is no text in
    UTF-8 by its first bytes, contains a NUL byte, or decompresses to more than EXPANSION allows.
    """
    content = decompressed(path, raw)
    number, size, next_check_size = 0, 0, limits.FREE_BYTES
    try:
        for number, part in numbered_parts(content):
            size += len(part)
            if content is not raw and size > next_check_size:
                check_expansion(path, "it unpacks to", size, raw.tell())
                next_check_size = size + limits.LINE_BYTES
            _check_text(path, number, part)
            if number == 1 and part.startswith(codecs.BOM_UTF8):
                repairs["byte-order marks taken off"] += 1
                part = part.removeprefix(codecs.BOM_UTF8)
            yield number, part
    except DAMAGE as error:
        raise damage_of(path, error, number) from None


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
    """Splits a line at the last space of its second half, or if there is none, between two UTF-8 characters."""
    at = line.rfind(b" ", len(line) // 2)
    if at < 0:
        at = len(line) - 1
        while at > len(line) - 4 and line[at] & 0xC0 == 0x80:
            at -= 1
    return line[:at], line[at:]


def _check_text(path: Place, number: int, part: bytes) -> None:
    """Raises UsageError if `part` of line `number` has a NUL byte, or if the file's start shows another format."""
    if number == 1:
        for pattern, kind in _FOREIGN.items():
            if re.match(pattern, part, re.DOTALL):
                raise UsageError(f"{path} is no text but {kind}")
        encoding = next((name for mark, name in _OTHER_MARKS.items() if part.startswith(mark)), None)
        if encoding:
            convert = command_line("iconv", "-f", encoding, "-t", "UTF-8", path)
            raise UsageError(f"{path} is {encoding} text; convert it: {convert} > NEW")
    if nuls := part.count(0):
        odd = part[1::2].count(0)
        # Where a line feed ended the line before in little-endian order, its NUL begins this one.
        is_little = (odd == nuls) == (number == 1)
        encoding, text = ("UTF-16LE", part[number > 1 :]) if is_little else ("UTF-16BE", part)
        remedy = "the file is not text; leave it out"
        if odd in (0, nuls) and not _NO_TEXT.intersection(map(category, text.decode(encoding, "replace")[:-1])):
            convert = command_line("iconv", "-f", encoding, "-t", "UTF-8", path)
            remedy = f"the file is UTF-16 without a mark; convert it: {convert} > NEW"
        raise UsageError(
            f"{path}, line {number:,}: byte {part.index(0) + 1:,} is NUL, which text doesn't have: {remedy}"
        )
