"""Reads and writes the TFDS metadata of a prepared data set.

The metadata let other programs read the data set by `tfds.builder_from_directory`. This program reads them without
TFDS, because TFDS imports whatever classes features.json names. It only needs the type of the piece ids and the number
of records of each shard.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import tensorflow_datasets as tfds
from pydantic import Field

from bert_jax.instances.checked_files import damage_error
from bert_jax.system.bucket import Place
from bert_jax.system.json_file import Shape, read_shape

FEATURES_FILE, INFO_FILE = "features.json", "dataset_info.json"
_TEMPLATE = "{SPLIT}-{SHARD_INDEX}.{FILEFORMAT}"
"""Shard names without a total, since shards are written before their number is known."""
_DATASET = "bert_instances"


class _Tensor(Shape):
    dtype: Literal["uint16", "int32"]


class _Ids(Shape):
    tensor: _Tensor


class _Features(Shape):
    ids: _Ids
    length: dict[str, Any] | None = None
    """Of records that hold several sequences."""


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
    """The part of the metadata that this program uses."""

    dtype: type[np.integer]
    """Type of the stored piece ids."""
    shard_lengths: dict[str, list[int]]
    """Number of records of each shard, by split."""
    packed: bool
    """Whether a record may hold several sequences."""

    @classmethod
    def read(cls, directory: Place) -> "StoreMetadata":
        """Reads both metadata files in `directory`. Raises RunError if one is damaged or missing."""
        path = directory / FEATURES_FILE
        try:
            features = read_shape(path, _FeaturesFile)
            path = directory / INFO_FILE
            info = read_shape(path, _InfoFile)
        except (OSError, ValueError) as error:
            raise damage_error(path, error) from None
        of_record = features.features_dict.features
        lengths = {split.name: list(map(int, split.shard_lengths)) for split in info.splits}
        return cls(getattr(np, of_record.ids.tensor.dtype), lengths, of_record.length is not None)


def write_metadata(
    directory: Path, shard_lengths: dict[str, Sequence[int]], dtype: type[np.integer], packed: bool = False
) -> None:
    """Writes the metadata with which `tfds.builder_from_directory` reads the data set in `directory`.

    `shard_lengths`: number of records of each shard, by split. `packed`: whether a record may hold several sequences.
    """
    number = tfds.features.Scalar(np.int32)
    numbers = tfds.features.Tensor(shape=(None,), dtype=np.int32, encoding="bytes")
    of_sequences = ("first_length", "pair_label", *(("length",) if packed else ()))
    features = tfds.features.FeaturesDict(
        {
            "ids": tfds.features.Tensor(shape=(None,), dtype=dtype, encoding="bytes"),
            "units": tfds.features.Tensor(shape=(None,), dtype=np.uint8, encoding="bytes"),
            **{name: numbers if packed else number for name in of_sequences},
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
