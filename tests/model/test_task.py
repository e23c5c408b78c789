from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config.model import ModelConfig
from bert_jax.config.task import TaskConfig
from bert_jax.layout import TokenSequence, lay_out_sequences
from bert_jax.model.bert import BertForPretraining
from bert_jax.model.heads import NextSentenceHead, ReplacedTokenHead, TaskHead
from bert_jax.model.task import BertForTask, HeadShape, init_for_task, mean_of_marked, task_parameter_shapes

MODEL = ModelConfig(
    num_layers=3, hidden_size=16, num_heads=2, max_positions=12, vocabulary_size=20, dropout=0.0, attention_dropout=0.0
)
BFLOAT16 = MODEL.replace(compute_dtype="bfloat16")
HEADS = {
    "pooled": HeadShape("pooled", 3),
    "choices": HeadShape("choices", 1),
    "marked": HeadShape("marked", 2, marks=2),
    "tokens": HeadShape("tokens", 4),
}
IDS = np.arange(2 * 3 * 8).reshape(2, 3, 8) % 19 + 1
LENGTH = np.array([[8, 5, 6], [3, 8, 7]])
FIRST = np.array([[4, 5, 2], [3, 8, 3]])
MARKS = np.array([[[1, 3], [4, 5]], [[2, 3], [0, 1]]])


def rows(input, packed=True):
    """Two examples: three choices, or one sequence. If not `packed`, each choice has a row of its own."""
    choices = 3 if input == "choices" else 1
    marks = MARKS if input == "marked" else MARKS[:, :0]
    sequences = [
        TokenSequence(IDS[row, choice, : LENGTH[row, choice]].tolist(), int(FIRST[row, choice]))
        for row in range(2)
        for choice in range(choices)
    ]
    if packed:
        tokens = lay_out_sequences(sequences, (2, 8 * choices), 0, np.repeat([0, 1], choices), choices)
    else:
        tokens = lay_out_sequences(sequences, (2 * choices, 8), 0)
    return jax.tree.map(jnp.asarray, tokens), jnp.asarray(marks[:, None])


@pytest.mark.parametrize(
    "model, mixes",
    [(MODEL, False), (MODEL, True), (MODEL.replace(causal=True), True), (MODEL.replace(norm="pre"), True)],
    ids=str,
)
@pytest.mark.parametrize("input", HEADS)
@pytest.mark.long(first=2)
def test_outputs_are_a_linear_layer_on_what_the_head_takes_of_the_last_layer_or_a_mix(input, model, mixes):
    """The mix is that of Peters et al. 2018, equation 1, in numpy; then the pooler and the head stand on it."""
    head, (tokens, marks) = HEADS[input]._replace(mixes=mixes), rows(input)
    one_a_row, _ = rows(input, packed=False)
    params = jax.jit(lambda: init_for_task(model, head, jax.random.key(0)))()
    if mixes:
        assert params["task"]["mix"].tolist() == [0.0] * 4 and params["task"]["gamma"].tolist() == [1.0]
        params["task"] |= {"mix": jnp.array([0.5, -1.0, 2.0, 0.0]), "gamma": jnp.array([0.7])}
    encode = jax.jit(partial(BertForPretraining(model).apply, return_layers=True, method="encode"))
    layers = np.asarray(encode({"params": params}, one_a_row).layers, np.float64)
    powers = np.exp([0.5, -1.0, 2.0, 0.0])
    mixed = 0.7 * sum(power / powers.sum() * layer for power, layer in zip(powers, layers, strict=True))
    vectors = mixed = mixed if mixes else layers[-1]
    if input != "tokens":
        places = LENGTH[:, : one_a_row.ids.shape[0] // 2].reshape(-1) - 1 if model.causal else 0
        pooler = jax.tree.map(np.asarray, params["bert"]["pooler"]["dense"])
        vectors = np.tanh(mixed[np.arange(len(mixed)), places] @ pooler["kernel"] + pooler["bias"])
    if input == "marked":
        words = [[mixed[row, begin:end].mean(axis=0) for begin, end in MARKS[row]] for row in range(2)]
        vectors = np.concatenate([vectors, np.reshape(words, (2, -1))], axis=1)
    outputs = jax.jit(BertForTask(model, head).apply)({"params": params}, tokens, marks)
    assert outputs.shape[:2] == ((2, 8) if input == "tokens" else (2, 1))
    expected = vectors @ np.asarray(params["task"]["dense"]["kernel"]) + np.asarray(params["task"]["dense"]["bias"])
    inside = np.asarray(tokens.sequence > 0) if input == "tokens" else ...
    np.testing.assert_allclose(outputs[inside], expected.reshape(outputs.shape)[inside], rtol=1e-4, atol=1e-5)


def test_a_head_that_takes_tokens_has_no_pooler_below_it():
    poolers = {input: "pooler" in task_parameter_shapes(MODEL, head)["bert"] for input, head in HEADS.items()}
    assert poolers == {"pooled": True, "choices": True, "marked": True, "tokens": False}


def test_an_empty_mark_is_no_vector():
    x = jnp.arange(12.0).reshape(1, 4, 3)
    found = mean_of_marked(x, jnp.array([[[[1, 3], [2, 2]]]]))
    np.testing.assert_array_equal(found, [[[[4.5, 5.5, 6.5], [0, 0, 0]]]])


@pytest.mark.parametrize("mixes", [False, True])
@pytest.mark.parametrize(
    ("model", "kernel"),
    [
        (MODEL, ("feedforward_in", "kernel")),
        (MODEL.replace(layer="lstm", positions="none", num_segments=0, initializer_range=0.3), ("inputs", "kernel")),
    ],
)
@pytest.mark.long
def test_no_gradient_goes_into_frozen_layers(model, kernel, mixes):
    head = HEADS["pooled"]._replace(mixes=mixes)
    params = jax.jit(lambda: init_for_task(model, head, jax.random.key(0)))()
    batch, losses = rows("pooled"), []

    @partial(jax.jit, static_argnums=1)
    @jax.value_and_grad
    def loss(params, frozen):
        return jnp.sum(BertForTask(model, head, frozen_layers=frozen).apply({"params": params}, *batch) ** 2)

    for frozen in (None, 0, 2, 3):
        value, gradients = loss(params, frozen)
        losses.append(float(value))
        of_layers = gradients["bert"]["encoder"]["layers"][kernel[0]][kernel[1]]
        of_layers = np.abs(of_layers).reshape(3, -1).max(axis=1)
        assert (of_layers > 0).tolist() == [layer >= (frozen or 0) for layer in range(3)]
        assert (float(np.abs(gradients["bert"]["embeddings"]["word"]).max()) > 0) == (frozen is None)
        assert not mixes or np.abs(gradients["task"]["mix"]).min() > 0 < abs(float(gradients["task"]["gamma"][0]))
    assert losses == pytest.approx([losses[0]] * 4, rel=1e-6)


def test_the_head_of_a_task():
    config = TaskConfig(name="x", kind="class", labels=("a", "b", "c"))
    assert HeadShape.of(config) == HeadShape("pooled", 3)
    assert HeadShape.of(config.replace(mix_layers=True)) == HeadShape("pooled", 3, mixes=True)
    assert HeadShape.of(config.replace(kind="number")) == HeadShape("pooled", 1)
    span = config.replace(kind="span", texts=("question", "context"), max_length=384)
    assert HeadShape.of(span) == HeadShape("tokens", 2, drops=False)
    marked = config.replace(kind="marked", texts=("a", "b"), marks=("a0", "a1", "b0", "b1"))
    assert HeadShape.of(marked) == HeadShape("marked", 3, marks=2)


@pytest.mark.parametrize("head", [NextSentenceHead(BFLOAT16), ReplacedTokenHead(BFLOAT16), TaskHead(BFLOAT16, 1)])
def test_outputs_of_heads_are_not_rounded_to_the_type_of_the_products(head):
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, 32)), jnp.bfloat16)
    params = head.init(jax.random.key(0), x)
    large = jax.tree.map(lambda leaf: leaf + 1987.3 * (leaf.size < 3), params)  # the biases of the outputs, as of years
    outputs = np.asarray(head.apply(large, x))
    assert outputs.dtype == np.float32 and len(np.unique(outputs)) == outputs.size
    assert np.abs(outputs - outputs.astype(jnp.bfloat16).astype(np.float32)).max() > 0.1
