import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bert_jax
from bert_jax.batching.sequences import joined
from bert_jax.config.task import TaskConfig
from bert_jax.inference.bert import Bert
from bert_jax.layout import lay_out_sequences
from bert_jax.model.bert import init
from bert_jax.model.task import PooledEncoder, normalised
from bert_jax.system.errors import UsageError

TEXTS = ["The old cat.", "", "The bright river crosses the broken bridge near the old house number 7.", "dog " * 50]
WIDTH = 32


@pytest.fixture(scope="module")
def bert(vectors_run):
    return bert_jax.load(vectors_run.path)


def trained_with(bert, config, **of_task) -> Bert:
    """A model of random parameters of this config, trained for vectors by these settings."""
    params = {"bert": init(config, jax.random.key(0))["bert"]}
    task = TaskConfig(name="v", kind="vectors", texts=("query", "positive"), **of_task)
    return Bert(config, params, bert.tokenizer, task)


@pytest.mark.parametrize(
    "pool, settings",
    [("mean", {}), ("cls", {}), ("max", {}), ("mean", {"norm": "pre"}), ("cls", {"causal": True})],
    ids=str,
)
@pytest.mark.long(first=1)
def test_vectors_are_those_of_the_encoder_in_training(bert, pool, settings):
    config = bert.config.replace(**settings)
    model = trained_with(bert, config, pool=pool, max_length=16)
    pieces = bert.tokenizer.encode_batch(TEXTS)
    rows = [joined([ids], bert.tokenizer.vocabulary, 16) for ids in pieces]
    tokens = jax.tree.map(jnp.asarray, lay_out_sequences(rows, (len(rows), 16), bert.tokenizer.vocabulary.pad_id))
    expected = normalised(PooledEncoder(config, pool).apply({"params": model.params}, tokens)[:, 0])
    found = model.embed(TEXTS)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=2e-6)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)


@pytest.mark.long
def test_a_width_is_the_first_components_made_unit_vectors(bert, capsys):
    whole = bert.embed(TEXTS)
    for width in (1, 16, WIDTH):
        np.testing.assert_allclose(bert.embed(TEXTS, width), normalised(jnp.asarray(whole), width), atol=2e-6)
    capsys.readouterr()
    for _ in range(2):
        bert.embed(TEXTS[:1], 9)
    assert capsys.readouterr().err.count("the model was not trained for width=9, but for 8, 16, 32") == 1
    bert.embed(TEXTS[:1], 16), bert.embed(TEXTS[:1], WIDTH)
    assert not capsys.readouterr().err


def test_a_model_that_was_not_trained_for_it_says_so_once_and_takes_the_mean(tiny_run, capsys):
    pretrained = bert_jax.load(tiny_run.path)
    found = [pretrained.embed(TEXTS), pretrained.embed(TEXTS)]
    said = capsys.readouterr().err
    assert said.count("the model was not trained for vectors of texts") == 1 and "bert-jax finetune vectors" in said
    pooled = np.stack([one.vectors for one in pretrained.features(TEXTS, [-1], pool="mean")])
    np.testing.assert_allclose(found[0], normalised(jnp.asarray(pooled)), atol=2e-6)
    np.testing.assert_array_equal(*found)


def test_a_stream_has_the_vectors_of_the_list_and_is_read_a_bounded_way_ahead(bert, small_windows):
    read = itertools.count()
    endless = (TEXTS[next(read) % 4] for _ in itertools.repeat(None))
    blocks = list(itertools.islice(bert.embed_stream(endless, 16, batch_size=5), 3))
    assert next(read) < 2 * small_windows / 7
    np.testing.assert_allclose(np.concatenate(blocks), bert.embed([*TEXTS * 3, *TEXTS[:3]], 16), atol=2e-6)
    assert [len(block) for block in bert.embed_stream(TEXTS * 3, 16, batch_size=5)] == [5, 5, 2]
    assert bert.embed([]).shape == (0, WIDTH) and bert.embed(iter(()), 8).shape == (0, 8)
    assert bert.embed([("The cat", "The dog")]).shape == (1, WIDTH)


@pytest.mark.parametrize(
    "settings, words",
    [
        *(({"width": width}, "this model's vectors have 32 numbers; give 1 to 32") for width in (0, -1, WIDTH + 1)),
        ({"batch_size": 0}, "batch-size=0 is no whole number of at least 1"),
    ],
)
def test_sizes_that_can_not_be_are_refused(bert, settings, words):
    with pytest.raises(UsageError, match=words):
        list(bert.embed_stream(TEXTS, **settings))
