"""Runs that start from another run's model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import story

from bert_jax.config.data import VocabularyConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.task import TaskConfig
from bert_jax.config.training import Phase
from bert_jax.inference.bert import load
from bert_jax.layout import TokenSequence, lay_out_sequences
from bert_jax.model.bert import BertForPretraining, init, parameter_shapes
from bert_jax.model.sharding import make_mesh
from bert_jax.pretraining.initial import initial_parameters, of_layers, open_initial
from bert_jax.pretraining.objective import expected_vocabulary_size, pretraining_trainer
from bert_jax.pretraining.pretrain import pretrain
from bert_jax.run.checkpoint_manifest import complete
from bert_jax.run.opened_models import OpenedModels
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.errors import UsageError
from bert_jax.text.cleaning import Cleaning
from bert_jax.text.extension import extend
from bert_jax.text.tokenizer import load_tokenizer
from bert_jax.text.vocabulary_training import train_tokenizer

WORDS = ["gardenhouse", "stonebridge"]


@pytest.fixture
def continued(tiny_run, tiny_config):
    """One step from the model of `tiny_run`; its own vocabulary's size plays no part."""
    phases = (Phase(steps=1, length=32, batch_size=8),)
    return tiny_config.replace(init=str(tiny_run.path), phases=phases, vocabulary=VocabularyConfig(size=77))


@pytest.fixture
def longer(tiny_run, tmp_path):
    path = tmp_path / "vocab.txt"
    extend(load_tokenizer(tiny_run.tokenizer_directory), WORDS).tokenizer.write_vocabulary(path)
    return path


def leaves(params):
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(params)}


@pytest.mark.long
def test_a_run_starts_from_the_newest_checkpoint_of_another_with_a_longer_vocabulary_and_the_models_casing(
    continued, longer, tiny_run, tmp_path, capsys
):
    """And starts so again if it has no good checkpoint of its own."""
    still = continued.change(optimizer={"peak_learning_rate": 1e-12})
    still = still.replace(vocabulary=VocabularyConfig(file=str(longer), lowercase=False))
    run = RunDirectory(tmp_path / "run")
    for _ in range(2):
        assert pretrain(still, run).steps == 1
        old, new = leaves(load(tiny_run.path).params), leaves(load(run.path).params)
        for name in old:
            rows = slice(150) if "'word'" in name or name == "['masked_lm']['bias']" else slice(None)
            np.testing.assert_allclose(new[name][rows], old[name][rows], rtol=0, atol=1e-8, err_msg=name)
        tokenizer = load_tokenizer(run.path)
        assert len(tokenizer.vocabulary) == 152 and tokenizer.cleaning.lowercase
        for path in complete(run.checkpoints):
            (path / "config.json").write_text("{}")
    assert "no good checkpoint left (damaged-000000" in capsys.readouterr().err.replace("\n", " ")


def test_the_head_of_a_fine_tuned_model_is_left_out(continued):
    trained = open_initial(continued, OpenedModels())
    head = {"task": {"dense": {"kernel": jnp.zeros((32, 2))}}}

    def read(shardings):
        assert shardings.keys() == trained.shapes.keys() | head.keys()
        return trained.read({name: shardings[name] for name in trained.shapes}) | head

    tuned = trained._replace(shapes={**trained.shapes, **head}, read=read, task=TaskConfig(kind="class"))
    mesh = make_mesh(continued.mesh)
    params = initial_parameters(tuned, continued, trained.tokenizer, mesh)
    trainer = pretraining_trainer(continued, mesh, len(trained.tokenizer.vocabulary))
    assert params.keys() == trained.shapes.keys() == trainer.state_shapes.params.keys()


def test_rows_of_added_pieces_are_means_of_what_they_replace(continued, tiny_run, longer):
    config = continued.replace(vocabulary=VocabularyConfig(file=str(longer)))
    old, new = load_tokenizer(tiny_run.tokenizer_directory), load_tokenizer(longer)
    params = initial_parameters(open_initial(config, OpenedModels()), config, new, make_mesh(config.mesh))
    before, after = load(tiny_run.path).params, params
    word, old_word = after["bert"]["embeddings"]["word"], before["bert"]["embeddings"]["word"]
    assert word.shape[0] == 256 and np.array_equal(word[:150], old_word[:150])
    for number, text in enumerate(WORDS, 150):
        ids = old.encode(text)
        assert len(ids) > 1 and new.encode(text) == [number]
        np.testing.assert_allclose(word[number], old_word[np.array(ids)].mean(axis=0), atol=1e-6)
        bias = before["masked_lm"]["bias"][np.array(ids)].mean()
        assert float(after["masked_lm"]["bias"][number]) == pytest.approx(float(bias), abs=1e-6)
    assert not word[152:].any() and not after["masked_lm"]["bias"][152:].any()
    rest = [name for name in leaves(before) if "word" not in name and name != "['masked_lm']['bias']"]
    assert all(np.array_equal(leaves(before)[name], leaves(after)[name]) for name in rest)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"init": "absent"}, "there is no folder absent here"),
        (
            {"model.num_layers": 3, "model.hidden_size": 64},
            "--model.num-layers is 2 there and 3 here; --model.hidden-size is 32",
        ),
        ({"model.vocabulary_size": 99}, "--model.vocabulary-size=99 and the vocabulary has 150"),
        ({"vocabulary.file": "other.txt"}, "doesn't begin with the old one's pieces: piece 9 is"),
    ],
)
def test_what_does_not_fit_the_model_is_refused_first(continued, longer, tmp_path, monkeypatch, changes, words):
    lines = longer.read_text(encoding="utf-8").splitlines()
    (tmp_path / "other.txt").write_text("\n".join([*lines[:9], *reversed(lines[9:])]), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=words):
        pretrain(continued.set(changes), RunDirectory(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_the_size_of_a_vocabulary_that_is_given_is_known_beforehand(continued, longer, tmp_path):
    assert expected_vocabulary_size(continued, OpenedModels()) == 150
    given = continued.replace(vocabulary=VocabularyConfig(file=str(longer)))
    assert expected_vocabulary_size(given, OpenedModels()) == 152
    texts = [line for seed in range(40) for line in story(seed)]
    train_tokenizer(texts, "unigram", 60, Cleaning()).write_vocabulary(tmp_path / "a.model")
    config = continued.replace(init=None, vocabulary=VocabularyConfig(file=str(tmp_path / "a.model")))
    assert expected_vocabulary_size(config, OpenedModels()) == 60


def test_some_layers_of_a_model_begin_a_smaller_one_bit_for_bit(continued, tiny_run):
    before = leaves(load(tiny_run.path).params)
    for layers in ((1,), (1, 0), (0, 1, 1)):
        config = continued.set({"init_layers": layers})
        assert config.model == continued.model.replace(num_layers=len(layers))
        tokenizer = load_tokenizer(tiny_run.tokenizer_directory)
        initial, mesh = open_initial(config, OpenedModels()), make_mesh(config.mesh)
        after = leaves(initial_parameters(initial, config, tokenizer, mesh))
        assert set(after) == set(before)
        for name, leaf in after.items():
            assert np.array_equal(leaf, before[name][np.array(layers)] if "['layers']" in name else before[name]), name


@pytest.mark.parametrize(
    "settings", [{}, {"num_segments": 1}, {"first_position": 1, "embedding_size": 8}], ids=["two", "one", "narrow"]
)
def test_a_model_without_segments_gives_single_texts_the_vectors_of_one_with_segments(
    settings, continued, tiny_run, capsys, monkeypatch
):
    trained = open_initial(continued, OpenedModels())
    old = trained.config.replace(**settings)
    before = init(old, jax.random.key(1))
    trained = trained._replace(config=old, shapes=parameter_shapes(old), read=lambda shardings: before)
    model = old.replace(num_segments=0, vocabulary_size=None, pooler="relu")
    config = continued.replace(model=model, objective=continued.objective.replace(pair="none"))
    mesh = make_mesh(config.mesh)
    opened = OpenedModels()
    monkeypatch.setattr(opened, "model", lambda name: trained)
    assert open_initial(config, opened) is trained
    began = initial_parameters(trained, config, load_tokenizer(tiny_run.tokenizer_directory), mesh)
    assert "and pooler and head for pairs begin with random values" in " ".join(capsys.readouterr().err.split())
    state = pretraining_trainer(config, mesh, old.vocabulary_size).initial_state(began)
    assert state.params["next_sentence"] and "segment" not in state.params["bert"]["embeddings"]
    tokens = jax.tree.map(jnp.asarray, lay_out_sequences([TokenSequence([2, 9, 11, 3], 4)], (1, 4), pad_id=0))
    first, _ = BertForPretraining(old).apply({"params": before}, tokens)
    sized = config.model.replace(vocabulary_size=old.vocabulary_size)
    second, _ = BertForPretraining(sized).apply({"params": state.params}, tokens)
    np.testing.assert_allclose(first, second, atol=1e-6)


def test_a_discriminator_keeps_its_segments(continued, monkeypatch):
    opened = OpenedModels()
    trained = open_initial(continued, opened)
    trained = trained._replace(config=trained.config.replace(discriminator=True))
    monkeypatch.setattr(opened, "model", lambda name: trained)
    with pytest.raises(UsageError, match="--model.num-segments is 2 there and 0 here"):
        open_initial(continued.set({"objective.pair": "none", "model.num_segments": 0}), opened)


def test_the_first_block_without_a_norm_keeps_its_place():
    config = ModelConfig.modern(vocabulary_size=200, num_layers=4, hidden_size=32, num_heads=2, embedding_norm=True)
    params = init(config, jax.random.key(0))
    stack = params["bert"]["encoder"]["layers"]
    stack["attention_norm"] = jax.tree.map(lambda leaf: leaf + np.arange(1, 4)[:, None], stack["attention_norm"])
    chosen = of_layers(params, config, (0, 3))
    shapes = parameter_shapes(config.replace(num_layers=2))
    assert jax.tree.map(lambda leaf: leaf.shape, chosen) == jax.tree.map(lambda leaf: leaf.shape, shapes)
    of_chosen = chosen["bert"]["encoder"]["layers"]
    assert np.array_equal(of_chosen["attention_norm"]["scale"], stack["attention_norm"]["scale"][2:])
    assert np.array_equal(of_chosen["feedforward_norm"]["scale"], stack["feedforward_norm"]["scale"][::3])
    one = of_layers(params, config, (0,))
    assert jax.tree.structure(one) == jax.tree.structure(parameter_shapes(config.replace(num_layers=1)))


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"init": None}, "--init-layers=.* with --init=None: there is no model whose layers they are; give --init"),
        ({"model.num_layers": 3}, "--init-layers=0 1 names 2 of the layers of --init=.*, and --model.num-layers=3; "),
        ({"init_layers": (0, 2)}, "--init-layers=0 2: .* has 2 layers, numbered from 0 to 1; choose one of them"),
    ],
)
def test_layers_that_a_model_lacks_are_refused(continued, changes, words):
    with pytest.raises(UsageError, match=words) as error:
        open_initial(continued.set({"init_layers": (0, 1)}).set(changes), OpenedModels())
    assert "\n" not in str(error.value)
