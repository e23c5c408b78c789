"""Shards: ArrayRecord files of instances as TF Examples. They are written as a whole, and read by record number."""

import bisect
import itertools
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter
from google.protobuf.message import DecodeError
from jaxtyping import Int, Shaped
from tensorflow_datasets.proto import tf_example_pb2

from bert_jax.instances.instances import Instances
from bert_jax.instances.prepared_data import PreparedData
from bert_jax.system.bucket import Place
from bert_jax.system.errors import RunError, first_line
from bert_jax.system.files import FileSum, replacing
from bert_jax.system.progress import warn

_WRITER_OPTIONS = "group_size:1,uncompressed"
"""One record per group, so that a random read touches a single record; uncompressed.

Zstandard, the default, takes 17% less space, but four times as long to write and twice as long to read."""
_READER_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"
"""Options for random access, which takes 3 microseconds per record. With parallelism each call would start threads."""
_READER_BUFFER_BYTES = 4096
MOST_RECORD_BYTES = 1 << 24
"""Largest record that is read: a sequence has at most 2^20 tokens of at most five bytes each."""
_ONE = {"first_length": "int64_list", "pair_label": "int64_list", "ids": "bytes_list", "units": "bytes_list"}
"""The features of a record of one sequence. Each has a list of this type, with one value."""
_SEVERAL = dict.fromkeys(("first_length", "pair_label", "length", "ids", "units"), "bytes_list")
"""The features of a record of several sequences. One byte string holds the values of all sequences."""
_MOST_NUMBER = (1 << 31) - 1
_NUMBER = np.dtype("<i4")
"""Type of the numbers in those byte strings that hold one number for each sequence."""
_NO_TOKENS = Instances(np.zeros(0, int), np.zeros(0, np.uint8), np.zeros(2, int), np.zeros(1, int), np.zeros(1, int))
"""One sequence without tokens. It replaces a skipped record."""


def shard_path(directory: Place, split: str, index: int) -> Place:
    """The path of shard `index` of `split`."""
    return directory / f"{split}-{index:05d}.array_record"


def ids_dtype(vocabulary_size: int) -> type[np.integer]:
    """The smallest integer type that holds every piece id of the vocabulary."""
    return np.uint16 if vocabulary_size <= 1 << 16 else np.int32


def write_shard(path: Place, instances: Iterable[Instances], dtype: type[np.integer]) -> FileSum:
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
    """Reads the records of one shard by number. It isn't thread-safe, since the reader has a position."""

    def __init__(self, path: Path, records: int):
        """Opens the shard. Raises ValueError if it is damaged or compressed, or if its number of records isn't
        `records`."""
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


class InstanceSource:
    """Random access to the records of one split of a prepared data set. Thread-safe.

    ArrayRecord verifies the checksum of each record when it is read.
    """

    def __init__(self, prepared: PreparedData, split: str, damaged: Literal["stop", "skip"] = "stop"):
        """Raises RunError if the set lacks the split.

        `damaged` decides what happens at a record that can't be read: "stop" raises an error, "skip" warns and goes on.
        """
        self.prepared, self.directory, self.split = prepared, prepared.directory, split
        self._skips = damaged == "skip"
        if split not in prepared.records:
            raise RunError(f"{self.directory} holds no prepared records of the split {split}; prepare it again")
        self._dtype, self._packed = np.dtype(prepared.ids_type).type, prepared.packed
        self._starts = [0, *itertools.accumulate(prepared.records[split])]
        self._readers: dict[int, ShardReader] = {}
        self._skipped: set[str] = set()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._starts[-1]

    def read(self, numbers: Sequence[int]) -> Instances:
        """Reads the instances with these record numbers, in this order. A skipped record becomes an empty instance.

        Raises RunError if a record is damaged and damaged records aren't skipped.
        """
        with self._lock:
            records = [self._record(number) for number in numbers]
        try:
            return decode_instances(records, self._dtype, self._packed)
        except ValueError as error:
            raise RunError(
                f"{self.directory} holds other records than were written there ({error}); delete it and give the same "
                "command again to prepare it anew"
            ) from error

    def _record(self, number: int) -> bytes:
        # Reading takes 5 microseconds per record here; TFDS' data source, which starts threads at each call, takes 80.
        shard = bisect.bisect_right(self._starts, number) - 1
        begin = self._starts[shard]
        if shard not in self._readers:
            path = shard_path(self.directory, self.split, shard)
            try:
                self._readers[shard] = ShardReader(path, self._starts[shard + 1] - begin)
            except (OSError, RuntimeError, ValueError) as error:
                return self._damaged(f"{path} is damaged or gone ({first_line(error)})", error)
        try:
            return self._readers[shard].read(number - begin)
        except (OSError, RuntimeError, ValueError, IndexError) as error:
            del self._readers[shard]  # after an error this reader would fail for all other records, too
            path = shard_path(self.directory, self.split, shard)
            what = f"{path}: record {number - begin} (record {number} of {self.split}) is damaged"
            return self._damaged(f"{what} ({first_line(error)})", error)

    def _damaged(self, what: str, error: Exception) -> bytes:
        """Returns an empty record in place of a skipped one, and warns once per record.

        Raises RunError if none may be skipped.
        """
        if not self._skips:
            raise RunError(
                f"{what}; delete {self.directory} and give the same command again to prepare it anew, or go on without "
                "what is damaged: --input.damaged-records skip"
            ) from error
        if what not in self._skipped:
            self._skipped.add(what)
            warn(f"{what}; it is skipped")
        nothing = _NO_TOKENS._replace(rows=np.zeros(1, int)) if self._packed else _NO_TOKENS
        return next(encode_instances(nothing, self._dtype))


def encode_instances(instances: Instances, dtype: type[np.integer]) -> Iterator[bytes]:
    """Yields a serialized TF Example per row, with piece ids of type `dtype`.

    If rows hold several sequences, each feature is a byte string with the values of all sequences of the row. The
    feature `length` has their numbers of tokens.
    """
    kinds = _ONE if instances.rows is None else _SEVERAL
    example = tf_example_pb2.Example()
    # One message serves all records, since looking up a feature takes longer than setting its value.
    lists = [getattr(example.features.feature[name], kind).value for name, kind in kinds.items()]
    for values, kind in zip(lists, kinds.values(), strict=True):
        values.append(0 if kind == "int64_list" else b"")
    for row in zip(*_columns(instances, dtype), strict=True):
        for values, value in zip(lists, row, strict=True):
            values[0] = value
        yield example.SerializeToString(deterministic=True)


def _columns(instances: Instances, dtype: type[np.integer]) -> list[Sequence[int | bytes]]:
    """The values of all rows for each feature, in the order of the table of features."""
    ends = instances.ends[instances.row_ends]
    tokens = [_cut(instances.ids.astype(dtype), ends), _cut(instances.units, ends)]
    numbers = [instances.first_length, instances.pair_label]
    if instances.rows is None:
        return [*(values.tolist() for values in numbers), *tokens]
    lists = [*numbers, np.diff(instances.ends)]
    return [*(_cut(values.astype(_NUMBER), instances.row_ends) for values in lists), *tokens]


def _cut(values: Shaped[np.ndarray, " n"], ends: Int[np.ndarray, " m"]) -> list[bytes]:
    """The bytes of the values of each row."""
    content, offsets = values.tobytes(), (ends * values.itemsize).tolist()
    return [content[begin:end] for begin, end in pairwise(offsets)]


def decode_instances(records: Sequence[bytes], dtype: type[np.integer], packed: bool = False) -> Instances:
    """Decodes records of `encode_instances`. Features may be in any order; unknown features are ignored.

    `packed`: whether a record holds several sequences. Raises ValueError if a record is malformed, or if its fields are
    inconsistent.
    """
    first_length, pair_label, *length, ids, units = _decoded(_SEVERAL if packed else _ONE, records)
    sizes, rows = np.array([*map(len, units)], int), None
    if packed:
        first_lengths, labels, lengths = map(_joined_numbers, (first_length, pair_label, *length))
        counts = [len(part) for part in length[0]]
        if any([*map(len, part)] != counts for part in (first_length, pair_label)):
            raise ValueError("a record has numbers for more sequences than it has lengths, or fewer")
        rows = np.repeat(np.arange(len(records)), np.array(counts, int) // _NUMBER.itemsize)
        if (lengths < 0).any() or (np.bincount(rows, lengths, len(records)) != sizes).any():
            raise ValueError("a record's sequences have another length than its units")
    else:
        first_lengths, labels, lengths = _numbers(first_length), _numbers(pair_label), sizes
    if (sizes * np.dtype(dtype).itemsize != [*map(len, ids)]).any():
        raise ValueError("a record has another number of ids than of units")
    if (first_lengths > lengths).any():
        raise ValueError("a record has a first_length beyond its end")
    return Instances(
        np.frombuffer(b"".join(ids), dtype),
        np.frombuffer(b"".join(units), np.uint8),
        np.concatenate([[0], np.cumsum(lengths)]),
        first_lengths,
        labels,
        rows,
    )


def _decoded(kinds: dict[str, str], records: Sequence[bytes]) -> list[Sequence[Any]]:
    """The values of all records, for each feature in `kinds`. Raises ValueError if a record is malformed."""
    rows = []
    for record in records:
        try:
            features = tf_example_pb2.Example.FromString(record).features.feature
        except DecodeError as error:
            raise ValueError(f"a record is no TF Example: {error}") from None
        lists = [getattr(features[name], kind).value for name, kind in kinds.items()]
        for name, values in zip(kinds, lists, strict=True):
            if len(values) != 1:
                raise ValueError(f"a record has {len(values)} values of {name} and should have one")
        rows.append([values[0] for values in lists])
    return list(zip(*rows, strict=True)) or [()] * len(kinds)


def _numbers(values: Sequence[int]) -> Int[np.ndarray, " n"]:
    """The numbers as int32. Raises ValueError if one isn't from 0 to 2^31 - 1."""
    numbers = np.array(values, np.int64)
    if wrong := numbers[(numbers < 0) | (numbers > _MOST_NUMBER)].tolist():
        raise ValueError(f"a record has {wrong[0]:,} for a number")
    return numbers.astype(np.int32)


def _joined_numbers(lists: Sequence[bytes]) -> Int[np.ndarray, " n"]:
    """The numbers of all lists. Raises ValueError if one ends within a number."""
    if any(len(part) % _NUMBER.itemsize for part in lists):
        raise ValueError("a record has a broken list of numbers")
    return np.frombuffer(b"".join(lists), _NUMBER).astype(np.int32)
