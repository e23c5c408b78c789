"""ELMo's layers against PyTorch's LSTM and against their equations in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from elmo_models import CONFIG, TEXTS, rows

from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import ExecutionConfig
from bert_jax.layout import lay_out
from bert_jax.model.bert import BertEncoder, BertForPretraining, init
from bert_jax.model.relatives.lstm import _recurrence, _scan
from bert_jax.model.task import pooled
from bert_jax.system.errors import UsageError


def packed(*texts: list[int], length: int):
    lengths = np.array([len(text) for text in texts])
    one_row = lay_out(np.concatenate(texts), lengths, lengths, (1, length), rows=np.zeros(len(texts), int))
    return jax.tree.map(jnp.asarray, one_row)


def parameters(config: ModelConfig = CONFIG, scale: float = 1.0):
    params = init(config, jax.random.key(0))
    layers = params["bert"]["encoder"]["layers"]
    bias = layers["inputs"]["bias"]
    layers["inputs"]["bias"] = 0.3 * jax.random.normal(jax.random.key(1), bias.shape)
    layers["inputs"] = jax.tree.map(lambda leaf: scale**2 * leaf, layers["inputs"])
    layers["projection"]["kernel"] *= scale
    return params


def layers_of(config: ModelConfig, params, tokens):
    return np.asarray(
        BertForPretraining(config).apply({"params": params}, tokens, return_layers=True, method="encode").layers
    )


def by_equations(params, x: np.ndarray) -> tuple[list[np.ndarray], float]:
    """Each layer's [T, D] of one sequence of vectors [T, E], by the equations of the paper in float64; and the largest
    element of a cell's state."""

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    halves, outputs, largest = [x, x[::-1]], [], 0.0
    for layer in range(CONFIG.num_layers):
        for direction in range(2):
            own = jax.tree.map(lambda leaf: np.float64(leaf[layer, direction]), params)
            h, c, hidden = np.zeros(x.shape[1]), np.zeros(CONFIG.feedforward_size), []
            for vector in halves[direction]:
                gates = np.einsum("d,dgf->gf", vector, own["inputs"]["kernel"]) + own["inputs"]["bias"]
                i, j, f, o = gates + np.einsum("d,dgf->gf", h, own["recurrence"]["kernel"])
                c = np.clip(sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j), -3, 3)
                h = np.clip((sigmoid(o) * np.tanh(c)) @ own["projection"]["kernel"], -3, 3)
                hidden.append(h)
                largest = max(largest, np.abs(c).max())
            halves[direction] = np.array(hidden) + (halves[direction] if layer else 0)
        outputs.append(np.concatenate([halves[0], halves[1][::-1]], axis=-1))
    return outputs, largest


@pytest.mark.parametrize("scale", [1.0, 3.0])
@pytest.mark.long(first=1)
def test_layers_equal_the_equations(scale):
    params, tokens = parameters(scale=scale), rows(*TEXTS)
    computed = layers_of(CONFIG, params, tokens)
    raw = params["bert"]["encoder"]["layers"]
    largest, of_cells = 0.0, 0.0
    for row, text in enumerate(TEXTS):
        x = np.float64(computed[0, row, : len(text), : CONFIG.input_size])
        np.testing.assert_array_equal(
            computed[0, row, :, : CONFIG.input_size], computed[0, row, :, CONFIG.input_size :]
        )
        layers, of_row = by_equations(raw, x)
        of_cells = max(of_cells, of_row)
        for layer, expected in enumerate(layers, start=1):
            largest = max(largest, np.abs(expected).max())
            np.testing.assert_allclose(computed[layer, row, : len(text)], expected, rtol=0, atol=2e-6 * scale**2)
    assert (largest >= 3, of_cells >= 3) == (scale > 1, scale > 1), (
        "the large weights, and they alone, reach both bounds"
    )


@pytest.mark.long
def test_the_gradient_of_bounded_cells_is_that_of_their_loop():
    rng = np.random.default_rng(0)
    inputs, kernel, projection = (
        jnp.asarray(rng.normal(size=shape) * 2, jnp.float32) for shape in ((9, 3, 20), (4, 20), (5, 4))
    )
    goes_on = jnp.asarray(rng.random((9, 3)) < 0.8)
    added = jnp.zeros((9, 3, 4))

    def of(run):
        loss, gradients = jax.value_and_grad(lambda *each: jnp.sum(jnp.sin(run(*each))), argnums=(0, 1, 2))(
            inputs, kernel, projection
        )
        return loss, gradients

    computed = of(lambda inputs, kernel, projection: _recurrence(inputs, goes_on, kernel, projection))
    expected = of(lambda inputs, kernel, projection: _scan(inputs, added, goes_on, kernel, projection)[0])
    assert np.any(np.abs(_recurrence(inputs, goes_on, kernel, projection)) == 3)
    jax.tree.map(lambda ours, true: np.testing.assert_allclose(ours, true, rtol=1e-5, atol=1e-5), computed, expected)


def test_a_layer_equals_pytorch():
    torch = pytest.importorskip("torch")
    config = CONFIG.replace(num_layers=1)
    params, tokens = parameters(config), rows(TEXTS[1], length=7)
    raw = params["bert"]["encoder"]["layers"]
    lstm = torch.nn.LSTM(config.input_size, config.feedforward_size, bidirectional=True, proj_size=config.input_size)
    order = [0, 2, 1, 3]  # PyTorch's gates are i, f, j, o

    def theirs(kernel: np.ndarray) -> "torch.Tensor":
        return torch.tensor(np.asarray(kernel)[:, order].reshape(len(kernel), -1).T.copy())

    with torch.no_grad():
        for direction, suffix in enumerate(("", "_reverse")):
            getattr(lstm, f"weight_ih_l0{suffix}").copy_(theirs(raw["inputs"]["kernel"][0, direction]))
            getattr(lstm, f"weight_hh_l0{suffix}").copy_(theirs(raw["recurrence"]["kernel"][0, direction]))
            getattr(lstm, f"weight_hr_l0{suffix}").copy_(
                torch.tensor(np.array(raw["projection"]["kernel"][0, direction]).T.copy())
            )
            bias = np.array(raw["inputs"]["bias"][0, direction])
            bias[2] += 1  # the forget bias, which isn't stored
            getattr(lstm, f"bias_ih_l0{suffix}").copy_(torch.tensor(bias[order].reshape(-1)))
            getattr(lstm, f"bias_hh_l0{suffix}").zero_()
    computed = layers_of(config, params, tokens)
    x = torch.tensor(computed[0, 0, :, : config.input_size], requires_grad=True)
    expected, _ = lstm(x)
    np.testing.assert_allclose(computed[1, 0], expected.detach().numpy(), rtol=0, atol=1e-6)

    weights = np.random.default_rng(0).normal(size=expected.shape).astype(np.float32)
    (expected * torch.tensor(weights)).sum().backward()

    def loss(layers):
        encoder = params["bert"]["encoder"] | {"layers": layers}
        variables = {"params": params | {"bert": params["bert"] | {"encoder": encoder}}}
        encoded = BertForPretraining(config).apply(variables, tokens, method="encode")
        return jnp.sum(encoded.tokens[0] * weights)

    gradients = jax.grad(loss)(raw)
    for direction, suffix in enumerate(("", "_reverse")):
        of_inputs, of_states, of_outputs, of_bias = (
            getattr(lstm, f"{name}_l0{suffix}").grad.numpy()
            for name in ("weight_ih", "weight_hh", "weight_hr", "bias_ih")
        )
        pairs = [
            (theirs(gradients["inputs"]["kernel"][0, direction]), of_inputs),
            (theirs(gradients["recurrence"]["kernel"][0, direction]), of_states),
            (gradients["projection"]["kernel"][0, direction].T, of_outputs),
            (np.asarray(gradients["inputs"]["bias"][0, direction])[order].reshape(-1), of_bias),
        ]
        for ours, true in pairs:
            np.testing.assert_allclose(ours, true, rtol=0, atol=1e-6 * max(1, np.abs(true).max()))


@pytest.mark.long
def test_no_direction_sees_beyond_its_token_or_its_sequence():
    params, half = parameters(), CONFIG.input_size
    tokens = packed(*TEXTS, length=14)

    def vectors(word_table):
        embeddings = params["bert"]["embeddings"] | {"word": word_table}
        variables = {"params": {"bert": params["bert"] | {"embeddings": embeddings}}}
        return BertForPretraining(CONFIG).apply(variables, tokens, method="encode").tokens[0]

    # One row of the table a place of the row: the gradient tells which places a vector depends on.
    tokens = tokens._replace(ids=jnp.arange(14)[None])
    jacobian = np.asarray(jax.jacrev(vectors)(params["bert"]["embeddings"]["word"]))[:, :, :14]  # [T, D, T, E]
    depends = np.abs(jacobian).max(axis=-1) > 0
    forwards, backwards = depends[:, :half].any(axis=1), depends[:, half:].any(axis=1)
    sequence, at = np.asarray(tokens.sequence[0]), np.arange(14)
    same = (sequence[:, None] == sequence) & (sequence > 0)
    real = sequence > 0
    np.testing.assert_array_equal(forwards[real], (same & (at <= at[:, None]))[real])
    np.testing.assert_array_equal(backwards[real], (same & (at >= at[:, None]))[real])


@pytest.mark.long
def test_vectors_depend_neither_on_padding_nor_on_other_sequences_of_the_row():
    params = parameters()
    apart, wide = layers_of(CONFIG, params, rows(*TEXTS)), layers_of(CONFIG, params, rows(*TEXTS, length=16))
    together = layers_of(CONFIG, params, packed(*TEXTS, length=16))
    begin = 0
    for row, text in enumerate(TEXTS):
        alone = apart[:, row, : len(text)]
        np.testing.assert_allclose(wide[:, row, : len(text)], alone, rtol=0, atol=1e-6)
        np.testing.assert_allclose(together[:, 0, begin : begin + len(text)], alone, rtol=0, atol=1e-6)
        begin += len(text)


@pytest.mark.long
def test_a_sequence_is_pooled_where_each_direction_has_read_it():
    params, tokens = parameters(), packed(*TEXTS, length=14)
    layers = layers_of(CONFIG, params, tokens)
    first, last, half = np.array([0, 5]), np.array([4, 11]), CONFIG.input_size
    expected = np.concatenate([layers[-1, 0, last, :half], layers[-1, 0, first, half:]], axis=-1)
    np.testing.assert_array_equal(pooled(CONFIG, jnp.asarray(layers[-1]), tokens, "cls")[0], expected)
    joined = jnp.concatenate([layers[1], layers[2]], axis=-1)  # layers side by side, as features joins them
    np.testing.assert_array_equal(pooled(CONFIG, joined, tokens, "cls")[0, :, CONFIG.hidden_size :], expected)
    with_pooler = BertEncoder(CONFIG).init(jax.random.key(0), tokens)["params"] | {
        k: v for k, v in params["bert"].items()
    }
    encoder, nowhere = BertEncoder(CONFIG), jnp.zeros((1, 0), jnp.int32)
    of_all = encoder.apply({"params": with_pooler}, tokens).pooled
    dense = with_pooler["pooler"]["dense"]
    np.testing.assert_allclose(of_all[0], np.tanh(expected @ dense["kernel"] + dense["bias"]), rtol=0, atol=1e-6)
    np.testing.assert_array_equal(encoder.apply({"params": with_pooler}, tokens, places=nowhere).pooled, of_all)


def loss_of(execution: ExecutionConfig):
    tokens, keys = packed(*TEXTS, length=14), jax.random.split(jax.random.key(3), (1, 2))
    encoder = BertEncoder(CONFIG, execution)

    def loss(params):
        return jnp.sum(jnp.sin(encoder.apply({"params": params}, tokens, keys).tokens))

    return jax.jit(jax.value_and_grad(loss))(parameters()["bert"])


@pytest.mark.parametrize("remat", ["dots", "full"])
@pytest.mark.long
def test_recomputation_changes_nothing(remat):
    expected, computed = loss_of(ExecutionConfig()), loss_of(ExecutionConfig(remat=remat))
    jax.tree.map(lambda ours, true: np.testing.assert_allclose(ours, true, rtol=1e-5, atol=1e-6), computed, expected)


def test_attention_is_refused():
    encoder = BertForPretraining(CONFIG)
    with pytest.raises(UsageError, match="no attention"):
        encoder.apply({"params": parameters()}, rows(*TEXTS), return_attention=True, method="encode")
