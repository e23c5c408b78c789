"""Attention's implementations (forms) in one table, and the choice among them: for TPUs bert_jax's own kernel where a
row's keys fit on the chip, and JAX's splash attention for longer rows; for NVIDIA GPUs a kernel with dropout inside.

The kernels' modules are imported at their first use, because Pallas takes a second to import.
"""

import functools
import math
from collections.abc import Iterable

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Key, UInt32

from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import AttentionForm, ExecutionConfig
from bert_jax.model.attention_pattern import AttentionPattern
from bert_jax.model.exact_attention import EXACT, is_in_strips
from bert_jax.model.kernels.attention_blocks import LANES, Admission, TpuKernel
from bert_jax.model.kernels.attention_form import AttentionCase, Form, head_shards, on_every_device
from bert_jax.model.kernels.platform import is_ampere_or_newer
from bert_jax.model.placement import BATCH_AXES
from bert_jax.system.errors import Setting, UsageError

MOST_KEYS = {16: 512, 32: 1024, 64: 2048, 128: 2048, 256: 1024}
"""Tokens of the longest rows for bert_jax's own kernel, by the width of a head. Rows of this length fit in the chip's
fast memory with every attention pattern in float32. This was found with libtpu 0.0.42 for v4, the chip with the least
fast memory."""
_WIDEST = 256
"""Most features of a head in splash attention, so that its programs fit in the chip's memory in float32."""
_HEAD_SIZES = (16, 32, 64, 128)
_LEAST_BLOCK = 32
"""Tokens of the smallest block; the length of a row must be a multiple of it."""


def _tpu_obstacle(case: AttentionCase) -> str | None:
    """Why no kernel can compute `case`; None if one can."""
    if case.platform != "tpu":
        return f"this is a {case.platform.upper()}, and the kernel is for TPUs"
    return _obstacle_of_long_rows(case) if is_in_strips(case.length, case.length) else _obstacle_of_short_rows(case)


def _obstacle_of_short_rows(case: AttentionCase) -> str | None:
    heads, size, length = case.heads, case.head_size, case.length
    if size not in MOST_KEYS:
        return f"heads of width {size}, and the kernel is for {', '.join(map(str, MOST_KEYS))}"
    if heads * size % LANES:
        return f"{heads} heads of {size} that take up {heads * size} lanes together, not a multiple of {LANES}"
    if length % LANES or length > MOST_KEYS[size]:
        return f"rows of {length:,} tokens, not a multiple of {LANES} up to {MOST_KEYS[size]:,}"
    if case.some_queries:
        return "queries at some tokens of a row alone, and the kernel is for all"
    return None


def _obstacle_of_long_rows(case: AttentionCase) -> str | None:
    rows = f"rows of {case.length:,} tokens"
    if case.dropout:
        return f"{rows} with attention's dropout at {case.dropout:g}, and the kernel for long rows has none"
    if case.head_size > _WIDEST:
        return f"heads of width {case.head_size}, and the kernel for long rows is for up to {_WIDEST}"
    if case.length % LANES:
        return f"{rows}, not a multiple of {LANES}"
    if case.some_queries and (case.causal or case.window is not None):
        return "queries at some tokens of a row alone that attend to different keys, and the kernel is for all tokens"
    return None


def _tpu_attend(
    query: Float[Array, "B T H K"],
    key: Float[Array, "B S H K"],
    value: Float[Array, "B S H K"],
    pattern: AttentionPattern,
    rate: float,
    dropout_keys: Key[Array, "B N H"] | None,
) -> Float[Array, "B T H K"]:
    """Computes attention by one of the TPU's kernels."""
    if is_in_strips(key.shape[1], key.shape[1]):
        from bert_jax.model.kernels import splash_attention

        return splash_attention.splash_attention(query, key, value, pattern)
    from bert_jax.model.kernels import tpu_attention

    batch, length, heads, size = key.shape
    keys = _key_words(dropout_keys, (batch, pattern.sequences, heads, 2))
    rate = 0.0 if dropout_keys is None else rate
    kernel = TpuKernel(
        heads=heads // head_shards(),
        head_size=size,
        rate=rate,
        admission=Admission(pattern.sequences, pattern.causal, pattern.window),
    )
    features, rows = P(BATCH_AXES, None, "tensor"), P(BATCH_AXES)
    attend_here = on_every_device(
        functools.partial(tpu_attention.tpu_attention, kernel),
        (features, features, features, rows, P(BATCH_AXES, None, "tensor")),
        features,
    )
    places = jnp.stack([pattern.keys.sequence, pattern.keys.position], axis=1)
    flat = (each.reshape(batch, length, -1) for each in (query, key, value))
    return attend_here(*flat, places, keys).reshape(query.shape)


TPU = Form("tpu", _tpu_obstacle, _tpu_attend, whole_arrays=True)


def _gpu_obstacle(case: AttentionCase) -> str | None:
    """Why the kernel can't compute `case`; None if it can."""
    if case.platform != "gpu":
        return f"this is a {case.platform.upper()}, and the kernel is for NVIDIA's GPUs"
    if not is_ampere_or_newer():
        return "the kernel needs an NVIDIA GPU of compute capability 8.0 or higher"
    if case.dtype != jnp.bfloat16:
        return f"activations are {case.dtype.name}, and the kernel is for bfloat16"
    if case.head_size not in _HEAD_SIZES:
        return f"heads have width {case.head_size}; the kernel supports {', '.join(map(str, _HEAD_SIZES))}"
    if case.length % _LEAST_BLOCK:
        return f"rows of {case.length:,} tokens, not a multiple of {_LEAST_BLOCK}"
    if case.some_queries:
        return "only some tokens of a row are queries, and the kernel needs all of them"
    return None


def _gpu_attend(
    query: Float[Array, "B T H K"],
    key: Float[Array, "B T H K"],
    value: Float[Array, "B T H K"],
    pattern: AttentionPattern,
    rate: float,
    dropout_keys: Key[Array, "B N H"] | None,
) -> Float[Array, "B T H K"]:
    """Computes attention by the GPU's kernel."""
    from bert_jax.model.kernels import gpu_attention

    batch, length, heads, _ = key.shape
    keys = _key_words(dropout_keys, (batch, pattern.sequences, heads, 2))
    rate = 0.0 if dropout_keys is None else rate
    block = functools.partial(math.gcd, length)
    kernel = gpu_attention.GpuKernel(
        key.shape[3],
        rate,
        Admission(pattern.sequences, pattern.causal, pattern.window),
        # The fastest of the tried settings on an H200, for heads of 64 and rows of 128 and 512.
        forward=gpu_attention.Tiling(block(128), block(64), warps=4, stages=3),
        key_tiling=gpu_attention.Tiling(block(64), block(64), warps=4, stages=3),
        query_tiling=gpu_attention.Tiling(block(64), block(64), warps=4, stages=2),
    )
    by_head = P(BATCH_AXES, None, "tensor")
    attend_here = on_every_device(
        functools.partial(gpu_attention.gpu_attention, kernel),
        (P(BATCH_AXES, None, None, "tensor"), P(BATCH_AXES), by_head),
        by_head,
    )
    places = jnp.stack([pattern.keys.sequence, pattern.keys.position], axis=1)
    # If the three are slices of one product, XLA removes the stack.
    return attend_here(jnp.stack([query, key, value], axis=2), places, keys)


GPU = Form("gpu", _gpu_obstacle, _gpu_attend)


def _key_words(dropout_keys: Key[Array, "B N H"] | None, shape: tuple[int, ...]) -> UInt32[Array, "B N H 2"]:
    """The words of the keys of dropout; zeros of `shape` without dropout."""
    return jnp.zeros(shape, jnp.uint32) if dropout_keys is None else jax.random.key_data(dropout_keys)


FORMS: dict[AttentionForm, tuple[Form, ...]] = {
    "auto": (TPU, GPU),
    "exact": (EXACT,),
    "tpu": (TPU,),
    "gpu": (GPU,),
}
"""The candidate forms of each setting, in order. The first usable one is chosen, or the exact form if none is."""


def form_for(name: AttentionForm, case: AttentionCase) -> Form:
    """The first form of a setting that can be used for `case`; the exact form if none can."""
    return next((form for form in FORMS[name] if not _obstacle(form, case)), EXACT)


def _obstacle(form: Form, case: AttentionCase) -> str | None:
    """Why `form` can't be used for `case`; None if it can."""
    if case.has_score_terms and form is not EXACT:
        return f"{Setting('model.positions')} adds terms to the scores, which no kernel does"
    return form.obstacle(case)


def training_forms(
    name: AttentionForm, config: ModelConfig, length: int, sequences: int, mesh: Mesh | AbstractMesh
) -> tuple[Form, Form]:
    """The forms of global and of local attention in a training on rows of `length` tokens and at most `sequences`
    sequences."""
    whole, local = (_training_case(config, length, sequences, mesh, local) for local in (False, True))
    return form_for(name, whole), form_for(name, local)


def check_attention(
    execution: ExecutionConfig, config: ModelConfig, rows: Iterable[tuple[int, int]], mesh: Mesh
) -> None:
    """Raises UsageError if `execution.attention` names a form that can't be used for training on `rows`. Each of `rows`
    is (tokens, largest number of sequences)."""
    name = execution.attention
    if name == "auto":
        return
    (form,) = FORMS[name]
    for length, sequences in rows:
        if reason := _obstacle(form, _training_case(config, length, sequences, mesh)):
            raise UsageError(f"{Setting('execution.attention', name)} can't be used: {reason}; set it to auto or exact")


def _training_case(
    config: ModelConfig, length: int, sequences: int, mesh: Mesh | AbstractMesh, local: bool = False
) -> AttentionCase:
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        rate = config.attention_dropout
        return AttentionCase.of(config, length, dropout=rate, sequences=sequences, local=local)
