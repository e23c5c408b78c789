"""The TFDS metadata of a prepared data set.

Everybody may read the set by `tfds.builder_from_directory`. Here the metadata are read without TFDS, which imports
whatever classes features.json names: ours are known, and of the files only the type of the piece ids and the length of
each shard are taken.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
import tensorflow_datasets as tfds
from pydantic import Field

from bert_jax.instances.damage import damage_error
from bert_jax.system.bucket import Place
from bert_jax.system.json_file import Shape, read_shape

FEATURES_FILE, INFO_FILE = "features.json", "dataset_info.json"
_TEMPLATE = "{SPLIT}-{SHARD_INDEX}.{FILEFORMAT}"
"""Shard names without a total, since a shard is final before anybody knows how many there will be."""
_DATASET = "bert_instances"


class _Tensor(Shape):
    dtype: Literal["uint16", "int32"]


class _Ids(Shape):
    tensor: _Tensor


class _Features(Shape):
    ids: _Ids


class _FeaturesDict(Shape):
    features: _Features


class _FeaturesFile(Shape):
    features_dict: _FeaturesDict = Field(alias="featuresDict")


class _Split(Shape):
    name: str
    shard_lengths: list[Annotated[str, Field(pattern=r"^\d{1,15}$")]] = Field([], alias="shardLengths")


class _InfoFile(Shape):
    splits: list[_Split]


class StoreMetadata(NamedTuple):
    """What is read of the metadata."""

    dtype: type[np.integer]
    """Of the stored piece ids."""
    shard_lengths: dict[str, list[int]]
    """Records of each shard, by split."""

    @classmethod
    def read(cls, directory: Place) -> "StoreMetadata":
        """Reads both files. Raises RunError where one is damaged or gone."""
        path = directory / FEATURES_FILE
        try:
            features = read_shape(path, _FeaturesFile)
            path = directory / INFO_FILE
            info = read_shape(path, _InfoFile)
        except (OSError, ValueError) as error:
            raise damage_error(path, error) from None
        dtype = getattr(np, features.features_dict.features.ids.tensor.dtype)
        return cls(dtype, {split.name: list(map(int, split.shard_lengths)) for split in info.splits})


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
