"""Reads instances of a prepared data set by number, without TensorFlow and without importing what the set names."""

import bisect
import itertools
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from bert_jax.instances.instances import Instances
from bert_jax.instances.prepared_data import PreparedData
from bert_jax.instances.shards import ShardReader, decode_instances, encode_instances, shard_path
from bert_jax.system.errors import RunError, first_line
from bert_jax.system.progress import warn

_NO_TOKENS = Instances(np.zeros(0, int), np.zeros(0, np.uint8), np.zeros(2, int), np.zeros(1, int), np.zeros(1, int))
"""One sequence without tokens, which replaces a skipped record."""


class InstanceSource:
    """Random access to the records of one split of a prepared data set. Thread-safe.

    ArrayRecord verifies the checksum of each record when it is read.
    """

    def __init__(self, directory: Path, split: str, damaged: Literal["stop", "skip"] = "stop"):
        """Reads the set's record. Raises RunError if it is damaged or missing, or lacks the split.

        `damaged` says what happens at a record that can't be read: "stop" raises an error, "skip" warns and goes on.
        """
        self.directory, self.split = directory, split
        self._skips = damaged == "skip"
        prepared = PreparedData.record(directory)
        if prepared is None or split not in prepared.records:
            raise RunError(f"{directory} holds no prepared records of the split {split}; prepare it again")
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
        """The empty record that replaces a skipped one; warns once per record. Raises RunError if none are skipped."""
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
