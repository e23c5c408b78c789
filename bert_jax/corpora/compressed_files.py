"""Reads plain, gzip and Zstandard files on disk or in a bucket, with limits on their decompressed size."""

import gzip
import io
import zlib
from pathlib import PurePath

import zstandard

from bert_jax.corpora import limits
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError
from bert_jax.system.files import open_binary

DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError)
"""Exceptions that reading a `decompressed` stream raises if the file is damaged or truncated."""
_FEED_BYTES = 512
"""Compressed bytes per read. Four bytes can decompress to 128 KB, so one read yields at most 16 MB."""


def suffix(name: str) -> str:
    """The suffix of a file's name, ignoring .gz and .zst; empty if there is none."""
    return next((end for end in reversed(PurePath(name).suffixes) if end not in (".gz", ".zst")), "")


def opened(path: Place) -> io.BufferedReader:
    """Opens the file at `path` for reading bytes. Raises UsageError if it can't be read."""
    try:
        return open_binary(path)
    except (OSError, ValueError) as error:  # ValueError if the name contains a NUL
        reason = getattr(error, "strerror", None) or error
        name = str(path) if str(path).isprintable() else repr(str(path))
        raise UsageError(f"{name} can't be read ({reason}); mend that or leave it out") from None


def decompressed(path: Place, raw: io.BufferedReader) -> io.BufferedReader:
    """The content of the opened file `raw` as a stream, decompressed if `path` ends in .gz or .zst.

    Reading raises one of DAMAGE if the file is damaged.
    """
    if path.suffix == ".gz":
        return io.BufferedReader(gzip.GzipFile(fileobj=raw))
    if path.suffix == ".zst":
        return io.BufferedReader(_WholeFrames(raw))
    return raw


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
