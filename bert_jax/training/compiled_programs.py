"""JAX' cache of compiled programs, with a checksum in each entry.

JAX itself reads any kind of file, doesn't replace a damaged entry, and may crash when it runs one.
"""

import contextlib
import hashlib
import os
from pathlib import Path

import jax
from jax._src import compilation_cache  # JAX has no public way to check entries
from jax._src.lru_cache import LRUCache

from bert_jax.system.copies import cache_directory
from bert_jax.system.errors import RunError, UsageError, failure_reason
from bert_jax.system.files import replacing
from bert_jax.system.json_file import read_bytes
from bert_jax.system.machine import environment_fault
from bert_jax.system.progress import say

_MOST_BYTES = 1 << 30
"""Bytes of the largest entry that is read. Programs have kilobytes to some megabytes."""
_CHECKSUM_BYTES, _CHECKED = 16, "-checked"
"""Bytes of a checksum; suffix of the keys of entries that have one."""


class CheckedPrograms(LRUCache):
    """Compiled programs in files of a local directory, under names that JAX itself doesn't use. A damaged file is
    deleted, and its program is compiled again."""

    def get(self, key: str) -> bytes | None:
        """The entry of `key`; None if there is none or it is damaged."""
        path = self._file(key)
        if not os.path.lexists(path):
            return None
        value, checksum = b"", b""
        with contextlib.suppress(OSError, ValueError):
            content = read_bytes(path, _MOST_BYTES)  # raises unless it is a plain file
            value, checksum = content[:-_CHECKSUM_BYTES], content[-_CHECKSUM_BYTES:]
        if _checksum(value) == checksum:
            if self.eviction_enabled:
                super().get(key + _CHECKED)  # notes the use
            return value
        outcome = "it was deleted, and is compiled again"
        try:
            path.unlink()
        except OSError as error:
            outcome = f"it can't be deleted ({failure_reason(error)}); delete it"
        say(f"{path} is damaged, or no file of a compiled program: {outcome}")
        return None

    def put(self, key: str, value: bytes) -> None:
        """Adds an entry unless the key has one."""
        content = value + _checksum(value)
        try:
            if self.eviction_enabled and len(content) > self.max_size:
                return
            if self.eviction_enabled:
                super().put(key + _CHECKED, content)
            elif not os.path.lexists(self._file(key)):
                with replacing(self._file(key)) as temporary:
                    temporary.write_bytes(content)
        except (OSError, RunError) as error:
            say(f"a compiled program can't be kept in {self.path} ({failure_reason(error)})")

    def _file(self, key: str) -> Path:
        return Path(str(self.path)) / f"{key}{_CHECKED}-cache"


def keep_compiled_programs() -> None:
    """Turns on JAX' compilation cache, in $JAX_COMPILATION_CACHE_DIR or the user's cache directory.

    Raises UsageError for a variable of the environment that JAX can't use.
    """
    if fault := environment_fault():
        raise fault
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        jax.config.update("jax_compilation_cache_dir", os.fspath(cache_directory() / "compiled"))
    # A job has tens of programs that compile in some hundredths of a second each; reading one takes thousandths.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.02)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    compilation_cache.get_file_cache = _opened


def _opened(path: str) -> tuple[LRUCache, str] | None:
    """The cache in the directory `path`; None, with a message, if it can't be used."""
    most: int = jax.config.values["jax_compilation_cache_max_size"]
    try:
        if most < -1:
            raise UsageError(f"JAX_COMPILATION_CACHE_MAX_SIZE={most} is no number of bytes, nor -1 for no limit")
        return (LRUCache if "://" in path else CheckedPrograms)(path, max_size=most), path
    except (OSError, RuntimeError, UsageError) as error:
        say(f"compiled programs aren't kept in {path}: {failure_reason(error)}")
        return None


def _checksum(value: bytes) -> bytes:
    return hashlib.blake2b(value, digest_size=_CHECKSUM_BYTES).digest()
