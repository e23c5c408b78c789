"""A prepared data set in TFDS format: its metadata, and its instances by number. No TensorFlow is imported."""

import bisect
import itertools
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import tensorflow_datasets as tfds

from bert_jax.data.instances import Instances
from bert_jax.data.records import decode_instances, encode_instances
from bert_jax.data.shards import ShardReader, shard_path
from bert_jax.system.errors import RunError
from bert_jax.system.progress import say

_TEMPLATE = "{SPLIT}-{SHARD_INDEX}.{FILEFORMAT}"
"""Shard names without a total, since a shard is final before anybody knows how many there will be."""
_DATASET = "bert_instances"
_NO_TOKENS = Instances(np.zeros(0, int), np.zeros(0, np.uint8), np.zeros(2, int), np.zeros(1, int), np.zeros(1, int))
"""What stands for a record that is skipped."""


def write_metadata(directory: Path, shard_lengths: dict[str, Sequence[int]], dtype: type[np.integer]) -> None:
    """Makes `directory` a data set that `tfds.builder_from_directory` reads.

    `shard_lengths`: records a shard, by split.
    """
    features = tfds.features.FeaturesDict(
        {
            "ids": tfds.features.Tensor(shape=(None,), dtype=dtype, encoding="bytes"),
            "units": tfds.features.Tensor(shape=(None,), dtype=np.uint8, encoding="bytes"),
            "first_length": tfds.features.Scalar(np.int32),
            "pair_label": tfds.features.Scalar(np.int32),
        }
    )
    template = tfds.core.ShardedFileTemplate(
        directory, template=_TEMPLATE, dataset_name=_DATASET, filetype_suffix="array_record"
    )
    splits = [
        tfds.core.SplitInfo(name=split, shard_lengths=list(lengths), num_bytes=0, filename_template=template)
        for split, lengths in shard_lengths.items()
    ]
    tfds.folder_dataset.write_metadata(
        data_dir=directory,
        features=features,
        split_infos=splits,
        filename_template=template,
        check_data=False,
        description="Unmasked instances for BERT pretraining",
    )


class InstanceSource:
    """One split of a prepared data set, by record number. Threads may share it.

    Each record is checked as it is read, by the checksum that ArrayRecord keeps of it.
    """

    def __init__(self, directory: Path, split: str, damaged: Literal["stop", "skip"] = "stop"):
        """`damaged`: what a record that can't be read does. Raises RunError where the metadata are damaged."""
        self.directory, self.split = directory, split
        self._skips = damaged == "skip"
        try:
            info = tfds.builder_from_directory(directory).info
            self._dtype = info.features["ids"].np_dtype.type
            lengths = info.splits[split].shard_lengths
        except Exception as error:  # JSON's, protobuf's, TFDS' own
            raise RunError(
                f"{directory}: its metadata are damaged ({_first_line(error)}); delete {directory} and give the same "
                "command again to prepare it anew"
            ) from error
        self._starts = [0, *itertools.accumulate(lengths)]
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
                return self._damaged(f"{path} is damaged or gone ({_first_line(error)})", error)
        try:
            return self._readers[shard].read(number - begin)
        except (OSError, RuntimeError, ValueError, IndexError) as error:
            del self._readers[shard]  # it would fail for every other record as well
            what = f"{path}: record {number - begin} (record {number} of {self.split}) is damaged"
            return self._damaged(f"{what} ({_first_line(error)})", error)

    def _damaged(self, what: str, error: Exception) -> bytes:
        """An empty record for one that is skipped, which is said once."""
        if not self._skips:
            raise RunError(
                f"{what}; delete {self.directory} and give the same command again to prepare it anew, or go on without "
                "what is damaged: --input.damaged-records skip"
            ) from error
        if what not in self._skipped:
            self._skipped.add(what)
            say(f"WARNING: {what}; it is skipped")
        return next(encode_instances(_NO_TOKENS, self._dtype))


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
