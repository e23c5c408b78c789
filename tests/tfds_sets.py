"""Small TFDS sets, and how they are read."""

import os

import tensorflow_datasets as tfds
from array_record.python.array_record_module import ArrayRecordWriter

from bert_jax.config.data import DataConfig
from bert_jax.records.corpus import open_corpus

LABELS = tfds.features.ClassLabel(names=["no", "yes"])
TEXT = tfds.features.Text()


def write_set(directory, features, shards, file_format="array_record", options="group_size:1"):
    """A TFDS set, as `builder.download_and_prepare` leaves it, with one list of examples a shard."""
    features = tfds.features.FeaturesDict(features)
    directory.mkdir(parents=True)
    files = tfds.core.ShardedFileTemplate(directory, dataset_name="pages", filetype_suffix=file_format)
    for number, examples in enumerate(shards):
        path = files.replace(split="train").sharded_filepath(shard_index=number, num_shards=len(shards))
        writer = ArrayRecordWriter(os.fspath(path), options)
        for example in examples:
            writer.write(features.serialize_example(example))
        writer.close()
    split = tfds.core.SplitInfo("train", [len(shard) for shard in shards], 0, filename_template=files)
    tfds.folder_dataset.write_metadata(
        data_dir=directory, features=features, split_infos=[split], filename_template=files, check_data=False
    )


def read(source, **settings):
    corpus = open_corpus(DataConfig(source=source, **settings))
    return list(corpus.documents()), corpus
