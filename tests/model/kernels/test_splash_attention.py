"""JAX's splash attention for long rows on TPUs is the exact form, run by its operations on a CPU."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attention_cases import assert_alike
from token_rows import packed_tokens

from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import ExecutionConfig
from bert_jax.model import exact_attention
from bert_jax.model.attention_pattern import AttentionPattern, Places
from bert_jax.model.bert import BertForPretraining, init
from bert_jax.model.kernels import splash_attention
from bert_jax.model.kernels.attention_forms import TPU
from bert_jax.products.plan.topology import parse_topology, topology_devices

LENGTH = 384
ROWS = {"one sequence a row": ((384,), (200,)), "packed": ((130, 54, 200), (100, 7))}


@pytest.fixture
def tokens(request):
    return packed_tokens(ROWS[request.param], LENGTH)


@pytest.fixture
def splash_calls(monkeypatch, on_tpu) -> list:
    """Rows of LENGTH tokens count as long; one item for each call of splash attention."""
    calls, by_splash = [], splash_attention._attend
    monkeypatch.setattr(splash_attention, "_attend", lambda *given: calls.append(1) or by_splash(*given))
    monkeypatch.setattr(exact_attention, "_STRIP", 128)
    monkeypatch.setattr(exact_attention, "_MOST_SCORES", 128 * 128)
    return calls


@pytest.mark.parametrize(
    "tokens, window, causal",
    [("packed", window, causal) for window in (None, 50) for causal in (False, True)]
    + [("one sequence a row", None, False), ("one sequence a row", 50, True)],
    indirect=["tokens"],
)
@pytest.mark.long(first=1)
def test_it_gives_what_the_exact_form_gives(tokens, splash_calls, window, causal):
    pattern = AttentionPattern.of(tokens, causal)._replace(window=window)
    assert_alike(TPU.attend, pattern, 2, 16, 0.0)
    assert splash_calls == [1]


@pytest.mark.parametrize("tokens", ROWS, indirect=True)
def test_it_takes_some_queries_alone(tokens, splash_calls):
    pattern = AttentionPattern.of(tokens, causal=False).of_queries(jnp.array([[0, 380, 7], [5, 101, 300]]))
    assert_alike(TPU.attend, pattern, 2, 16, 0.0)
    assert splash_calls == [1]


@pytest.mark.parametrize("tokens", ["packed"], indirect=True)
@pytest.mark.long
def test_a_model_gives_the_same_by_it(tokens, splash_calls):
    """Global attention, local attention, and global attention of the tokens that are wanted alone."""
    sizes = dict(hidden_size=16, num_heads=2, vocabulary_size=30, max_positions=LENGTH, local_window=64)
    config = ModelConfig.modern(num_layers=3, global_every=2, **sizes)
    params, wanted = init(config, jax.random.key(2)), jnp.array([[1, 5, 380], [2, 80, 101]])

    @functools.partial(jax.jit, static_argnums=1)
    def logits(params, form):
        network = BertForPretraining(config, ExecutionConfig(attention=form))
        return network.apply({"params": params}, tokens, wanted)[0][..., :30]

    exact, found = (logits(params, form) for form in ("exact", "tpu"))
    assert len(splash_calls) == 3
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-5 * np.abs(exact).max())


@pytest.mark.parametrize(
    "chip, length, dtype, size, window",
    [
        ("v5e:2x2", 8192, jnp.bfloat16, 64, None),
        ("v4:2x2x1", 3072, jnp.float32, 256, None),
        ("v4:2x2x1", 2176, jnp.float32, 16, 1000),
    ],
)
@pytest.mark.long
def test_it_compiles_for_tpus(chip, length, dtype, size, window):
    pytest.importorskip("libtpu")
    place = jax.sharding.SingleDeviceSharding(topology_devices(parse_topology(chip))[0])
    of_tokens = jax.ShapeDtypeStruct((2, length, 2, size), dtype, sharding=place)
    number = jax.ShapeDtypeStruct((2, length), jnp.int32, sharding=place)

    def run(sequence, position, gradient, *given):
        places = Places(sequence, position)
        whole = AttentionPattern(places, places, 2, window=window)
        context, backward = jax.vjp(lambda *given: TPU.attend(*given, whole, 0.0, None), *given)
        return context, backward(gradient)

    compiled = jax.jit(run).lower(number, number, *[of_tokens] * 4).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 2 * 2 * length**2  # of probabilities in one byte each
