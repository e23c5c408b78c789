"""Checks the decompressed size of an ArrayRecord file by its chunk headers, before anything is decompressed.

An ArrayRecord file is a Riegeli file (github.com/google/riegeli, doc/riegeli_records_file_format.md): a sequence of
chunks. Each chunk holds a group of records and is decompressed as a whole.
"""

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

from bert_jax.corpora import limits
from bert_jax.corpora.compressed_files import check_expansion
from bert_jax.system.errors import UsageError

_BLOCK_BYTES = 1 << 16
_BLOCK_HEADER_BYTES = 24
"""Size of the block header at each multiple of _BLOCK_BYTES. It may interrupt a chunk anywhere."""
_CHUNK_HEADER = struct.Struct("<8xQ8xQQ")
"""Fields other than hashes: size of the data; type (one byte) and number of records; decompressed size."""
_TYPES = b"smprt"
"""Chunk types: signature, metadata, padding, simple records and transposed records."""


def check_groups(path: Path) -> None:
    """Raises UsageError if the file at `path`, or one group of records in it, decompresses to too many bytes.

    The headers can be trusted, since the library never decompresses more of a group than its header says. Raises
    OSError if the file can't be read, and ValueError if it is damaged.
    """
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        total = 0
        for unpacked in _unpacked_sizes(content):
            total += unpacked
            if unpacked > limits.GROUP_BYTES:
                raise UsageError(
                    f"{path}: a group of records takes {unpacked:,} bytes unpacked, and at most {limits.GROUP_BYTES:,} "
                    "are read; leave the set out, or write it with group_size:1 and shorter records"
                )
        check_expansion(path, "it unpacks to", total, len(content))


def _unpacked_sizes(content: bytes | mmap.mmap) -> Iterator[int]:
    """Yields the decompressed size of each chunk in bytes, from the chunk headers."""
    position = 0
    while position < len(content):
        begin = position if position % _BLOCK_BYTES else position + _BLOCK_HEADER_BYTES
        end, edge = begin + _CHUNK_HEADER.size, begin - begin % _BLOCK_BYTES + _BLOCK_BYTES
        header = content[begin:end]
        if end > edge:
            header = content[begin:edge] + content[edge + _BLOCK_HEADER_BYTES : end + _BLOCK_HEADER_BYTES]
        if len(header) < _CHUNK_HEADER.size:
            raise ValueError("it is cut short")
        data, type_and_records, unpacked = _CHUNK_HEADER.unpack(header)
        if type_and_records & 0xFF not in _TYPES:
            raise ValueError(f"no group of records begins at byte {position:,}")
        yield unpacked
        size, usable = _CHUNK_HEADER.size + data, _BLOCK_BYTES - _BLOCK_HEADER_BYTES
        headers = (size + (position + usable - 1) % _BLOCK_BYTES) // usable
        position += max(size + headers * _BLOCK_HEADER_BYTES, type_and_records >> 8)
