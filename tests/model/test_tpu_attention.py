"""The TPU's attention kernel, its operations run on this machine, and compiled for chips that it doesn't have."""

import functools
import json
import os
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import faked_devices, program
from token_rows import tokens_of

from bert_jax.config.model import ModelConfig
from bert_jax.model.attention import AttentionPattern, Places, attend, attend_by_kernel, check_attention, obstacle
from bert_jax.model.bert import BertForPretraining, init
from bert_jax.model.sharding import make_mesh
from bert_jax.model.tpu_attention import MOST_KEYS
from bert_jax.model.tpu_kernel import Kernel
from bert_jax.model.tpu_ranges import key_ranges
from bert_jax.planning.topology import parse_topology, topology_devices
from bert_jax.system.errors import UsageError

PATTERNS = {
    "whole rows and short ones": dict(lengths=[[128], [100], [1], []]),
    "several sequences a row": dict(lengths=[[50, 30, 40], [128], [1, 1], []]),
    "causal": dict(lengths=[[128], [77]], causal=True),
    "packed, causal, near": dict(lengths=[[64, 64], [30, 90]], causal=True, window=16),
    "several blocks of queries": dict(lengths=[[1024], [300]]),
    "ranges of packed rows": dict(lengths=[[200, 56, 100, 28], [384], [130, 3], []]),
    "ranges of a window": dict(lengths=[[384], [300]], window=40),
    "ranges of packed, causal rows with a window": dict(lengths=[[100, 284], [384]], causal=True, window=130),
}


def pattern_of(lengths, causal=False, window=None) -> AttentionPattern:
    size = next(size for size in (128, 384, 1024) if sum(lengths[0]) <= size)
    sequence, position = np.zeros((2, len(lengths), size), np.int32)
    for row, each in enumerate(lengths):
        numbers = [(number + 1, place) for number, length in enumerate(each) for place in range(length)]
        for place, (number, within) in enumerate(numbers):
            sequence[row, place], position[row, place] = number, within
    places = Places(jnp.asarray(sequence), jnp.asarray(position))
    return AttentionPattern(places, places, max(map(len, lengths)), causal, window)


def with_gradients(form, pattern, heads, size, rate):
    """The context, 0 at padding, and the gradients of query, key and value."""
    batch, length = pattern.keys.sequence.shape
    *given, gradient = jax.random.normal(jax.random.key(1), (4, batch, length, heads, size))
    there = pattern.keys.sequence[:, :, None, None] > 0
    keys = jax.random.split(jax.random.key(2), (batch, pattern.sequences))
    context, backward = jax.vjp(lambda *given: form(*given, pattern, rate, keys) * there, *given)
    return context, *backward(gradient)


INTERPRETED = functools.partial(attend_by_kernel, "interpreted")


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("heads, size, rate", [(2, 64, 0.1), (4, 32, 0.0), (1, 128, 0.5)])
def test_it_gives_what_the_exact_form_gives(name, heads, size, rate):
    if name.startswith(("several blocks", "ranges of a")) and size != 64:
        pytest.skip("one shape is enough of what takes long")
    pattern = pattern_of(**PATTERNS[name])
    for exact, found in zip(*(with_gradients(form, pattern, heads, size, rate) for form in (attend, INTERPRETED))):
        assert jnp.abs(exact - found).max() < 1e-5 * jnp.abs(exact).max()


def test_ranges_hold_every_block_with_a_key_and_hardly_another():
    sequence = np.zeros((4, 512), np.int32)
    for row, lengths in enumerate([[200, 56, 100, 156], [512], [130, 3], []]):
        sequence[row, : sum(lengths)] = np.repeat(np.arange(len(lengths)) + 1, lengths)
    places = jnp.asarray(np.stack([sequence, np.tile(np.arange(512), (4, 1))], axis=1), jnp.int32)
    kernel = Kernel(2, 64, 0.0, sequences=4, causal=False, window=None, interpreted=True)
    found = key_ranges(kernel, places)
    assert found[0].tolist() == [[0, 2], [0, 2], [2, 4], [2, 4]] and found[1].tolist() == [[0, 4]] * 4
    assert found[2].tolist()[:2] == [[0, 2], [0, 2]] and jnp.array_equal(*found[3].T)
    assert key_ranges(kernel._replace(causal=True), places)[1].tolist() == [[0, 1], [0, 2], [0, 3], [0, 4]]
    assert key_ranges(kernel._replace(window=64), places)[1].tolist() == [[0, 2], [0, 3], [1, 4], [2, 4]]
    mixed = places.at[0, 0].set(places[0, 0, ::-1])  # out of order
    assert key_ranges(kernel, mixed)[0].tolist() == [[0, 2], [0, 2], [2, 4], [2, 4]]


def test_what_is_outside_of_a_range_is_not_read():
    """Keys and values of blocks that no query needs may hold anything."""
    pattern = pattern_of([[128, 256], [128, 200]])
    query, key, value = jax.random.normal(jax.random.key(1), (3, 2, 384, 2, 64))
    places = pattern.keys._replace(sequence=jnp.where(pattern.keys.sequence == 1, 1, 0))
    alone = AttentionPattern(places, places, 2)
    spoilt = [each.at[:, 128:].set(jnp.nan) for each in (key, value)]
    expected = INTERPRETED(query, key, value, alone, 0.0, None)[:, :128]
    assert jnp.array_equal(INTERPRETED(query, *spoilt, alone, 0.0, None)[:, :128], expected)


def test_its_dropout_keeps_the_elements_that_the_exact_form_keeps():
    """All scores are 0 and the values a unit matrix, so that the context is the probabilities after dropout."""
    pattern, keys = pattern_of([[128]] * 3), jax.random.split(jax.random.key(0), (3, 1))
    zeros, unit = jnp.zeros((3, 128, 1, 128)), jnp.broadcast_to(jnp.eye(128)[:, None], (3, 128, 1, 128))
    exact, found = (form(zeros, zeros, unit, pattern, 0.1, keys) for form in (attend, INTERPRETED))
    assert jnp.array_equal(exact == 0, found == 0)
    assert 0.09 < (found == 0).mean() < 0.11


def test_a_model_gives_the_same_by_it():
    config = ModelConfig(num_layers=2, hidden_size=128, num_heads=2, vocabulary_size=50, max_positions=128)
    ids = jax.random.randint(jax.random.key(0), (2, 128), 0, 50)
    tokens, keys = tokens_of(ids, mask=np.arange(128) < [[128], [90]]), jax.random.split(jax.random.key(1), (2, 1))
    params, wanted = init(config, jax.random.key(2)), jnp.array([[1, 5], [2, 80]])

    @functools.partial(jax.jit, static_argnums=1)
    @jax.value_and_grad
    def loss(params, form):
        logits, pairs = BertForPretraining(config, attention=form).apply({"params": params}, tokens, wanted, keys)
        return jnp.square(logits[..., :50]).mean() + jnp.square(pairs).mean()

    exact, found = (loss(params, form) for form in ("exact", "interpreted"))
    assert float(found[0]) == pytest.approx(float(exact[0]), rel=1e-6)
    for one, other in zip(*map(jax.tree.leaves, (exact[1], found[1]))):
        assert jnp.abs(one - other).max() <= 1e-5 * max(1e-3, jnp.abs(one).max())


ON_EIGHT_DEVICES = """
import json
import jax, jax.numpy as jnp, numpy as np
from bert_jax.config.operation import MeshConfig
from bert_jax.model.attention import AttentionPattern, Places, attend, attend_by_kernel
from bert_jax.model.sharding import batch_sharding, make_mesh, on_mesh

query, key, value = jax.random.normal(jax.random.key(1), (3, 4, 128, 4, 64))
sequence = jnp.asarray(np.arange(128) < [[128], [90], [3], [60]], jnp.int32)
position, keys = jnp.arange(128) * sequence, jax.random.split(jax.random.key(2), (4, 1))

def run(form, *arrays):
    sequence, position, query, key, value = arrays
    places = Places(sequence, position)
    pattern = AttentionPattern(places, places, 1)
    return jax.grad(lambda *qkv: jnp.square(form(*qkv, pattern, 0.1, keys)).sum(), (0, 1, 2))(query, key, value)

arrays = sequence, position, query, key, value
exact = run(attend, *arrays)
mesh = make_mesh(MeshConfig(data=2, fsdp=2, tensor=2))
by_kernel = lambda *arrays: run(lambda *given: attend_by_kernel("interpreted", *given), *arrays)
split = jax.jit(on_mesh(mesh, by_kernel), in_shardings=batch_sharding(mesh))(*arrays)
print(json.dumps([float(abs(one - other).max() / abs(one).max()) for one, other in zip(exact, split)]))
"""


def test_on_a_mesh_each_device_attends_with_its_own_rows_and_heads():
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = program(ON_EIGHT_DEVICES, env=os.environ | faked_devices(8), **pipes)
    output, said = process.communicate()
    assert process.returncode == 0, said
    assert max(json.loads(output)) < 1e-5


LARGEST = [(32, 128, 12, 64), (2, 1408, 2, 64)] + [
    (2, most, max(2, 256 // size), size) for size, most in MOST_KEYS.items()
]
"""Shapes that take most of the fast memory of a v4, which has the least: many short rows, the longest of each width."""


@pytest.mark.parametrize(
    "chip, shape, dtype, pattern",
    [(chip, (16, 512, 12, 64), jnp.bfloat16, {}) for chip in ("v4:2x2x1", "v5e:2x2", "v5p:2x2x1", "v6e:2x2")]
    + [("v4:2x2x1", shape, jnp.float32, {"causal": True, "window": 64}) for shape in LARGEST],
)
def test_it_compiles_for_tpus(chip, shape, dtype, pattern):
    pytest.importorskip("libtpu")
    place = jax.sharding.SingleDeviceSharding(topology_devices(parse_topology(chip))[0])
    of_tokens = jax.ShapeDtypeStruct(shape, dtype, sharding=place)
    number = jax.ShapeDtypeStruct(shape[:2], jnp.int32, sharding=place)

    def run(sequence, position, gradient, *given):
        keys = jax.random.split(jax.random.key(0), (len(sequence), 2))
        places = Places(sequence, position)
        whole = AttentionPattern(places, places, sequences=2, **pattern)
        context, backward = jax.vjp(lambda *given: attend_by_kernel("tpu", *given, whole, 0.1, keys), *given)
        return context, backward(gradient)

    compiled = jax.jit(run).lower(number, number, *[of_tokens] * 4).compile()
    probabilities = 2 * shape[0] * shape[2] * shape[1] ** 2
    assert shape[1] < 4 * shape[3] or compiled.memory_analysis().temp_size_in_bytes < probabilities


@pytest.mark.parametrize(
    "form, sizes, length, why",
    [
        ("tpu", {}, 128, "a CPU, and the kernel is for TPUs"),
        ("auto", {}, 128, "a CPU, and the kernel is for TPUs"),
        ("exact", {}, 128, "the exact form is asked for"),
        ("interpreted", {}, 128, None),
        ("interpreted", {}, 100, "rows of 100 tokens, not a multiple of 128 up to 2,048"),
        ("interpreted", {}, 4096, "rows of 4,096 tokens"),
        ("interpreted", {"hidden_size": 96}, 128, "heads of width 48"),
        ("interpreted", {"hidden_size": 64}, 128, "heads of 32 that take up 64 lanes together, not a multiple of 128"),
    ],
)
def test_why_it_is_not_used(form, sizes, length, why):
    found = obstacle(form, ModelConfig(num_layers=1, **{"hidden_size": 128, "num_heads": 2} | sizes), length)
    assert found is None if why is None else why in found


def test_a_kernel_that_cannot_be_had_is_refused_in_one_line(tiny_config):
    execution = tiny_config.execution.replace(attention="tpu")
    with pytest.raises(UsageError, match=r"execution.attention=tpu can't be had: .* CPU.*; leave it at auto"):
        check_attention(execution, tiny_config.model, [32], make_mesh(tiny_config.mesh))
