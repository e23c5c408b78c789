"""Figures of a sample's preparation against those of the whole preparation."""

from collections import Counter

import pytest
from conftest import story

from bert_jax.instances.held_out import is_held_out
from bert_jax.pretraining.dataset import prepare_lengths
from bert_jax.pretraining.sample_preparation import prepare_sample
from bert_jax.pretraining.vocabulary import learned_tokenizer, make_tokenizer
from bert_jax.records.corpus import open_corpus
from bert_jax.records.sample import SpreadSample, read_sample
from bert_jax.run.opened_models import OpenedModels
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.errors import UsageError


@pytest.fixture(scope="module")
def sample(tiny_config):
    (source,) = open_corpus(tiny_config.data).parts
    found = read_sample(source)
    assert found.has_all
    return found


@pytest.fixture(scope="module")
def given(tiny_config, tiny_run):
    return tiny_config.change(
        vocabulary={"file": str(tiny_run.tokenizer_directory / "vocab.txt"), "strip_accents": "cased"}
    )


def in_memory(*documents, share=1.0):
    return SpreadSample(list(documents), len(documents), 1000, Counter(), share, 1.0, "")


def cut_of(prepared, length, packed):
    return next(cut for cut in prepared.cuts if (cut.length, cut.packed) == (length, packed))


@pytest.mark.parametrize("packed", [False, True])
def test_a_sample_of_all_documents_gives_the_figures_of_the_preparation(given, sample, tmp_path, packed):
    config = given.change(data={"packed": packed, "short_sequence_probability": 0.9 if packed else 0.0})
    run = RunDirectory(tmp_path / "run")
    run.open(config)
    make_tokenizer(config, run)
    real = prepare_lengths(config, run)[32].train
    found = prepare_sample(sample, config, OpenedModels())
    assert (found.sentences, found.tokens) == (real.sentences, real.tokens)
    assert found.words == sum(len(line.split()) for document in sample.documents for line in document)
    assert found.pieces[0].unknown == real.unknown_share
    cut = cut_of(found, 32, packed)
    assert (cut.sequences, cut.rows, cut.tokens) == (real.instances, real.rows, real.instance_tokens)
    assert (cut.padding, cut.random_pairs) == (1 - real.fill(32), real.random_pairs / real.instances)
    assert found.time.shard_bytes == sum(file.stat().st_size for file in run.data(32).glob("train*.array_record"))
    assert found.time.work_seconds > sample.seconds


def test_a_part_of_a_source_stands_for_the_whole(given, sample):
    given = given.change(data={"held_out": 0.0})
    whole = cut_of(prepare_sample(sample, given, OpenedModels()), 32, False)
    part = SpreadSample(sample.documents, sample.number, sample.bytes, Counter(), 0.5, sample.seconds, "")
    half = cut_of(prepare_sample(part, given, OpenedModels()), 32, False)
    assert half.sequences == pytest.approx(2 * whole.sequences, rel=0.04)
    assert half.padding == pytest.approx(whole.padding, abs=0.02)


def test_other_lengths_are_tried_and_a_given_vocabulary_beside_one_of_the_text(given, sample):
    found = prepare_sample(sample, given, OpenedModels())
    expected = [(length, packed) for length in (32, 128, 512) for packed in (False, True)]
    assert [(cut.length, cut.packed) for cut in found.cuts] == expected
    assert [(each.vocabulary, each.pieces) for each in found.pieces] == [("given", 150), ("trained on this text", 150)]
    assert found.time.vocabulary_seconds == 0 and found.vocabulary_size is None


def test_a_vocabulary_that_the_text_cannot_give_is_made_smaller_or_larger(tiny_config, sample):
    found = prepare_sample(sample, tiny_config.change(vocabulary={"size": 8000}), OpenedModels())
    assert found.vocabulary_size == found.pieces[0].pieces == 283 and found.time.vocabulary_seconds > 0
    config = tiny_config.change(vocabulary={"size": 45})
    with pytest.raises(UsageError, match="less than the .* pieces that the text's characters need"):
        learned_tokenizer([line for document in sample.documents for line in document], config.vocabulary)
    found = prepare_sample(sample, config, OpenedModels())
    assert found.vocabulary_size == found.pieces[0].pieces == 140


@pytest.mark.parametrize("share, purpose", [(1.0, " for training"), (0.5, "")])
def test_too_little_text_is_told(given, sample, share, purpose):
    few = in_memory(sample.documents[0], share=share)
    with pytest.raises(UsageError, match=f"holds 1 document{purpose} and next sentence prediction needs two"):
        prepare_sample(few, given, OpenedModels())


def test_a_document_that_would_be_held_out_is_prepared(tiny_config):
    document = next(lines for seed in range(99) if is_held_out(lines := story(seed, 40), 0.3))
    config = tiny_config.change(data={"held_out": 0.3}, objective={"pair": "none"}, vocabulary={"size": 60})
    found = prepare_sample(in_memory(document), config, OpenedModels())
    assert found.sentences > 5 and found.pieces[0].pieces > 20
