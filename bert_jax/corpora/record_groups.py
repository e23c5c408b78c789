"""What an ArrayRecord file unpacks to, told before any of it is unpacked.

Such a file is one of Riegeli (github.com/google/riegeli, doc/riegeli_records_file_format.md): a chain of chunks, each
of which holds a group of records and is unpacked at once.
"""

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

from bert_jax.corpora.compressed_files import check_expansion
from bert_jax.system.errors import UsageError

MOST_GROUP_BYTES = 1 << 27
"""Of a group of records, unpacked. TFDS writes each record as a group of its own."""
_BLOCK_BYTES = 1 << 16
_BLOCK_HEADER_BYTES = 24
"""Of a header at each multiple of _BLOCK_BYTES, which may interrupt a chunk anywhere."""
_CHUNK_HEADER = struct.Struct("<8xQ8xQQ")
"""Without its hashes: size of the chunk's data; type (a byte) and number of records; their size unpacked."""
_TYPES = b"smprt"
"""Of chunks: signature, metadata, padding, and two ways to write records."""


def check_groups(path: Path) -> None:
    """Raises UsageError where the file at `path`, or one group of records in it, unpacks to too much.

    The library unpacks no more of a group than its header says. Raises OSError where the file can't be read, ValueError
    where it is damaged.
    """
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        total = 0
        for unpacked in _unpacked_sizes(content):
            total += unpacked
            if unpacked > MOST_GROUP_BYTES:
                raise UsageError(
                    f"{path}: a group of records takes {unpacked:,} bytes unpacked, and at most {MOST_GROUP_BYTES:,} "
                    "are read; leave the set out, or write it with group_size:1 and shorter records"
                )
        check_expansion(path, total, len(content))


def _unpacked_sizes(content: bytes | mmap.mmap) -> Iterator[int]:
    """The size of each chunk, unpacked, as its header says."""
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
