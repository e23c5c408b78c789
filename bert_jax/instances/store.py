"""The instances of a prepared data set by number. No TensorFlow is imported, and nothing that the set names."""

import bisect
import itertools
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from bert_jax.instances.damage import damage_error, first_line
from bert_jax.instances.instances import Instances
from bert_jax.instances.records import decode_instances, encode_instances
from bert_jax.instances.shards import ShardReader, shard_path
from bert_jax.instances.store_metadata import INFO_FILE, StoreMetadata
from bert_jax.system.errors import RunError
from bert_jax.system.progress import warn

_NO_TOKENS = Instances(np.zeros(0, int), np.zeros(0, np.uint8), np.zeros(2, int), np.zeros(1, int), np.zeros(1, int))
"""What stands for a record that is skipped."""


class InstanceSource:
    """One split of a prepared data set, by record number. Threads may share it.

    Each record is checked as it is read, by the checksum that ArrayRecord keeps of it.
    """

    def __init__(self, directory: Path, split: str, damaged: Literal["stop", "skip"] = "stop"):
        """`damaged`: what a record that can't be read does. Raises RunError where the metadata are damaged."""
        self.directory, self.split = directory, split
        self._skips = damaged == "skip"
        metadata = StoreMetadata.read(directory)
        if split not in metadata.shard_lengths:
            raise damage_error(directory / INFO_FILE, f"it lacks the split {split}")
        self._dtype = metadata.dtype
        self._starts = [0, *itertools.accumulate(metadata.shard_lengths[split])]
        self._readers: dict[int, ShardReader] = {}
        self._skipped: set[str] = set()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._starts[-1]

    def read(self, numbers: Sequence[int]) -> Instances:
        """The instances of these numbers, in their order; without tokens where a damaged record is skipped.

        Raises RunError for a damaged record that isn't.
        """
        with self._lock:
            records = [self._record(number) for number in numbers]
        try:
            return decode_instances(records, self._dtype)
        except ValueError as error:
            raise RunError(
                f"{self.directory} holds other records than were written there ({error}); delete it and give the same "
                "command again to prepare it anew"
            ) from error

    def _record(self, number: int) -> bytes:
        # TFDS' own data source starts a pool of threads at each call: 80 microseconds a record of a batch, here 5.
        shard = bisect.bisect_right(self._starts, number) - 1
        path, begin = shard_path(self.directory, self.split, shard), self._starts[shard]
        if shard not in self._readers:
            try:
                self._readers[shard] = ShardReader(path, self._starts[shard + 1] - begin)
            except (OSError, RuntimeError, ValueError) as error:
                return self._damaged(f"{path} is damaged or gone ({first_line(error)})", error)
        try:
            return self._readers[shard].read(number - begin)
        except (OSError, RuntimeError, ValueError, IndexError) as error:
            del self._readers[shard]  # it would fail for every other record as well
            what = f"{path}: record {number - begin} (record {number} of {self.split}) is damaged"
            return self._damaged(f"{what} ({first_line(error)})", error)

    def _damaged(self, what: str, error: Exception) -> bytes:
        """An empty record for one that is skipped, which is said once."""
        if not self._skips:
            raise RunError(
                f"{what}; delete {self.directory} and give the same command again to prepare it anew, or go on without "
                "what is damaged: --input.damaged-records skip"
            ) from error
        if what not in self._skipped:
            self._skipped.add(what)
            warn(f"{what}; it is skipped")
        return next(encode_instances(_NO_TOKENS, self._dtype))
