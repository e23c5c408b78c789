"""Sources that read files, on disk or in a bucket: their base class, and the source `text:GLOB`."""

import codecs
import io
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from hashlib import blake2b

from bert_jax.corpora.compressed_files import DAMAGE, decompressed, opened
from bert_jax.corpora.shown import reason_of
from bert_jax.corpora.text_source import TextSource, numbered_parts
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError, command_line
from bert_jax.system.files import matching_files

_END_BYTES = 1 << 12
COMPRESSED = (".gz", ".zst", ".parquet")
"""Suffixes of files that are smaller than their text."""
BYTE_ORDER_MARK = codecs.BOM_UTF8
_OTHER_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",  # tested before UTF-16's mark, which is a prefix of it
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}

_DOC = re.compile(r'<doc id=".*" url=".*" title="(.*)">')
"""The line before each article in the output of WikiExtractor, which repeats the title in the next line."""


class FileSource(TextSource):
    """Files that are read as one stream, in the order of their names. Subclasses define `_file_lines` for one file."""

    def __init__(self, pattern: str, undecodable: str, document_bytes: int):
        """Finds the files that match `pattern`. Raises UsageError if there are none.

        `undecodable` says what happens to bytes that aren't UTF-8: "replace" or "refuse". A document longer than
        `document_bytes` is cut between two lines.
        """
        super().__init__(undecodable, document_bytes)
        found = matching_files(pattern)
        if not found:
            raise UsageError(f"no file matches {pattern!r}; give a path or a pattern like 'corpus/*.txt.gz'")
        self.sizes = {path: file.size for path, file in found.items()}
        self.total = sum(self.sizes.values()) / 1e6
        revisions = [(path.name, file.revision) for path, file in found.items()]
        self.revision = blake2b(repr(revisions).encode(), digest_size=8).hexdigest()

    @property
    def unit(self) -> str:
        """The unit of the file sizes, for progress: "MB compressed" if any file is smaller than its text."""
        return "MB compressed" if any(path.suffix in COMPRESSED for path in self.sizes) else "MB"

    @cached_property
    def stamp(self) -> str:
        """Hash of each file's name, size, first 4 KB and last 4 KB."""
        digest = blake2b(digest_size=8)
        for path, size in self.sizes.items():
            with opened(path) as raw:
                ends = [raw.read(_END_BYTES), raw.seek(max(size - _END_BYTES, 0)), raw.read()]
            digest.update(repr((path.name, size, ends)).encode())
        return digest.hexdigest()

    def _lines(self) -> Iterator[str]:
        before = 0
        for path, size in self.sizes.items():
            with opened(path) as raw:
                for read, line in self._file_lines(path, raw):
                    self.position = (before + read) / 1e6
                    yield line
            self._check_decodable(str(path))
            yield ""
            before += size

    def _file_lines(self, path: Place, raw: io.BufferedReader) -> Iterator[tuple[int, str]]:
        """Yields the stripped lines of one file, each after the number of bytes read from the file so far.

        An empty line ends a document.
        """
        raise NotImplementedError

    def _numbered_parts(self, path: Place, raw: io.BufferedReader) -> Iterator[tuple[int, bytes]]:
        """The parts of `undamaged_parts`, without a byte-order mark."""
        for number, part in undamaged_parts(path, raw):
            yield number, part.removeprefix(BYTE_ORDER_MARK) if number == 1 else part


def undamaged_parts(path: Place, raw: io.BufferedReader) -> Iterator[tuple[int, bytes]]:
    """Yields the numbered lines of an opened file, decompressed; an over-long line comes in several parts.

    Raises UsageError if the file is damaged, is UTF-16 or UTF-32, or contains a NUL byte.
    """
    number = 0
    try:
        for number, part in numbered_parts(decompressed(path, raw)):
            _check_text(path, number, part)
            yield number, part
    except DAMAGE as error:
        raise UsageError(
            f"{path} is damaged or cut short after line {number:,} ({reason_of(error)}); copy it again from its source"
        ) from None


def _check_text(path: Place, number: int, part: bytes) -> None:
    """Raises UsageError if `part` of line `number` has a NUL byte, or a UTF-16 or UTF-32 mark at the file's start."""
    encoding = None
    if number == 1:
        encoding = next((name for mark, name in _OTHER_MARKS.items() if part.startswith(mark)), None)
    if encoding:
        raise UsageError(
            f"{path} is {encoding} text; convert it: {command_line('iconv', '-f', encoding, '-t', 'UTF-8', path)} > NEW"
        )
    if b"\0" in part:
        raise UsageError(
            f"{path}, line {number:,}: byte {part.index(0) + 1:,} is NUL, which text doesn't have: the file is UTF-16 "
            f"without a mark (convert it: {command_line('iconv', '-f', 'UTF-16LE', '-t', 'UTF-8', path)} > NEW) "
            "or is not text (leave it out)"
        )


class TextFiles(FileSource):
    """Plain, .gz and .zst text files, in which blank lines separate documents, or WikiExtractor's <doc> lines."""

    def _file_lines(self, path: Place, raw: io.BufferedReader) -> Iterator[tuple[int, str]]:
        for line in self._without_doc_lines(self._text_lines(self._numbered_parts(path, raw), str(path))):
            yield raw.tell(), line

    def _without_doc_lines(self, lines: Iterable[str]) -> Iterator[str]:
        """Yields `lines` with each element <doc> as one document, without its header, title and end; counts headers."""
        inside, title = False, None
        for line in lines:
            if header := _DOC.fullmatch(line):
                self.repairs["<doc> headers left out, with titles"] += 1
                inside, title = True, header[1]
                yield ""
            elif inside and line == "</doc>":
                inside = False
                yield ""
            elif not (inside and line in ("", title)):
                title = None
                yield line
