"""Shards: ArrayRecord files of instances, which are written whole and read by record number."""

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter

from bert_jax.instances.instances import Instances
from bert_jax.instances.records import encode_instances
from bert_jax.system.files import FileSum, replacing

_WRITER_OPTIONS = "group_size:1,uncompressed"
"""One record per group, so that a random read touches a single record; uncompressed.

Zstandard, the default, takes 17% less space, but four times as long to write and twice as long to read."""
_READER_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"
"""Options for random access, at 3 microseconds per record; with parallelism each call would start threads."""
_READER_BUFFER_BYTES = 4096
MOST_RECORD_BYTES = 1 << 24
"""Largest record that is read: a sequence has at most 2^20 tokens of at most five bytes each."""


def shard_path(directory: Path, split: str, index: int) -> Path:
    """The path of shard `index` of `split`."""
    return directory / f"{split}-{index:05d}.array_record"


def ids_dtype(vocabulary_size: int) -> type[np.integer]:
    """The smallest integer type that holds every piece id of the vocabulary."""
    return np.uint16 if vocabulary_size <= 1 << 16 else np.int32


def write_shard(path: Path, instances: Iterable[Instances], dtype: type[np.integer]) -> FileSum:
    """Writes one shard atomically and returns its checksum. Raises RunError if the disk is full or fails."""
    with replacing(path) as temporary:
        writer = ArrayRecordWriter(os.fspath(temporary), _WRITER_OPTIONS)
        try:
            for part in instances:
                for record in encode_instances(part, dtype):
                    writer.write(record)
        finally:
            writer.close()  # raises RuntimeError with the system's message if an earlier write failed
        return FileSum.of(temporary)


class ShardReader:
    """Reads the records of one shard by number. Not thread-safe, as the reader has a position."""

    def __init__(self, path: Path, records: int):
        """Opens the shard. Raises ValueError if it is damaged or compressed, or hasn't exactly `records` records."""
        self._reader = ArrayRecordReader(os.fspath(path), _READER_OPTIONS, file_reader_buffer_size=_READER_BUFFER_BYTES)
        if self._reader.num_records() != records:
            raise ValueError(f"{path.name} holds {self._reader.num_records()} records instead of {records}")
        if "uncompressed" not in (self._reader.writer_options_string() or ""):
            # A compressed record of a small file could decompress to more than the memory.
            raise ValueError(f"{path.name} is compressed, as none is that was written here")

    def read(self, number: int) -> bytes:
        """Reads record `number`. Raises ValueError or RuntimeError if the file is damaged."""
        self._reader.seek(number)
        record = self._reader.read()
        if len(record) > MOST_RECORD_BYTES:
            raise ValueError(f"a record has {len(record):,} bytes and may have {MOST_RECORD_BYTES:,}")
        return record
