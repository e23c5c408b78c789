"""A prepared data set in TFDS format: its metadata, and its instances by number. No TensorFlow is imported."""

import bisect
import itertools
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds

from bert_jax.data.instances import Instances
from bert_jax.data.records import decode_instances
from bert_jax.data.shards import ShardReader, shard_path
from bert_jax.system.errors import RunError

_TEMPLATE = "{SPLIT}-{SHARD_INDEX}.{FILEFORMAT}"
"""Shard names without a total, since a shard is final before anybody knows how many there will be."""
_DATASET = "bert_instances"


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
    """One split of a prepared data set, by record number. Threads may share it."""

    def __init__(self, directory: Path, split: str):
        """Raises RunError where the metadata are damaged."""
        self.directory, self.split = directory, split
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
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._starts[-1]

    def read(self, numbers: Sequence[int]) -> Instances:
        """The instances of these numbers, in their order. Raises RunError for a damaged file."""
        try:
            with self._lock:
                records = [self._record(number) for number in numbers]
            return decode_instances(records, self._dtype)
        except Exception as error:  # the readers underneath raise ValueError, RuntimeError, IndexError
            raise RunError(
                f"{self.directory}: can't read {self.split} records {min(numbers)} to {max(numbers)}, a file is "
                f"damaged ({_first_line(error)}); delete {self.directory} and give the same command again to prepare "
                "it anew"
            ) from error

    def _record(self, number: int) -> bytes:
        # TFDS' own data source starts a pool of threads at each call: 80 microseconds a record of a batch, here 5.
        shard = bisect.bisect_right(self._starts, number) - 1
        if shard not in self._readers:
            records = self._starts[shard + 1] - self._starts[shard]
            self._readers[shard] = ShardReader(shard_path(self.directory, self.split, shard), records)
        return self._readers[shard].read(number - self._starts[shard])


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
