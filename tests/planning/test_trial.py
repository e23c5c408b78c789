import pytest
from conftest import story

from bert_jax.instances.held_out import is_held_out
from bert_jax.planning.trial import try_preparation
from bert_jax.pretraining.dataset import prepare_lengths
from bert_jax.pretraining.vocabulary import learned_tokenizer, make_tokenizer
from bert_jax.records.corpus import open_corpus
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.errors import UsageError


@pytest.fixture(scope="module")
def documents(tiny_config):
    return list(open_corpus(tiny_config.data).documents())


@pytest.fixture(scope="module")
def given(tiny_config, tiny_run):
    return tiny_config.change(vocabulary={"file": str(tiny_run.tokenizer / "vocab.txt"), "strip_accents": "cased"})


@pytest.mark.parametrize("packed", [False, True])
def test_a_trial_of_all_documents_gives_the_figures_of_the_preparation(given, documents, tmp_path, packed):
    config = given.change(data={"packed": packed, "short_sequence_probability": 0.9 if packed else 0.0})
    run = RunDirectory(tmp_path / "run")
    run.open(config)
    make_tokenizer(config, run)
    real = prepare_lengths(config, run)[32].train
    trial = try_preparation(documents, config, whole=True)
    seen = trial.statistics
    assert (seen.units, seen.unit_sizes, seen.unknown_tokens) == (real.units, real.unit_sizes, real.unknown_tokens)
    cut = next(cut for cut in trial.cuts(1.0) if (cut.length, cut.packed) == (32, packed))
    assert (cut.sequences, cut.rows, cut.tokens) == (real.instances, real.rows, real.instance_tokens)
    assert (cut.padding, cut.random_pairs) == (1 - real.fill(32), real.random_pairs / real.instances)
    of_sample = next(
        cut
        for cut in try_preparation(documents, config, whole=False).cuts(1.0)
        if (cut.length, cut.packed) == (32, packed)
    )
    assert of_sample.sequences == pytest.approx(real.instances, rel=0.04)
    assert of_sample.padding == pytest.approx(1 - real.fill(32), abs=0.02)
    assert trial.shard_bytes == sum(file.stat().st_size for file in run.data(32).glob("train*.array_record"))


def test_other_lengths_are_tried_and_a_given_vocabulary_beside_one_of_the_text(given, documents):
    trial = try_preparation(documents, given, whole=True)
    assert [(cut.length, cut.packed) for cut in trial.cuts(1.0)] == [
        (length, packed) for length in (32, 128, 512) for packed in (False, True)
    ]
    assert [(each.vocabulary, each.pieces) for each in trial.pieces] == [("given", 150), ("trained on this text", 150)]
    doubled = trial.cuts(2.0)[0]
    assert doubled.sequences == pytest.approx(2 * trial.cuts(1.0)[0].sequences, abs=2)
    assert trial.vocabulary_seconds == 0 and trial.vocabulary_size is None


def test_a_vocabulary_that_the_text_cannot_give_is_made_smaller(tiny_config, documents):
    trial = try_preparation(documents, tiny_config.change(vocabulary={"size": 8000}), whole=True)
    assert trial.vocabulary_size == trial.pieces[0].pieces == 283 and trial.vocabulary_seconds > 0


def test_a_vocabulary_with_too_few_pieces_for_the_characters_is_made_larger(tiny_config, documents):
    config = tiny_config.change(vocabulary={"size": 45})
    with pytest.raises(UsageError, match="less than the .* pieces that the text's characters need"):
        learned_tokenizer([line for document in documents for line in document], config.vocabulary)
    trial = try_preparation(documents, config, whole=True)
    assert trial.vocabulary_size == trial.pieces[0].pieces == 140


def test_too_little_text_is_told(given, documents):
    with pytest.raises(UsageError, match="holds 1 document for training and next sentence prediction needs two"):
        try_preparation(documents[:1], given, whole=True)


def test_a_document_that_would_be_held_out_is_tried(given, tiny_config):
    document = next(lines for seed in range(99) if is_held_out(lines := story(seed, 40), 0.3))
    config = tiny_config.change(data={"held_out": 0.3}, objective={"pair": "none"}, vocabulary={"size": 60})
    trial = try_preparation([document], config, whole=True)
    assert trial.statistics.documents == 1 and trial.pieces[0].pieces > 20
