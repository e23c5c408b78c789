"""Reads plain, gzip and Zstandard files on disk or in a bucket, with limits on their decompressed size."""

import gzip
import io
import re
import zlib
from pathlib import PurePath

import zstandard

from bert_jax.records import limits
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError, first_line
from bert_jax.system.files import open_binary

DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError)
"""Exceptions that reading a `decompressed` stream raises if the file is damaged or truncated."""
SUFFIXES = {".gz": rb"\x1f\x8b\x08", ".zst": rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"}
"""First bytes of the compressed files that can be read, by suffix."""
_TEXT = re.compile(rb"[\t\n\r -~\x80-\xff]+")
_FEED_BYTES = 512
"""Compressed bytes per read. Four bytes can decompress to 128 KB, so one read yields at most 16 MB."""


def suffix(name: str) -> str:
    """The suffix of a file's name, ignoring .gz and .zst; empty if there is none."""
    return next((end for end in reversed(PurePath(name).suffixes) if end not in SUFFIXES), "")


def opened(path: Place) -> io.BufferedReader:
    """Opens the file at `path` for reading bytes. Raises UsageError if it can't be read."""
    try:
        return open_binary(path)
    except (OSError, ValueError) as error:  # ValueError if the name contains a NUL
        reason = getattr(error, "strerror", None) or error
        name = str(path) if str(path).isprintable() else repr(str(path))
        raise UsageError(f"{name} can't be read ({reason}); mend that or leave it out") from None


def compression(path: Place, raw: io.BufferedReader) -> str | None:
    """The kind of compression, one of SUFFIXES, of a file that was opened as `raw`; None if it isn't compressed.

    The first bytes decide. If they fit no kind and aren't text either (damage), the suffix decides.
    """
    begin = raw.peek(64)[:64]
    known = next((end for end, magic in SUFFIXES.items() if re.match(magic, begin)), None)
    return known or (path.suffix if path.suffix in SUFFIXES and not _TEXT.fullmatch(begin) else None)


def decompressed(path: Place, raw: io.BufferedReader) -> io.BufferedReader:
    """The content of the file that was opened as `raw`: `raw` itself, or a stream that decompresses it.

    Reading raises one of DAMAGE if the file is damaged.
    """
    kind = compression(path, raw)
    if kind == ".gz":
        return io.BufferedReader(gzip.GzipFile(fileobj=raw))
    return io.BufferedReader(_WholeFrames(raw)) if kind else raw


def damage_of(path: Place, error: Exception, line: int = 0) -> UsageError:
    """The error to raise if reading a file raised one of DAMAGE after line `line`."""
    return UsageError(
        f"{path} is damaged or cut short after line {line:,} ({first_line(error)}); copy it again from its source"
    )


def check_expansion(source: Place | str, size_phrase: str, size: int, compressed: int) -> None:
    """Raises UsageError if `size`, the bytes that a file takes when it is read, is implausible for `compressed` bytes.

    `size_phrase`: the words before the size in the message, such as "it unpacks to".
    """
    if size > max(limits.FREE_BYTES, limits.EXPANSION * compressed):
        raise UsageError(
            f"{source}: {size_phrase} {size:,} bytes or more, and text takes at most {limits.EXPANSION} times its "
            f"packed size, {compressed:,} bytes (the first {limits.FREE_BYTES:,} bytes are always read); leave the "
            "file out, or unpack it yourself to read it anyway"
        )


class _WholeFrames(io.RawIOBase):
    """Zstandard decompression that raises for a truncated frame (the library's own reader just ends there)."""

    def __init__(self, raw: io.BufferedReader):
        self._raw = raw
        self._library = zstandard.ZstdDecompressor(max_window_size=limits.WINDOW_BYTES)
        self._frame, self._begun = self._library.decompressobj(), False
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        while not self._ready:
            compressed = self._frame.unused_data or self._raw.read(_FEED_BYTES)
            if self._frame.eof:
                self._frame, self._begun = self._library.decompressobj(), False
            if not compressed:
                if self._begun:
                    raise zstandard.ZstdError("the last frame has no end")
                return 0
            self._begun = True
            self._ready = memoryview(self._frame.decompress(compressed))
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count
