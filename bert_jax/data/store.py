"""Instances on disk: ArrayRecord shards in TFDS format, read back without TensorFlow."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from array_record.python.array_record_module import ArrayRecordWriter
from tensorflow_datasets.core.decode import DeserializeMethod
from tensorflow_datasets.proto import tf_example_pb2

from bert_jax.data.instances import Instance
from bert_jax.system.errors import RunError
from bert_jax.system.files import FULL_DISK, FileSum, replacing

_TEMPLATE = "{SPLIT}-{SHARD_INDEX}.{FILEFORMAT}"
"""Shard names without a total, since a shard is final before anybody knows how many there will be."""
_DATASET = "bert_instances"


def shard_path(directory: Path, split: str, index: int) -> Path:
    """Where shard `index` of `split` lies."""
    return directory / f"{split}-{index:05d}.array_record"


def ids_dtype(vocabulary_size: int) -> type[np.integer]:
    """The smallest type that holds every piece id."""
    return np.uint16 if vocabulary_size <= 1 << 16 else np.int32


def write_shard(path: Path, instances: Iterable[Instance], dtype: type[np.integer]) -> FileSum:
    """Writes one shard atomically and returns its checksum. Raises RunError where the disk is full."""
    with replacing(path) as temporary:
        # One record a group, so that a random record costs reading that one alone.
        writer = ArrayRecordWriter(os.fspath(temporary), "group_size:1")
        try:
            for instance in instances:
                writer.write(_serialise(instance, dtype))
        finally:
            _close(writer)
        return FileSum.of(temporary)


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
    """One split of a prepared data set, by record number."""

    def __init__(self, directory: Path, split: str):
        self.directory, self.split = directory, split
        self._records = []
        try:
            builder = tfds.builder_from_directory(directory)
            self._dtype = builder.info.features["ids"].np_dtype
            if builder.info.splits[split].num_examples:  # TFDS fails on a split without any
                # Its own decoder gave 7,500 records a second, reading the four fields as below 30,000.
                self._records = builder.as_data_source(split, deserialize_method=DeserializeMethod.RAW_BYTES)
        except Exception as error:  # JSON's, protobuf's, TFDS' own
            raise RunError(
                f"{directory}: its metadata are damaged ({_first_line(error)}); delete {directory} and give the same "
                "command again to prepare it anew"
            ) from error

    def __len__(self) -> int:
        return len(self._records)

    def __getitems__(self, numbers: Sequence[int]) -> list[Instance]:
        """The instances of these numbers. Raises RunError for a damaged file."""
        try:
            return [_parse(record, self._dtype) for record in self._records.__getitems__(numbers)]
        except Exception as error:  # the readers underneath raise ValueError, RuntimeError, IndexError, DecodeError
            raise RunError(
                f"{self.directory}: can't read {self.split} records {min(numbers)} to {max(numbers)}, a file is "
                f"damaged ({_first_line(error)}); delete {self.directory} and give the same command again to prepare "
                "it anew"
            ) from error


def _serialise(instance: Instance, dtype: type[np.integer]) -> bytes:
    example = tf_example_pb2.Example()
    feature = example.features.feature
    feature["ids"].bytes_list.value.append(instance.ids.astype(dtype).tobytes())
    feature["units"].bytes_list.value.append(instance.units.tobytes())
    feature["first_length"].int64_list.value.append(instance.first_length)
    feature["pair_label"].int64_list.value.append(instance.pair_label)
    return example.SerializeToString(deterministic=True)


def _parse(record: bytes, dtype: Any) -> Instance:
    feature = tf_example_pb2.Example.FromString(record).features.feature
    return Instance(
        np.frombuffer(feature["ids"].bytes_list.value[0], dtype),
        np.frombuffer(feature["units"].bytes_list.value[0], np.uint8),
        feature["first_length"].int64_list.value[0],
        feature["pair_label"].int64_list.value[0],
    )


def _close(writer: ArrayRecordWriter) -> None:
    """Closes `writer`; a failed write comes to light only here, as a RuntimeError with the system's words."""
    try:
        writer.close()
    except RuntimeError as error:
        for number in FULL_DISK:
            if os.strerror(number) in str(error):
                raise OSError(number, os.strerror(number)) from error
        raise


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
