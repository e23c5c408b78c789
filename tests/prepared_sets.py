"""Prepared data sets, made and compared."""

from unittest.mock import Mock

import pytest

from bert_jax.config.operation import PreparationConfig
from bert_jax.instances import preparation
from bert_jax.instances.preparation import prepare
from bert_jax.instances.prepared_data import PreparedData, write_metadata
from bert_jax.instances.shards import InstanceSource
from bert_jax.instances.statistics import Statistics
from bert_jax.records.corpus import open_corpus


def files(directory):
    """Every file's content by its path."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def build(recipe, directory, processes=1):
    """Prepares the text that `recipe` names."""
    (made,) = prepare(open_corpus(recipe.data), {directory: recipe}, PreparationConfig(processes=processes))
    return made


def read_all(directory, split="train"):
    """All instances of a split."""
    source = InstanceSource(PreparedData.unchecked(directory), split)
    return source.read(range(len(source)))


def prepare_chunks(recipe, directory):
    """Prepares all chunks and stops there, as at Ctrl-C."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(preparation, "separate_held_out", Mock(side_effect=KeyboardInterrupt))
        build(recipe, directory)


def seal(directory, records, dtype):
    """Makes a data set of the shards in `directory`, which hold these numbers of records by split."""
    write_metadata(directory, records, dtype)
    train, held_out = (Statistics(rows=sum(records.get(split, []))) for split in ("train", "held_out"))
    unknown = dict.fromkeys(("fingerprint", "corpus", "revision", "text"), "")
    PreparedData(
        directory=directory,
        length=64,
        **unknown,
        train=train,
        of_sources=[train],
        held_out=held_out,
        held_out_dropped=0,
        ids_type=dtype.__name__,
        packed=False,
        records=records,
        example_sentences=[],
    ).save()
