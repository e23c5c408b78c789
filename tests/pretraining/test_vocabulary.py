"""The tokenizer of a run: trained, read from a file, and trained again."""

import shutil

import numpy as np
import pytest
from conftest import stories

import bert_jax
from bert_jax.config.data import VocabularyConfig
from bert_jax.config.training import Phase
from bert_jax.instances import chunk_worker
from bert_jax.instances.prepared_data import PreparedData
from bert_jax.instances.shards import InstanceSource
from bert_jax.layout import WORD_START
from bert_jax.pretraining import dataset
from bert_jax.pretraining import vocabulary as vocabulary_step
from bert_jax.pretraining.evaluation import evaluate_run
from bert_jax.pretraining.inspection import training_step
from bert_jax.pretraining.pretrain import pretrain
from bert_jax.run.opened_models import OpenedModels
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.run_files import RunFiles
from bert_jax.system.errors import UsageError
from bert_jax.text.tokenizer import load_tokenizer
from bert_jax.text.vocabulary import SPECIAL_PIECES, Vocabulary
from bert_jax.text.wordpiece import WordPieceTokenizer


def made_tokenizer(config, run):
    return vocabulary_step.make_tokenizer(config, run, vocabulary_step.existing_tokenizer(config, OpenedModels())[0])


def test_another_kind_leaves_nothing_of_the_one_before(tiny_config, tmp_path):
    run = RunDirectory(tmp_path)
    for kind, name in (("wordpiece", "vocab.txt"), ("bpe", "tokenizer.model")):
        config = tiny_config.replace(vocabulary=VocabularyConfig(kind=kind, size=100))
        assert vocabulary_step.make_tokenizer(config, run).kind == kind
        assert {path.name for path in run.tokenizer_directory.iterdir()} == {
            name,
            "tokenizer_config.json",
            "origin.json",
        }


def test_a_published_vocabulary_is_read_again_if_any_of_its_files_changed(tiny_config, tmp_path):
    folder = tmp_path / "published"
    folder.mkdir()
    for name in ("spiece.model", "merges.txt", "vocab.json", "added_tokens.json"):
        (folder / name).write_text("one")
    for given in (folder, folder / "vocab.json"):
        config = tiny_config.replace(vocabulary=VocabularyConfig(file=str(given)))
        for name in ("spiece.model", "merges.txt", "added_tokens.json") if given == folder else ("merges.txt",):
            before = vocabulary_step._content(config)
            (folder / name).write_text(f"{given} other")
            assert vocabulary_step._content(config) != before


def test_a_given_vocabulary_is_used_as_it_is_and_read_again_if_it_was_changed(
    tiny_run, tiny_config, tmp_path, monkeypatch
):
    monkeypatch.setattr(vocabulary_step, "train_tokenizer", None)
    given, run = tmp_path / "vocab.txt", RunDirectory(tmp_path / "run")
    shutil.copy(tiny_run.tokenizer_directory / "vocab.txt", given)
    config = tiny_config.replace(vocabulary=VocabularyConfig(file=str(given), lowercase=False))
    made = made_tokenizer(config, run)
    assert made.vocabulary.pieces == load_tokenizer(tiny_run.tokenizer_directory).vocabulary.pieces
    assert not made.cleaning.lowercase
    given.write_text(given.read_text() + "additional\n")
    assert len(made_tokenizer(config, run).vocabulary) == 151


def test_the_class_token_is_where_the_model_has_it(tiny_run, tiny_config, tmp_path):
    last = tiny_config.set({"model.class_token": "last"})
    run, given = RunDirectory(tmp_path), VocabularyConfig(file=str(tiny_run.tokenizer_directory))
    for config in (tiny_config, last, tiny_config, last.replace(vocabulary=given)):
        made = made_tokenizer(config, run)
        for tokenizer in (made, load_tokenizer(run.path)):
            assert tokenizer.vocabulary.class_token == config.model.class_token
            assert tokenizer.vocabulary.pieces == load_tokenizer(tiny_run.tokenizer_directory).vocabulary.pieces
        chunk_worker.tokenizer_in.cache_clear()  # it keeps one tokenizer a directory
        dataset.prepare_lengths(config, run)
        stored = InstanceSource(PreparedData.unchecked(run.data(32)), "train").read(range(20))
        places = stored.ends[:-1] if config == tiny_config else stored.ends[1:] - 1
        assert {*stored.ids[places].tolist()} == {made.vocabulary.cls_id}
        assert np.count_nonzero(stored.ids == made.vocabulary.cls_id) == 20


@pytest.mark.parametrize(
    ("language", "text", "words"),
    [
        (("tr", "de"), "Isparta ılık kitap", "data.language has tr, and the vocabulary lower-cases I to i, not to ı"),
        (("tr", "az"), "Isparta ılık kitap", None),
        (("th", "th"), "ภาษาไทย" * 60, "% of the characters are in long stretches without spaces"),
    ],
)
def test_what_a_vocabulary_does_to_a_language_is_said(tiny_config, tmp_path, capsys, language, text, words):
    for name in "ab":
        (tmp_path / name).write_text("\n\n".join(f"{text} {number % 10}" for number in range(20)))
    data = {"source": (f"text:{tmp_path / 'a'}", f"text:{tmp_path / 'b'}"), "language": language, "held_out": 0.0}
    config = tiny_config.change(data=data, vocabulary={"size": 50})
    made = vocabulary_step.make_tokenizer(config, RunDirectory(tmp_path / "run"))
    said = capsys.readouterr().err
    assert words in said if words else "WARNING" not in said
    assert made.cleaning.turkish == (language == ("tr", "az"))


def test_no_text_gives_no_vocabulary_and_no_traceback():
    with pytest.raises(UsageError):
        vocabulary_step.learned_tokenizer([], VocabularyConfig(size=200, lowercase=False))


@pytest.mark.parametrize("capitals", ["", "O"])
def test_a_text_with_hardly_any_capitals_gives_a_vocabulary_that_knows_other_texts(capitals, capsys):
    """Coptic editions have small letters and a handful of capitals."""
    texts = stories(60).lower().split("\n\n")
    texts[0] += capitals
    made = vocabulary_step.learned_tokenizer(texts, VocabularyConfig(size=200, lowercase=False))
    assert made.encode("The Old House") == made.encode("the old house")
    assert "hardly any capitals" in capsys.readouterr().err
    accents = VocabularyConfig(size=200, lowercase=False, strip_accents=None)
    assert "é" in vocabulary_step.learned_tokenizer([*texts, "é é é"], accents).cleaned("É")
    cased = vocabulary_step.learned_tokenizer([*texts, *["The"] * 60], VocabularyConfig(size=200, lowercase=False))
    assert cased.encode("The") != cased.encode("the")


def test_changed_text_makes_vocabulary_and_data_anew_until_training_begins(tiny_config, tmp_path, monkeypatch):
    text = tmp_path / "text.txt"
    text.write_text(stories(100))
    config, run = tiny_config.replace(data=tiny_config.data.replace(source=f"text:{text}")), RunDirectory(tmp_path)
    made = []

    def prepare():
        with monkeypatch.context() as counting:
            train_tokenizer, prepare_data = vocabulary_step.train_tokenizer, dataset.prepare
            trained = lambda *given, **named: made.append("v") or train_tokenizer(*given, **named)
            counting.setattr(vocabulary_step, "train_tokenizer", trained)
            counting.setattr(dataset, "prepare", lambda *a: made.append("d") or prepare_data(*a))
            vocabulary_step.make_tokenizer(config, run)
            return dataset.prepare_lengths(config, run)[32]

    first = prepare()
    assert prepare() == first and made == ["v", "d"]
    text.write_text(stories(101))
    assert prepare().train.documents == first.train.documents + 1 and made == ["v", "d"] * 2
    text.unlink()  # as where the data was prepared on another machine
    assert prepare().train.documents == first.train.documents + 1 and made == ["v", "d"] * 2


def test_a_vocabulary_is_trained_on_the_sources_at_their_weights(tiny_config, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text(stories(100))
    (tmp_path / "b.txt").write_text("\n\n".join(f"zzzz {number}" for number in range(100)))
    sources = tuple(f"text:{tmp_path / name}.txt" for name in "ab")
    seen = []
    noted = lambda texts, *_, **__: seen.append(texts) or WordPieceTokenizer(Vocabulary(SPECIAL_PIECES))
    monkeypatch.setattr(vocabulary_step, "train_tokenizer", noted)
    for weights in (None, (1, 1)):
        config = tiny_config.replace(data=tiny_config.data.replace(source=sources, weights=weights))
        vocabulary_step._train(config, RunDirectory(tmp_path / "run"))
    shares = [sum(len(text) for text in texts if "zzzz" in text) / sum(map(len, texts)) for texts in seen]
    assert shares[0] < 0.05 and shares[1] == pytest.approx(0.5, abs=0.01)


@pytest.fixture(scope="module", params=[("unigram", 85), ("byte_bpe", 300)], ids=lambda param: param[0])
def run_of_kind(request, tiny_config, tmp_path_factory):
    """A run over a vocabulary that marks the beginnings of words, with whole-word masking."""
    kind, size = request.param
    run = RunDirectory(tmp_path_factory.mktemp(kind))
    vocabulary = VocabularyConfig(kind=kind, size=size)
    objective = tiny_config.objective.replace(units="word")
    phases = (Phase(steps=2, length=32, batch_size=8),)
    pretrain(tiny_config.replace(vocabulary=vocabulary, objective=objective, phases=phases), run)
    return run


@pytest.mark.long
def test_such_a_vocabulary_serves_the_whole_job(run_of_kind):
    bert, asked = bert_jax.load(run_of_kind.path), RunFiles(run_of_kind.path).config.vocabulary
    assert (bert.tokenizer.kind, len(bert.tokenizer.vocabulary)) == (asked.kind, asked.size)
    best = bert.fill_mask("The old [MASK] sees the [MASK].")[1][0][0]
    assert {best, best.replace("▁", "Ġ")} & bert.tokenizer.vocabulary.ids.keys()
    files = {bert.tokenizer.file_name, "tokenizer_config.json", "origin.json"}
    assert {path.name for path in run_of_kind.tokenizer_directory.iterdir()} == files
    assert evaluate_run(run_of_kind).held_out_sequences


@pytest.mark.long
def test_its_words_are_masked_whole(run_of_kind):
    seen = training_step(run_of_kind, 1)
    tokenizer, batch, targets = seen.tokenizer, seen.batch, seen.targets
    several = 0
    for row, length in enumerate(batch.tokens.length[:, 0]):
        ids, units = batch.tokens.ids[row, :length], batch.tokens.units[row, :length]
        starts = tokenizer.starts_word[ids] | (units & WORD_START > 0)
        word = np.cumsum(starts)
        chosen = targets.masked.places[row][targets.masked.weights[row] > 0].tolist()
        for number in set(word[chosen]):
            whole = np.flatnonzero(word == number).tolist()
            several += len(whole) > 1
            assert set(whole) <= set(chosen)
    assert several
