"""Attention by cuDNN: its call computed by XLA on this machine, and lowered for GPUs that it doesn't have."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.cudnn import fused_attention_stablehlo
from token_rows import tokens_of

from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import ExecutionConfig
from bert_jax.model import attention_form, cudnn_attention
from bert_jax.model.attention import check_attention
from bert_jax.model.attention_form import AttentionCase
from bert_jax.model.attention_pattern import AttentionPattern
from bert_jax.model.bert import BertForPretraining, init
from bert_jax.model.exact_attention import attend
from bert_jax.model.sharding import make_mesh, on_mesh
from bert_jax.system.errors import UsageError

LENGTHS = np.array([64, 40, 1, 0])
PATTERNS = {
    "all keys of a row": {},
    "causal": {"causal": True},
    "causal, near": {"causal": True, "window": 8},
    "causal, the token before": {"causal": True, "window": 1},
}


TOKENS = tokens_of(np.ones((4, 64)), mask=np.arange(64) < LENGTHS[:, None])


@pytest.fixture
def on_gpu(monkeypatch):
    """Traces as on a GPU with cuDNN, which JAX asks for its version."""
    monkeypatch.setattr(attention_form, "platform", lambda: "gpu")
    monkeypatch.setattr(fused_attention_stablehlo, "check_cudnn_version", lambda: 91000)


@pytest.mark.parametrize("name", PATTERNS)
def test_it_gives_what_the_exact_form_gives(name, monkeypatch):
    """At all tokens. Padding attends to fewer keys, or to others, and nobody reads what comes of it."""
    attention = jax.nn.dot_product_attention
    by_xla = lambda *given, **named: attention(*given, **named | {"implementation": "xla"})
    monkeypatch.setattr(jax.nn, "dot_product_attention", by_xla)
    pattern = AttentionPattern.of(TOKENS, causal=False)._replace(**PATTERNS[name])
    *given, gradient = jax.random.normal(jax.random.key(1), (4, 4, 64, 2, 16))
    real = (pattern.queries.sequence > 0)[:, :, None, None]

    def computed(form):
        context, backward = jax.vjp(lambda *given: form(*given, pattern, 0.0, None) * real, *given)
        return context, *backward(gradient)

    for exact, found in zip(*map(computed, (attend, cudnn_attention.attend))):
        assert jnp.abs(exact).max() > 0.1
        assert jnp.abs(exact - found).max() < 1e-5 * jnp.abs(exact).max()
        assert not jnp.any(found[3])  # in a row without tokens there are neither results nor gradients


MODEL = ModelConfig(
    num_layers=3, hidden_size=128, num_heads=2, vocabulary_size=50, max_positions=64, compute_dtype="bfloat16"
)


def calls(form, dropout=None, mesh=None, **config) -> tuple[int, int]:
    """How often cuDNN is called, forwards and backwards, by the program for GPUs of a step's gradients.

    `dropout`: that of attention; None for a step without any.
    """
    model = MODEL.replace(attention_dropout=dropout or 0.0, **config)
    keys = None if dropout is None else jax.random.split(jax.random.key(1), (4, 1))

    def loss(params):
        network, wanted = BertForPretraining(model, ExecutionConfig(attention=form)), jnp.zeros((4, 2), jnp.int32)
        logits, _ = network.apply({"params": params}, TOKENS, wanted, keys)
        return logits.astype(jnp.float32).sum()

    params = jax.eval_shape(lambda: init(model, jax.random.key(0)))
    gradients = jax.grad(loss) if mesh is None else on_mesh(mesh, jax.grad(loss))
    program = jax.jit(gradients).trace(params).lower(lowering_platforms=("cuda",)).as_text()
    return program.count("@__cudnn$fmhaSoftmax("), program.count("@__cudnn$fmhaSoftmaxBackward(")


def test_a_model_for_gpus_calls_cudnn_forwards_and_backwards(on_gpu, tiny_config):
    """In all blocks but the last, which is computed at a few places only."""
    dropout_elsewhere = calls("cudnn", dropout=0.0)
    assert calls("cudnn") == calls("cudnn", causal=True) == dropout_elsewhere == (2, 2)
    assert calls("cudnn", mesh=make_mesh(tiny_config.mesh)) == (2, 2)


@pytest.mark.parametrize(
    "form, settings",
    [("cudnn", {"dropout": 0.1}), ("cudnn", {"compute_dtype": "float32"}), ("auto", {}), ("exact", {})],
)
def test_other_models_for_gpus_attend_exactly(form, settings, on_gpu):
    assert calls(form, **settings) == (0, 0)


@pytest.mark.parametrize(
    "settings, dropout, seen, why",
    [
        ({}, 0.0, {}, None),
        ({"head_size": 128, "causal": True, "local_window": 3, "global_every": 3}, 0.0, {"local": True}, None),
        ({}, 0.1, {}, "attention's dropout is 0.1, and what cuDNN drops would differ after a restart"),
        ({"compute_dtype": "float32"}, 0.0, {}, "activations are float32, and cuDNN attends in bfloat16"),
        ({"head_size": 12}, 0.0, {}, "heads of width 12, and cuDNN is for multiples of 8 up to 128"),
        ({"head_size": 256}, 0.0, {}, "heads of width 256, and cuDNN is for multiples of 8 up to 128"),
        ({}, 0.0, {"sequences": 3}, "rows of up to 3 sequences, and cuDNN is used for one a row"),
        ({"local_window": 3, "global_every": 3}, 0.0, {}, None),
        (
            {"local_window": 3, "global_every": 3},
            0.0,
            {"local": True},
            "a window of 3 tokens on both sides, and cuDNN has one on the left only",
        ),
        ({}, 0.0, {"some_queries": True}, "some tokens of a row are queries, and cuDNN is used for all"),
    ],
)
def test_why_it_is_not_used(settings, dropout, seen, why, on_gpu):
    heads = settings.pop("head_size", 64)
    model, seen = MODEL.replace(hidden_size=2 * heads, **settings), {"sequences": 1, "local": False} | seen
    found = cudnn_attention.obstacle(AttentionCase.of(model, 64, dropout=dropout, **seen))
    assert found is None if why is None else why in found


def test_a_form_that_can_not_be_used_is_refused_in_one_line(tiny_config, monkeypatch):
    asked, mesh = tiny_config.execution.replace(attention="cudnn"), make_mesh(tiny_config.mesh)
    for execution, why in (
        (asked, "execution.attention=cudnn can't be had: this is a CPU, and cuDNN is for NVIDIA's GPUs"),
        (
            asked.replace(attention="tpu"),
            "execution.attention=tpu can't be had: this is a CPU, and the kernel is for TPUs",
        ),
    ):
        with pytest.raises(UsageError, match=f"^{why}; leave it at auto"):
            check_attention(execution, MODEL, [(32, 1)], mesh)
    monkeypatch.setattr(attention_form, "platform", lambda: "gpu")
    with pytest.raises(UsageError, match="attention's dropout is 0.1"):
        check_attention(asked, MODEL, [(32, 1)], mesh)
    check_attention(asked, MODEL.replace(attention_dropout=0.0), [(32, 1)], mesh)
    with pytest.raises(UsageError, match="rows of up to 4 sequences"):
        check_attention(asked, MODEL.replace(attention_dropout=0.0), [(32, 4)], mesh)
