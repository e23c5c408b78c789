"""Files as they lie on disk or in a bucket, and what is packed in them."""

import gzip
import io
import zlib

import zstandard

from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError
from bert_jax.system.files import open_binary

DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError)
"""What reading `decompressed` raises where a file is damaged or cut short."""


def opened(path: Place) -> io.BufferedReader:
    """The file at `path`. Raises UsageError where it can't be read."""
    try:
        return open_binary(path)
    except OSError as error:
        raise UsageError(f"{path} can't be read ({error.strerror or error}); mend that or leave it out") from None


def decompressed(path: Place, raw: io.BufferedIOBase) -> io.BufferedIOBase:
    """What the opened file `raw` holds: unpacked where its name ends in .gz or .zst. Reading it may raise DAMAGE."""
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
