"""The source `text:GLOB`: lines of UTF-8, a blank line between documents."""

import glob
import gzip
import io
import zlib
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from hashlib import blake2b
from pathlib import Path

import zstandard

from bert_jax.system.errors import UsageError

MAX_LINE_BYTES = 1 << 20
"""A longer line is cut at a space, so that memory stays bounded."""

_END_BYTES = 1 << 12


class TextFiles:
    """Plain, .gz and .zst files, read as a stream in the order of their names."""

    unit = "MB"

    def __init__(self, pattern: str, undecodable: str, document_bytes: int):
        """`undecodable`: "replace" or "refuse". A longer document than `document_bytes` is cut between two lines.

        Raises UsageError where no file matches `pattern`.
        """
        self.paths = [Path(name) for name in sorted(glob.glob(pattern, recursive=True)) if Path(name).is_file()]
        if not self.paths:
            raise UsageError(f"no file matches {pattern!r}; give a path or a pattern like 'text:corpus/*.txt.gz'")
        self.undecodable, self.document_bytes = undecodable, document_bytes
        self.total = sum(path.stat().st_size for path in self.paths) / 1e6
        self.position = 0.0
        self.repairs = Counter()

    @cached_property
    def stamp(self) -> str:
        """See Corpus: names, sizes, and both ends of each file (those of a packed one depend on all of it)."""
        digest = blake2b(digest_size=8)
        for path in self.paths:
            with _opened(path) as raw:
                ends = [raw.read(_END_BYTES), raw.seek(max(path.stat().st_size - _END_BYTES, 0)), raw.read()]
            digest.update(repr((path.name, path.stat().st_size, ends)).encode())
        return digest.hexdigest()

    def documents(self) -> Iterator[list[str]]:
        """See Corpus. Raises UsageError for a damaged file and, if so set, for bytes that aren't UTF-8."""
        self.position, self.repairs = 0.0, Counter()
        before = 0
        for path in self.paths:
            with _opened(path) as raw:
                document, size = [], 0
                for line in self._lines(path, raw):
                    self.position = (before + raw.tell()) / 1e6
                    if document and (not line or size >= self.document_bytes):
                        if line:
                            self.repairs["over-long documents cut"] += 1
                        yield document
                        document, size = [], 0
                    if line:
                        document.append(line)
                        size += len(line.encode())
                if document:
                    yield document
            before += path.stat().st_size
        self.position = before / 1e6

    def _lines(self, path: Path, raw: io.BufferedIOBase) -> Iterator[str]:
        """Stripped lines of one file; an empty one for a blank line."""
        number = 0
        try:
            for number, line in self._numbered_lines(_decompressed(path, raw)):
                if number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")
                try:
                    text = line.decode()
                except UnicodeDecodeError as error:
                    if self.undecodable == "refuse":
                        raise UsageError(
                            f"{path}, line {number}: byte {error.start + 1} is not UTF-8; mend the file, or set "
                            "--data.undecodable replace"
                        ) from None
                    self.repairs["lines with undecodable bytes"] += 1
                    text = line.decode(errors="replace")
                yield text.strip()
        except (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError) as error:
            raise UsageError(
                f"{path} is damaged or cut short after line {number:,} ({error}); copy it again from its source"
            ) from None

    def _numbered_lines(self, file: io.BufferedIOBase) -> Iterator[tuple[int, bytes]]:
        """Lines with their numbers; the parts of an over-long one share theirs."""
        number, rest = 1, b""
        while line := rest + file.readline(MAX_LINE_BYTES - len(rest)):
            rest = b""
            if len(line) >= MAX_LINE_BYTES and not line.endswith(b"\n"):
                self.repairs["over-long lines cut"] += 1
                line, rest = _cut(line)
            yield number, line
            number += not rest


def _cut(line: bytes) -> tuple[bytes, bytes]:
    """Splits at the last space of the second half, or else between two characters."""
    at = line.rfind(b" ", len(line) // 2)
    if at < 0:
        at = len(line) - 1
        while at > len(line) - 4 and line[at] & 0xC0 == 0x80:
            at -= 1
    return line[:at], line[at:]


def _opened(path: Path) -> io.BufferedReader:
    try:
        return open(path, "rb")
    except OSError as error:
        raise UsageError(f"{path} can't be read ({error.strerror}); mend that or leave it out") from None


def _decompressed(path: Path, raw: io.BufferedIOBase) -> io.BufferedIOBase:
    if path.suffix == ".gz":
        return gzip.GzipFile(fileobj=raw)
    if path.suffix == ".zst":
        return io.BufferedReader(_WholeFrames(raw))
    return raw


class _WholeFrames(io.RawIOBase):
    """Zstandard decompression that refuses a frame cut short (zstandard's own reader ends there silently)."""

    def __init__(self, raw: io.BufferedIOBase):
        self._raw = raw
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._begun = False
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        while not self._ready:
            compressed = self._frame.unused_data or self._raw.read(1 << 16)
            if self._frame.eof:
                self._frame, self._begun = zstandard.ZstdDecompressor().decompressobj(), False
            if not compressed:
                if self._begun:
                    raise zstandard.ZstdError("the last frame has no end")
                return 0
            self._begun = True
            self._ready = self._frame.decompress(compressed)
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count
