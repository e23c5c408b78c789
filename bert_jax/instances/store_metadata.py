"""Writes the TFDS metadata of a prepared data set, with which other programs read it by `tfds.builder_from_directory`.

This program doesn't read them: TFDS imports whatever classes features.json names.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds

FEATURES_FILE, INFO_FILE = "features.json", "dataset_info.json"
_TEMPLATE = "{SPLIT}-{SHARD_INDEX}.{FILEFORMAT}"
"""Shard names without a total, since shards are written before their number is known."""
_DATASET = "bert_instances"


def write_metadata(
    directory: Path, shard_lengths: Mapping[str, Sequence[int]], dtype: type[np.integer], packed: bool = False
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
