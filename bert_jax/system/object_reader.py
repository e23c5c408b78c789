"""Reads an object in a bucket like a file, by ranges."""

import io
import os

from etils import epath

from bert_jax.system.bucket import store_of
from bert_jax.system.errors import RunError

_BLOCK_BYTES = 1 << 23


def open_object(path: epath.Path) -> io.BufferedReader:
    """Opens the object at `path` for reading, with seek. Raises FileNotFoundError.

    Reading raises RunError if fewer bytes arrive than were requested.
    """
    return io.BufferedReader(_ObjectReader(path), _BLOCK_BYTES)


class _ObjectReader(io.RawIOBase):
    """Reads an object by ranges, and checks their lengths: gcsfs' own file waits for ever after a short answer."""

    def __init__(self, path: epath.Path):
        self._path, self._position, self._store = os.fspath(path), 0, store_of(path)
        self._size = self._store.info(self._path)["size"]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def readinto(self, buffer) -> int:
        wanted = min(len(buffer), self._size - self._position)
        if wanted <= 0:
            return 0
        data = self._store.cat_file(self._path, start=self._position, end=self._position + wanted)
        if len(data) != wanted:
            raise RunError(
                f"{self._path}: {len(data):,} bytes came from byte {self._position:,} on where {wanted:,} were asked "
                "for; give the same command again"
            )
        buffer[:wanted] = data
        self._position += wanted
        return wanted
