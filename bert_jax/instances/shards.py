"""ArrayRecord files of instances: written whole, read by record number."""

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter

from bert_jax.instances.instances import Instances
from bert_jax.instances.records import encode_instances
from bert_jax.system.files import FileSum, replacing

_WRITER_OPTIONS = "group_size:1,uncompressed"
"""A record a group, so that a random record costs reading that one alone. Compressed by Zstandard (the default) it
takes 17% less space, and four times as long to write and twice to read."""
_READER_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"
"""For records in random order: 3 microseconds one; any parallelism starts threads at each call."""
_READER_BUFFER_BYTES = 4096
MOST_RECORD_BYTES = 1 << 24
"""A token takes five bytes at most, and the longest sequence has 2^20."""


def shard_path(directory: Path, split: str, index: int) -> Path:
    """Where shard `index` of `split` lies."""
    return directory / f"{split}-{index:05d}.array_record"


def ids_dtype(vocabulary_size: int) -> type[np.integer]:
    """The smallest type that holds every piece id."""
    return np.uint16 if vocabulary_size <= 1 << 16 else np.int32


def write_shard(path: Path, instances: Iterable[Instances], dtype: type[np.integer]) -> FileSum:
    """Writes one shard atomically and returns its checksum. Raises RunError where the disk doesn't take it."""
    with replacing(path) as temporary:
        writer = ArrayRecordWriter(os.fspath(temporary), _WRITER_OPTIONS)
        try:
            for part in instances:
                for record in encode_instances(part, dtype):
                    writer.write(record)
        finally:
            writer.close()  # where a write that failed comes to light, as a RuntimeError with the system's words
        return FileSum.of(temporary)


class ShardReader:
    """The records of one shard by number. Has a position, so one thread may use it at a time."""

    def __init__(self, path: Path, records: int):
        """Raises ValueError where the file is damaged or compressed, or holds another number than `records`."""
        self._reader = ArrayRecordReader(os.fspath(path), _READER_OPTIONS, file_reader_buffer_size=_READER_BUFFER_BYTES)
        if self._reader.num_records() != records:
            raise ValueError(f"{path.name} holds {self._reader.num_records()} records instead of {records}")
        if "uncompressed" not in (self._reader.writer_options_string() or ""):
            # A record of a small compressed file may fill the memory.
            raise ValueError(f"{path.name} is compressed, as none is that was written here")

    def read(self, number: int) -> bytes:
        """Record `number`. Raises ValueError or RuntimeError where the file is damaged."""
        self._reader.seek(number)
        record = self._reader.read()
        if len(record) > MOST_RECORD_BYTES:
            raise ValueError(f"a record has {len(record):,} bytes and may have {MOST_RECORD_BYTES:,}")
        return record
