"""The GPU's attention kernels: their operations run on this machine, and lowered for GPUs that it doesn't have."""

import re
from collections import Counter
from collections.abc import Iterator

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
from attention_cases import PATTERNS, assert_alike, assert_sequences_are_apart, pattern_of
from token_rows import packed_tokens, tokens_of

from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import ExecutionConfig
from bert_jax.model.bert import BertForPretraining, init
from bert_jax.model.kernels import attention_form, elementwise, platform
from bert_jax.model.kernels.attention_form import AttentionCase
from bert_jax.model.kernels.attention_forms import GPU, check_attention, form_for
from bert_jax.model.sharding import make_mesh, on_mesh
from bert_jax.system.errors import UsageError


@pytest.mark.parametrize(
    "name, rate", [(name, 0.1) for name in PATTERNS] + [(name, 0.0) for name in list(PATTERNS)[:4:3]]
)
@pytest.mark.long(first=1)
def test_it_gives_what_the_exact_form_gives(interpreted, name, rate):
    pattern = pattern_of(**PATTERNS[name] | ({"lengths": [[256], [130]]} if name.startswith("several blocks") else {}))
    assert_alike(GPU.attend, pattern, 2, 32, rate)


@pytest.mark.long
def test_blocks_without_a_common_sequence_are_not_multiplied(interpreted):
    assert_sequences_are_apart(GPU.attend, pattern_of([[128, 128]]), 1, 16)


MODEL = ModelConfig(
    num_layers=3, hidden_size=128, num_heads=2, vocabulary_size=50, max_positions=64, compute_dtype="bfloat16"
)
TOKENS = tokens_of(np.ones((4, 64)), mask=np.arange(64) < np.array([64, 40, 1, 0])[:, None])


@pytest.fixture
def on_gpu(monkeypatch):
    """Traces as on a GPU."""
    for module in (attention_form, elementwise, platform):
        monkeypatch.setattr(module, "platform", lambda: "gpu")


def traced_gradients(form, mesh=None, tokens=TOKENS, **config) -> jax.stages.Traced:
    """A step's gradients, traced."""
    model = MODEL.replace(**config)
    keys = jax.random.split(jax.random.key(1), tokens.begin.shape)

    def loss(params):
        network, wanted = BertForPretraining(model, ExecutionConfig(attention=form)), jnp.zeros((4, 2), jnp.int32)
        logits, _ = network.apply({"params": params}, tokens, wanted, keys)
        return logits.astype(jnp.float32).sum()

    params = jax.eval_shape(lambda: init(model, jax.random.key(0)))
    gradients = jax.grad(loss) if mesh is None else on_mesh(mesh, jax.grad(loss))
    return jax.jit(gradients).trace(params)


def kernels(form, mesh=None, **config) -> dict[str, int]:
    """How often the program for GPUs of a step's gradients calls each kernel."""
    program = traced_gradients(form, mesh, **config).lower(lowering_platforms=("cuda",)).as_text()
    return Counter(re.findall(r'\bname = "(attention\w*)"', program))


def operations(jaxpr) -> Iterator[jax.extend.core.JaxprEqn]:
    """The operations of a traced function, with those of the functions that it calls."""
    for operation in jaxpr.eqns:
        yield operation
        for called in jax.extend.core.jaxprs_in_params(operation.params):
            yield from operations(called)


@pytest.mark.long
def test_a_model_for_gpus_calls_the_kernels_forwards_and_backwards(on_gpu, tiny_config):
    """In all blocks but the last, which is computed at a few places only."""
    expected = {"attention": 2, "attention_keys": 2, "attention_queries": 2}
    assert kernels("auto", mesh=make_mesh(tiny_config.mesh)) == kernels("gpu", causal=True) == expected
    assert kernels("exact") == {}


@pytest.mark.parametrize("packed", [False, True])
def test_no_place_of_a_gradient_gets_several_additions_in_any_order(on_gpu, packed):
    """A GPU's threads add in no fixed order, so that sums have the same bits only if each index occurs once. A place of
    the last block may occur several times, but all its gradients except one are 0 then."""
    tokens = packed_tokens([[32, 32], [40], [64], [1, 2]], 64) if packed else TOKENS
    found = Counter(
        (operation.params["unique_indices"], operation.outvars[0].aval.shape)
        for operation in operations(traced_gradients("auto", tokens=tokens).jaxpr.jaxpr)
        if operation.primitive.name == "scatter-add" and operation.outvars[0].aval.dtype != bool
    )
    of_positions = {(True, (64, 128)): 2} if packed else {}
    assert found == {(False, (4, 64, 128)): 1, (True, (128, 128)): 2, **of_positions}


@pytest.mark.parametrize(
    "sizes, length, why",
    [
        ({}, 512, None),
        ({"hidden_size": 256, "causal": True}, 96, None),
        ({"compute_dtype": "float32"}, 512, "activations are float32, and the kernel is for bfloat16"),
        ({"hidden_size": 24}, 512, "heads have width 12; the kernel supports 16, 32, 64, 128"),
        ({}, 100, "rows of 100 tokens, not a multiple of 32"),
        ({"some_queries": True}, 512, "only some tokens of a row are queries"),
    ],
)
def test_where_it_can_not_be_used_attention_is_exact(on_gpu, sizes, length, why):
    some_queries = sizes.pop("some_queries", False)
    case = AttentionCase.of(
        MODEL.replace(**sizes), length, dropout=0.1, sequences=4, local=False, some_queries=some_queries
    )
    found = GPU.obstacle(case)
    assert found is None if why is None else why in found
    assert form_for("gpu", case).name == form_for("auto", case).name == ("exact" if why else "gpu")


def test_a_form_that_can_not_be_used_is_refused_in_one_line(tiny_config, monkeypatch):
    execution, mesh = tiny_config.execution, make_mesh(tiny_config.mesh)
    for form, why in (
        ("gpu", "--execution.attention=gpu can't be used: this is a CPU, and the kernel is for NVIDIA's GPUs"),
        ("tpu", "--execution.attention=tpu can't be used: this is a CPU, and the kernel is for TPUs"),
    ):
        with pytest.raises(UsageError, match=f"^{why}; set it to auto or exact"):
            check_attention(execution.replace(attention=form), MODEL, [(32, 1)], mesh)
    monkeypatch.setattr(attention_form, "platform", lambda: "gpu")
    check_attention(execution.replace(attention="gpu"), MODEL, [(32, 4)], mesh)
    with pytest.raises(UsageError, match="rows of 40 tokens"):
        check_attention(execution.replace(attention="gpu"), MODEL, [(32, 1), (40, 1)], mesh)
