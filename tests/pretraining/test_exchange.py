"""A vocabulary in place of a trained model's."""

import jax
import numpy as np
import pytest
from conftest import story
from stages import parameters

from bert_jax.config.data import VocabularyConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.run import RunConfig, prediction_of
from bert_jax.config.training import Phase
from bert_jax.inference.bert import load
from bert_jax.instances.prepared_data import PreparedData
from bert_jax.model.bert import init
from bert_jax.model.sharding import make_mesh
from bert_jax.pretraining import exchange
from bert_jax.pretraining.exchange import combinations
from bert_jax.pretraining.initial import initial_parameters, open_initial
from bert_jax.pretraining.pretrain import pretrain
from bert_jax.pretraining.static_vectors import pursuit, sparsemax
from bert_jax.run.opened_models import OpenedModels
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.trained_model import save_model
from bert_jax.text.cleaning import Cleaning
from bert_jax.text.tokenizer import load_tokenizer
from bert_jax.text.vocabulary_training import train_tokenizer


@pytest.fixture(scope="module")
def other():
    texts = [line for number in range(60) for line in story(number)]
    return train_tokenizer(texts, "bpe", 120, Cleaning.of_training(lowercase=False))


@pytest.fixture(scope="module")
def exchanging(tiny_run, tiny_config):
    phases = (Phase(steps=2, length=32, batch_size=8, trains="words"), Phase(steps=2, length=32, batch_size=8))
    vocabulary = VocabularyConfig(exchange=True, kind="bpe", size=120)
    return tiny_config.replace(init=str(tiny_run.path), phases=phases, vocabulary=vocabulary)


@pytest.fixture(scope="module")
def run(exchanging, tmp_path_factory):
    """`exchanging`, trained to its end."""
    run = RunDirectory(tmp_path_factory.mktemp("exchanged") / "run")
    pretrain(exchanging, run)
    return run


def leaves(params):
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(params)}


@pytest.mark.parametrize("method", ["mean", "random"])
def test_shared_rows_are_kept_and_the_rest_of_the_model_too(exchanging, tiny_run, other, method):
    config = exchanging.change(vocabulary={"initial_rows": method})
    initial = open_initial(config, OpenedModels())
    before = leaves(load(tiny_run.path).params)
    after = leaves(initial_parameters(initial, config, other, make_mesh(config.mesh)))
    rows = combinations(initial.tokenizer, other, method, None)
    kept = np.flatnonzero((rows.coefficients[:, 0] == 1) & (rows.coefficients[:, 1:] == 0).all(axis=1))
    assert len(kept) > 40
    for name in before:
        if "'word'" in name or name == "['masked_lm']['bias']":
            assert np.array_equal(after[name][kept], before[name][rows.numbers[kept, 0]])
            others = np.setdiff1d(np.arange(120), kept)
            assert len(others) and np.isfinite(after[name]).all()
            spread = after[name][others].std() / before[name][:150].std()
            assert 0.3 < spread < 1.7
        else:
            assert np.array_equal(after[name], before[name])


def test_exchanging_a_vocabulary_for_itself_changes_no_bit(exchanging, tiny_run):
    initial = open_initial(exchanging, OpenedModels())
    same = initial_parameters(initial, exchanging, initial.tokenizer, make_mesh(exchanging.mesh))
    before, after = leaves(load(tiny_run.path).params), leaves(same)
    assert all(before[name].tobytes() == after[name].tobytes() for name in before)


GENERATOR = {"discriminator": True, "generator_divisor": 2}


@pytest.mark.parametrize("changes", [{"embedding_size": 16}, GENERATOR], ids=["factorised", "generator"])
def test_every_table_of_a_model_gets_the_rows_of_the_new_vocabulary(exchanging, tiny_run, other, changes, tmp_path):
    """Also a table that is narrower than the model, as ALBERT's, and a generator's."""
    bert = load(tiny_run.path)
    model = bert.config.replace(**changes)
    save_model(tmp_path / "model", model, init(model, jax.random.key(0)), bert.tokenizer, None)
    objective = {"pair": "none", "predict": prediction_of(model)}
    config = exchanging.change(
        init=str(tmp_path / "model"), model=changes, objective=objective, vocabulary={"initial_rows": "mean"}
    )
    initial = open_initial(config, OpenedModels())
    before = leaves(load(tmp_path / "model").params)
    after = leaves(initial_parameters(initial, config, other, make_mesh(config.mesh)))
    rows = combinations(initial.tokenizer, other, "mean", None)
    kept = np.flatnonzero(rows.coefficients[:, 0] == 1)
    tables = [name for name, leaf in before.items() if leaf.shape != after[name].shape]
    assert len(tables) >= 2 and {before[name].shape[1:] for name in tables} > {()}
    for name in tables:
        assert np.array_equal(after[name][kept], before[name][rows.numbers[kept, 0]])


def test_pieces_that_the_old_vocabulary_cannot_spell_begin_at_random(tiny_run, capsys):
    greek = train_tokenizer(["ο παλιός ναός στέκει κοντά στον ποταμό"] * 40, "wordpiece", 50, Cleaning.of_training())
    rows = combinations(load_tokenizer(tiny_run.path), greek, "pursuit", None)
    said = " ".join(capsys.readouterr().err.split())
    assert "no text for static vectors: other rows begin as means" in said and "or at random where none does" in said
    assert 20 < rows.random.sum() == len(greek.vocabulary) - 5


def test_exchanging_there_and_back_keeps_shared_rows(exchanging, tiny_run, other, tmp_path):
    config = exchanging.change(vocabulary={"initial_rows": "mean"})
    initial, mesh = open_initial(config, OpenedModels()), make_mesh(config.mesh)
    there = initial_parameters(initial, config, other, mesh)
    model = initial.config.replace(vocabulary_size=len(other.vocabulary))
    save_model(tmp_path / "there", model, there, other, None)
    returning = open_initial(config.replace(init=str(tmp_path / "there")), OpenedModels())
    back = initial_parameters(returning, config, initial.tokenizer, mesh)["bert"]["embeddings"]["word"]
    before = load(tiny_run.path).params["bert"]["embeddings"]["word"]
    shared = combinations(other, initial.tokenizer, "random", None)
    kept = np.flatnonzero(~shared.random)
    assert len(kept) > 40 and np.array_equal(np.asarray(back)[kept], np.asarray(before)[kept])


@pytest.mark.long
@pytest.mark.parametrize("method", ["pursuit", "mixture"])
def test_static_vectors_combine_the_rows_of_a_run(exchanging, run, method, monkeypatch):
    monkeypatch.setattr("bert_jax.pretraining.static_vectors.FEWEST_TOKENS", 10)
    monkeypatch.setattr(exchange, "_FEWEST_SHARED", 10)
    exchanging = exchanging.change(vocabulary={"initial_rows": method})
    initial, mesh, readings = open_initial(exchanging, OpenedModels()), make_mesh(exchanging.mesh), []
    prepared = PreparedData.open(run.data(32))
    initial_parameters(initial, exchanging, run.files.tokenizer, mesh, prepared, readings.append)
    [reading] = readings
    assert reading.subject in {kept.subject for kept in run.readings()}
    facts = [fact for fact in reading.facts if " of 120" in fact.value]
    assert f"{method} of kept rows" in " ".join(fact.value for fact in facts)
    counts = {fact.name: int(fact.value.split()[0].replace(",", "")) for fact in facts}
    assert counts["kept"] > 40 and counts["combined"] > 10
    assert sum(counts.values()) == 120
    assert any(fact.name == "pieces a word" for fact in reading.facts)


@pytest.mark.long
@pytest.mark.parametrize("step", [2, 3])
def test_frozen_and_free_phases_go_on_bit_for_bit(exchanging, run, resumed, step, capsys):
    assert parameters(resumed(exchanging, step, run).path) == parameters(run.path)
    assert "too few for static vectors" in " ".join(capsys.readouterr().err.split())
    assert load_tokenizer(run.path).kind == "bpe"
    assert load(run.path).config.vocabulary_size == 120


@pytest.mark.long
def test_a_frozen_phase_changes_the_words_and_the_head_alone(run, tiny_run):
    before, after = leaves(load(tiny_run.path).params), leaves(load(run.path, step=2).params)
    same = {name for name, leaf in before.items() if np.array_equal(leaf, after[name])}
    trained = {"['bert']['embeddings']['word']", *(name for name in before if "masked_lm" in name or "next" in name)}
    assert {*before} - same == trained


def test_a_size_beside_init_asks_for_an_exchange(tiny_run):
    config = RunConfig().set({"init": str(tiny_run.path), "vocabulary.size": 300})
    assert config.vocabulary.exchange and config.model.vocabulary_size is None
    assert not RunConfig().set({"vocabulary.size": 300}).vocabulary.exchange


def test_a_recorded_size_is_that_of_the_vocabulary_of_then():
    recorded = RunConfig(model=ModelConfig(vocabulary_size=99))
    assert recorded.set({"vocabulary.file": "vocab.txt"}).model.vocabulary_size is None
    assert recorded.set({"vocabulary.file": "v", "model.vocabulary_size": 98}).model.vocabulary_size == 98
    assert recorded.set({"seed": 5, "vocabulary.file": None}).model.vocabulary_size == 99


def test_sparsemax_projects_onto_the_simplex():
    shares = sparsemax(np.random.default_rng(0).normal(size=(5, 40)))
    assert np.allclose(shares.sum(axis=1), 1) and (shares >= 0).all() and (shares > 0).sum(axis=1).max() < 20


def test_pursuit_finds_the_atoms_that_a_vector_is_made_of():
    rng = np.random.default_rng(1)
    atoms = rng.normal(size=(60, 32)).astype(np.float32)
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    wanted = 2 * atoms[[3, 17]] - 0.5 * atoms[[40, 41]]
    chosen, coefficients = pursuit(wanted, atoms, 4)
    rebuilt = np.einsum("nk,nkd->nd", coefficients, atoms[chosen])
    assert np.abs(rebuilt - wanted).max() < 0.02 and {3, 40} <= {*chosen[0]} and {17, 41} <= {*chosen[1]}


@pytest.mark.long
def test_eight_devices_exchange_and_train_as_one(exchanging, run, check_on_eight):
    check_on_eight(exchanging, run, "loss")
