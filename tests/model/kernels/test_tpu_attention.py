"""The TPU's attention kernel, its operations run on this machine, and compiled for chips that it doesn't have."""

import json
import os
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attention_cases import PATTERNS, assert_alike, assert_sequences_are_apart, pattern_of
from conftest import faked_devices, program

from bert_jax.config.model import ModelConfig
from bert_jax.model.attention_pattern import AttentionPattern, Places
from bert_jax.model.exact_attention import exact_attention
from bert_jax.model.kernels.attention_blocks import Admission, TpuKernel
from bert_jax.model.kernels.attention_form import AttentionCase
from bert_jax.model.kernels.attention_forms import MOST_KEYS, TPU, form_for
from bert_jax.model.kernels.tpu_attention_tiles import tile_spans, widths
from bert_jax.products.plan.topology import parse_topology, topology_devices


@pytest.mark.parametrize(
    "name, heads, size, rate",
    [(name, 2, 64, 0.1) for name in PATTERNS]
    + [(name, *of_heads) for name in list(PATTERNS)[:4:3] for of_heads in ((4, 32, 0.0), (1, 128, 0.5))],
)
@pytest.mark.long(first=1)
def test_it_gives_what_the_exact_form_gives(on_tpu, name, heads, size, rate):
    assert_alike(TPU.attend, pattern_of(**PATTERNS[name]), heads, size, rate)


@pytest.mark.parametrize("sizes", [{}, {"causal": True, "window": 100}], ids=["whole", "causal, near"])
@pytest.mark.long(first=1)
def test_tiles_give_what_the_exact_form_gives(on_tpu, sizes):
    """Sequences over the bounds of tiles, in any order, and padding from within a tile or from its end on."""
    lengths = [[130, 250, 10, 122], [200, 150, 50], [256], [512], [40, 40]]
    numbers = [[3, 1, 4, 2], [1, 2, 3], [2], [1], [2, 1]]
    assert_alike(TPU.attend, pattern_of(lengths, numbers, **sizes), 2, 64, 0.1)


@pytest.mark.long
def test_tiles_without_a_common_sequence_are_not_multiplied(on_tpu):
    assert_sequences_are_apart(TPU.attend, pattern_of([[256, 256]]), 2, 64)


@pytest.mark.parametrize("causal, window", [(False, None), (True, None), (False, 30), (True, 200)])
@pytest.mark.long(first=1)
def test_a_span_has_every_key_that_a_query_attends_to(causal, window):
    rng = np.random.default_rng(0)
    lengths = [rng.multinomial(rng.integers(512), rng.dirichlet(np.ones(5))) for _ in range(50)]
    numbers = [rng.permutation(5) + 1 for _ in range(50)]
    pattern = pattern_of(lengths, numbers, 512, causal=causal, window=window)
    kernel = TpuKernel(2, 64, 0.0, Admission(5, causal, window))
    found = np.asarray(tile_spans(kernel, jnp.stack(pattern.keys[:2], axis=1), 128))
    needed = np.asarray(pattern.admitted() & (pattern.queries.sequence > 0)[:, :, None])
    for row, tile in np.ndindex(50, 4):
        begin, width = 128 * found[row, tile]
        keys = np.flatnonzero(needed[row, 128 * tile : 128 * (tile + 1)].any(axis=0))
        assert begin >= 0 and begin + width <= 512
        assert not len(keys) or begin <= keys[0] and keys[-1] < begin + width
        assert len(keys) or window is not None or not width


def test_the_spans_of_packed_rows():
    kernel = TpuKernel(2, 64, 0.0, Admission(4, causal=False, window=None))
    places = jnp.stack(pattern_of([[128, 256, 128], [200, 100], [512]]).keys[:2], axis=1)
    expected = [[(0, 1), (1, 2), (1, 2), (3, 1)], [(0, 2), (0, 3), (1, 2), (0, 0)], [(0, 4)] * 4]
    assert np.array_equal(tile_spans(kernel, places, 128), expected)
    assert np.array_equal(tile_spans(kernel, places, 256)[:, :, 1], [[3, 3], [3, 2], [4, 4]])
    assert widths(16) == [1, 2, 3, 4, 6, 8, 12, 16] and widths(11) == [1, 2, 3, 4, 6, 8, 11]


@pytest.mark.long
def test_its_dropout_keeps_the_elements_that_the_exact_form_keeps(on_tpu):
    """All scores are 0 and the values a unit matrix, so that the context is the probabilities after dropout."""
    pattern, keys = pattern_of([[128]] * 3), jax.random.split(jax.random.key(0), (3, 1, 1))
    zeros, unit = jnp.zeros((3, 128, 1, 128)), jnp.broadcast_to(jnp.eye(128)[:, None], (3, 128, 1, 128))
    attend = jax.jit(lambda form: form(zeros, zeros, unit, pattern, 0.1, keys), static_argnums=0)
    exact, found = attend(exact_attention), attend(TPU.attend)
    assert jnp.array_equal(exact == 0, found == 0)
    assert 0.09 < (found == 0).mean() < 0.11


ON_EIGHT_DEVICES = """
import json
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import pallas
from bert_jax.config.operation import MeshConfig
from bert_jax.model import exact_attention
from bert_jax.model.exact_attention import exact_attention
from bert_jax.model.kernels.attention_forms import TPU
from bert_jax.model.attention_pattern import AttentionPattern, Places
from bert_jax.model.sharding import batch_sharding, make_mesh, on_mesh

compiled = pallas.pallas_call
pallas.pallas_call = lambda *given, **named: compiled(*given, **named | {"interpret": True})
query, key, value = jax.random.normal(jax.random.key(1), (3, 4, 128, 4, 64))
sequence = jnp.asarray(np.arange(128) < [[128], [90], [3], [60]], jnp.int32)
position, keys = jnp.arange(128) * sequence, jax.random.split(jax.random.key(2), (4, 1, 4))

def run(form, rate, *arrays):
    sequence, position, query, key, value = arrays
    places = Places(sequence, position)
    pattern, real = AttentionPattern(places, places, 1), sequence[:, :, None, None] > 0
    loss = lambda *qkv: jnp.square(jnp.where(real, form(*qkv, pattern, rate, keys if rate else None), 0)).sum()
    return jax.grad(loss, (0, 1, 2))(query, key, value)

mesh, arrays, apart = make_mesh(MeshConfig(data=2, fsdp=2, tensor=2)), (sequence, position, query, key, value), []
for rate in 0.1, 0.0:
    exact = jax.jit(lambda *arrays: run(exact_attention, rate, *arrays))(*arrays)
    by_kernel = lambda *arrays: run(TPU.attend, rate, *arrays)
    split = jax.jit(on_mesh(mesh, by_kernel), in_shardings=batch_sharding(mesh))(*arrays)
    apart += [float(abs(one - other).max() / abs(one).max()) for one, other in zip(exact, split)]
    exact_attention._STRIP, exact_attention._MOST_SCORES = 64, 64 * 64  # the second time by splash attention
print(json.dumps(apart))
"""


@pytest.mark.long
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
COMPILED_EACH_TIME = {("v5e:2x2", 512, 64), ("v4:2x2x1", 2048, 128)}
"""Chip, length, width of a head; the others with --tier slow. A change of the kernels, or of MOST_KEYS, needs all."""


@pytest.mark.parametrize(
    "chip, shape, dtype, sequences, pattern",
    [(chip, (16, 512, 12, 64), jnp.bfloat16, 16, {}) for chip in ("v4:2x2x1", "v5e:2x2", "v5p:2x2x1", "v6e:2x2")]
    + [("v4:2x2x1", shape, jnp.float32, 1, {"causal": True, "window": 64}) for shape in LARGEST]
    + [("v4:2x2x1", shape, jnp.float32, 2, {"causal": True, "window": 64}) for shape in LARGEST[:1] + LARGEST[4:5]],
)
@pytest.mark.long
def test_it_compiles_for_tpus(chip, shape, dtype, sequences, pattern, slow):
    pytest.importorskip("libtpu")
    if not slow and (chip, shape[1], shape[3]) not in COMPILED_EACH_TIME:
        pytest.skip("with --tier slow: libtpu takes up to a minute for a shape")
    place = jax.sharding.SingleDeviceSharding(topology_devices(parse_topology(chip))[0])
    of_tokens = jax.ShapeDtypeStruct(shape, dtype, sharding=place)
    number = jax.ShapeDtypeStruct(shape[:2], jnp.int32, sharding=place)

    def run(sequence, position, gradient, *given):
        keys = jax.random.split(jax.random.key(0), (len(sequence), sequences, shape[2]))
        places = Places(sequence, position)
        whole = AttentionPattern(places, places, sequences, **pattern)
        context, backward = jax.vjp(lambda *given: TPU.attend(*given, whole, 0.1, keys), *given)
        return context, backward(gradient)

    # Before a training, check_compiler compiles the kernel for bfloat16 at the highest precision.
    with jax.default_matmul_precision("highest" if jnp.dtype(dtype) == jnp.bfloat16 else None):
        compiled = jax.jit(run).lower(number, number, *[of_tokens] * 4).compile()
    probabilities = 2 * shape[0] * shape[2] * shape[1] ** 2
    assert shape[1] < 4 * shape[3] or compiled.memory_analysis().temp_size_in_bytes < probabilities


@pytest.mark.parametrize(
    "sizes, length, why",
    [
        ({}, 128, None),
        ({}, 100, "rows of 100 tokens, not a multiple of 128 up to 2,048"),
        ({"num_heads": 8}, 1024, "rows of 1,024 tokens, not a multiple of 128 up to 512"),
        ({}, 4096, None),
        ({}, 4100, "rows of 4,100 tokens, not a multiple of 128"),
        ({"attention_dropout": 0.1}, 4096, "dropout at 0.1, and the kernel for long rows has none"),
        ({"hidden_size": 1024}, 4096, "heads of width 512, and the kernel for long rows is for up to 256"),
        ({"hidden_size": 96}, 128, "heads of width 48"),
        ({"hidden_size": 64}, 128, "heads of 32 that take up 64 lanes together, not a multiple of 128"),
        ({"some_queries": True}, 128, "the kernel is for all"),
        ({"some_queries": True}, 4096, None),
        ({"some_queries": True, "causal": True}, 4096, "attend to different keys"),
    ],
)
def test_where_it_can_not_be_used_attention_is_exact(on_tpu, sizes, length, why):
    sizes = {"hidden_size": 128, "num_heads": 2, "attention_dropout": 0.0} | sizes
    some_queries = sizes.pop("some_queries", False)
    model, row = ModelConfig(num_layers=1, **sizes), {"sequences": 1, "local": False, "some_queries": some_queries}
    case = AttentionCase.of(model, length, dropout=model.attention_dropout, **row)
    found = TPU.obstacle(case)
    assert found is None if why is None else why in found
    assert form_for("tpu", case).name == form_for("auto", case).name == ("exact" if why else "tpu")
