"""Files on disk or in a bucket, compressed by gzip or Zstandard or not at all."""

import gzip
import io
import zlib

import zstandard

from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError
from bert_jax.system.files import open_binary

DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError)
"""What reading `decompressed` raises where a file is damaged or cut short."""
FREE_BYTES = 1 << 26
MOST_EXPANSION = 200
"""Bytes of content for each byte of a file, once there are more than FREE_BYTES. Text compresses to a third or a tenth,
the same line again and again to a hundredth; a bomb to a thousandth (gzip) or a thirty-thousandth (Zstandard)."""
_MOST_WINDOW = 1 << 27
"""Memory for Zstandard's window: the most that the program `zstd` takes too unless it is told otherwise."""
_FEED_BYTES = 512
"""Compressed bytes taken at a time. Four of them may become 128 KB, so 16 MB are the most that come at once."""


def opened(path: Place) -> io.BufferedReader:
    """The file at `path`. Raises UsageError where it can't be read."""
    try:
        return open_binary(path)
    except (OSError, ValueError) as error:  # ValueError for a name with a NUL in it
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{_name(path)} can't be read ({reason}); mend that or leave it out") from None


def decompressed(path: Place, raw: io.BufferedIOBase) -> io.BufferedIOBase:
    """What the opened file `raw` holds: decompressed where its name ends in .gz or .zst.

    Memory is bounded whatever the file holds. Reading raises DAMAGE where the file is damaged, and UsageError where it
    holds more than MOST_EXPANSION allows.
    """
    if path.suffix == ".gz":
        return io.BufferedReader(_Decompressed(path, raw, gzip.GzipFile(fileobj=raw)), io.DEFAULT_BUFFER_SIZE)
    if path.suffix == ".zst":
        return io.BufferedReader(_Decompressed(path, raw, _WholeFrames(raw)), io.DEFAULT_BUFFER_SIZE)
    return raw


def check_expansion(path: Place, content: int, compressed: int) -> None:
    """Raises UsageError where `content` bytes are too many to come from `compressed` bytes of the file."""
    if content > max(FREE_BYTES, MOST_EXPANSION * compressed):
        raise UsageError(
            f"{path}: {compressed:,} bytes of it unpack to {content:,} or more, and text unpacks to {MOST_EXPANSION} "
            f"times its packed size at most (the first {FREE_BYTES:,} bytes are not asked about); leave the file out, "
            "or unpack it yourself if that is what you want to be read"
        )


def check_held(source: Place | str, rows: int, held: int, compressed: int) -> None:
    """Raises UsageError where `rows` rows take too much memory (`held` bytes) for a file of `compressed` bytes."""
    if held > max(FREE_BYTES, MOST_EXPANSION * compressed):
        raise UsageError(
            f"{source}: its first {rows:,} rows take {held:,} bytes of memory, and rows that are read whole take "
            f"{MOST_EXPANSION} times the size of their file at most, which is {compressed:,} bytes (the first "
            f"{FREE_BYTES:,} are not asked about); leave the file out, or unpack it yourself if that is what you want "
            "to be read"
        )


def _name(path: Place) -> str:
    """The path on one line, whatever characters are in it."""
    text = str(path)
    return text if text.isprintable() else repr(text)


class _Decompressed(io.RawIOBase):
    """What `content` decompresses of the file `raw`, as long as it isn't too much."""

    def __init__(self, path: Place, raw: io.BufferedIOBase, content: io.RawIOBase | gzip.GzipFile):
        self._path, self._raw, self._content, self._count = path, raw, content, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        count = self._content.readinto(buffer)
        self._count += count
        if self._count > FREE_BYTES:
            check_expansion(self._path, self._count, self._raw.tell())
        return count


class _WholeFrames(io.RawIOBase):
    """Zstandard decompression that refuses a frame cut short (zstandard's own reader ends there silently)."""

    def __init__(self, raw: io.BufferedIOBase):
        self._raw = raw
        self._library = zstandard.ZstdDecompressor(max_window_size=_MOST_WINDOW)
        self._frame = self._library.decompressobj()
        self._begun = False
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
