"""Checks that compiled code computes the parts of a training step correctly on this machine.

On CPUs, jaxlib 0.10.2 silently computes wrong sums for small products of many rows (jax issue 39103). On an Intel
Xeon, jaxlib 0.12.0.1 silently computes wrong gradients of LayerNorm for rows of 16 or 64 values. Training would
continue with these values. Therefore, before the first training on a machine, each part is computed once as XLA
compiles it and once operation by operation, and a difference raises RunError.
"""

import contextlib
import functools
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
import optax
from jaxtyping import Array, Float

from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import AttentionForm, ExecutionConfig
from bert_jax.config.wording import counted
from bert_jax.model.attention_pattern import AttentionPattern, Places
from bert_jax.model.exact_attention import EXACT, softmax_where
from bert_jax.model.heads import TokenLogits
from bert_jax.model.kernels.attention_form import AttentionCase
from bert_jax.model.kernels.attention_forms import form_for
from bert_jax.model.kernels.cross_entropy import cross_entropy, total_cross_entropy
from bert_jax.model.kernels.platform import cpu_flags, platform
from bert_jax.model.linear import LayerNorm, activation, project
from bert_jax.system.copies import cache_directory
from bert_jax.system.errors import RunError, Setting, first_line
from bert_jax.system.files import write_json
from bert_jax.system.progress import say
from bert_jax.training.devices import compiler_options

_ROWS = 40_000
"""Number of rows of each part: the fault of jaxlib 0.10.2 occurs from 32,769 rows on, and no longer at 65,536."""
_WIDTH = 16
_TOLERANCE = {"float32": 1e-4, "bfloat16": 3e-2}
"""Largest accepted difference by type, relative to the largest value. Rounding causes a tenth of it."""

_UNFUSED: dict[str, str | bool] = {
    "xla_disable_hlo_passes": "fusion",
    "xla_cpu_experimental_ynn_fusion_type": "",
    "xla_backend_optimization_level": "0",
}
"""Options of XLA's CPU compiler by which each operation is a separate loop, without vectorisation. Both faults above
are absent then, and compiling a part takes less than a fifth of the time that JAX takes to compile and call its
operations."""
_EMITTERS = "xla_cpu_use_fusion_emitters"
"""Turns on XLA's newer code generator. It compiles unfused operations four times as slowly as the older one, which
computes wrong sums in bfloat16. From jaxlib 0.12 on only the newer one exists, and the option is unknown."""

_ATTENTION = 8, 512, 8
"""Rows, tokens of a row and heads for which a kernel of attention is checked."""
_RATE = 0.1
"""Rate of dropout in the check of attention kernels."""
_TRAINING = Path(__file__).parent
_MODEL = _TRAINING.parent / "model"
_SETTINGS = ("XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS", "JAX_DEFAULT_MATMUL_PRECISION", "JAX_ENABLE_X64")
"""Environment variables that the compiled code depends on."""


class CheckedPart(NamedTuple):
    """A part of a step: the `function` and the arrays `arguments` that it is called with."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Array, ...]
    reference: Callable[..., Any] | None = None
    """Reference implementation; None means `function` itself."""
    dtype: str = "float32"
    """Least precise type that `function` computes in, by which its results and gradients are compared. The gradients
    of a product in bfloat16 are float32 if its arguments are, and still round as bfloat16 does."""


def parts_to_check(attention: AttentionForm = "auto") -> list[CheckedPart]:
    """The parts of a step that sum few values in each of many rows, and the kernel that `attention` chooses on this
    machine. `difference` also compares their gradients."""
    config = ModelConfig.tiny(compute_dtype="float32")
    rows, labels = _random(_ROWS, _WIDTH), jnp.arange(_ROWS) % 3
    # `difference` takes the cosine of the outputs, which would magnify the rounding of a large sum or norm.
    small = rows / 1000
    params = {"params": {"scale": jnp.ones(_WIDTH), "bias": jnp.zeros(_WIDTH)}}
    scores = _random(_ROWS // 80, 4, 20, 8)
    admitted = jnp.broadcast_to(jnp.arange(8) <= jnp.arange(20)[:, None] % 8, (_ROWS // 80, 20, 8))

    def classified(rows: Float[Array, "N D"], kernel: Float[Array, "D C"]) -> Float[Array, " N"]:
        outputs = project(rows, kernel, jnp.zeros(kernel.shape[1]), jnp.dtype(jnp.float32))
        return cross_entropy(outputs, labels % kernel.shape[1])[0]

    def total(vectors: Float[Array, "N D"], table: Float[Array, "C D"]) -> Float[Array, ""]:
        logits = TokenLogits(vectors[None], table, jnp.zeros(len(table)))
        count = len(vectors)
        return total_cross_entropy(logits, labels[None, :count], jnp.full((1, count), 1 / count))[0]

    def projected(dtype: str) -> Callable[[Array, Array], Array]:
        return lambda rows, kernel: project(rows, kernel, jnp.zeros(kernel.shape[1]), jnp.dtype(dtype))

    return [
        CheckedPart("LayerNorm", lambda rows: LayerNorm(config).apply(params, rows), (rows,)),
        CheckedPart("GELU", activation(config), (rows,)),
        CheckedPart("softmax", lambda scores: softmax_where(scores, admitted), (scores,)),
        *(CheckedPart(f"a head of {count} outputs", classified, (rows, _random(_WIDTH, count))) for count in (1, 2, 3)),
        CheckedPart("cross-entropy", lambda logits: cross_entropy(logits, labels)[0], (_random(_ROWS, 24),)),
        CheckedPart("cross-entropy by parts", total, (_random(_ROWS // 80, _WIDTH), _random(24, _WIDTH))),
        CheckedPart("the norm of gradients", lambda *leaves: optax.tree.norm(leaves), (small, small[:, :3])),
        *(
            CheckedPart(f"a product in {dtype}", projected(dtype), (rows, _random(_WIDTH, 24)), dtype=dtype)
            for dtype in _TOLERANCE
        ),
        *_attention_parts(attention),
    ]


def _attention_parts(attention: AttentionForm) -> list[CheckedPart]:
    """Parts that compare this device's attention kernel, if it has one, with the exact form: with dropout, in bfloat16,
    for rows of one and of two sequences."""
    rows, length, heads = _ATTENTION
    place = np.broadcast_to(np.arange(length), (rows, length))
    parts = []
    for sequences in (1, 2):
        case = AttentionCase(platform(), jnp.dtype(jnp.bfloat16), heads, 64, length, _RATE, sequences, False, None)
        form = form_for(attention, case)
        if form is EXACT:
            continue
        arrays = tuple(_random(3, rows, length, heads, 64).astype(jnp.bfloat16))
        second = (place >= length // 3) * (sequences - 1)
        places = Places(jnp.asarray(second + 1), jnp.asarray(place - second * (length // 3)))
        pattern = AttentionPattern(places, places, sequences)
        keys = jax.random.split(jax.random.key(0), (rows, sequences, heads))
        by_kernel, exactly = (
            functools.partial(_attended, each, pattern=pattern, keys=keys) for each in (form.attend, EXACT.attend)
        )
        name = f"the attention kernel for rows of {counted(sequences, 'sequences')}"
        parts.append(CheckedPart(name, by_kernel, arrays, exactly, dtype="bfloat16"))
    return parts


def _attended(attend: Callable[..., Array], query: Array, key: Array, value: Array, pattern, keys) -> Array:
    return attend(query, key, value, pattern, _RATE, keys)


@contextlib.contextmanager
def compiler_checked(settings: ExecutionConfig) -> Iterator[None]:
    """Checks the compiler while the block runs, if `settings` want it. Afterwards raises RunError for wrong results."""
    if not settings.check_compiler:
        yield
        return
    pool = ThreadPoolExecutor(1)
    check = pool.submit(check_compiler, settings.attention)
    pool.shutdown(wait=False)
    yield
    check.result()


def check_compiler(attention: AttentionForm = "auto") -> None:
    """Raises RunError if a compiled part differs from its operations computed one by one.

    The check takes a few seconds. It is repeated only if the machine, the version of JAX, the environment variables of
    XLA and JAX, the form of attention, or the code of the model or of training changes.
    """
    fields = _cache_key_fields(attention)
    key = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:24]
    passed = cache_directory() / "trusted" / f"{key}.json"
    if passed.exists():
        return
    begun = time.monotonic()
    for part in parts_to_check(attention):
        try:
            wrong = difference(part)
        except jax.errors.JaxRuntimeError as error:
            wrong = first_line(error)
        if wrong:
            exact = f", use {Setting('execution.attention')} exact" if part.reference else ""
            raise RunError(
                f"jaxlib {jaxlib.__version__} computes {part.name} wrong on this machine's "
                f"{jax.devices()[0].device_kind}: {wrong}. Install another version of jax and jaxlib{exact} or, on "
                "a CPU, set XLA_FLAGS=--xla_cpu_experimental_ynn_fusion_type= (slower); to train with this fault "
                f"anyway, add {Setting('execution.check_compiler', False)}"
            )
    say(f"checked that the compiler computes right on this machine ({time.monotonic() - begun:.0f} s, once)")
    try:
        passed.parent.mkdir(parents=True, exist_ok=True)
        write_json(passed, fields)
    except (OSError, RunError):
        pass  # another process wrote it, or the check is repeated next time


def difference(part: CheckedPart) -> str | None:
    """How the compiled results of `part` differ from the results of its operations computed one by one; None if they
    agree."""

    def gradients(function: Callable[..., Any]) -> Callable[..., Any]:
        def differentiated(*arguments):
            output, backward = jax.vjp(function, *arguments)
            # If cotangents were equal to the output, LayerNorm would have gradients of 0.
            return backward(jnp.cos(output))

        return differentiated

    reference = part.reference or part.function

    # Computes at the highest precision: accelerators otherwise round the factors of float32 products, which magnifies a
    # difference in the last digit. Compares the forward pass by itself, too, as an evaluation compiles it: with
    # residuals kept for the gradients, the compiled code is different.
    forward = jax.jit(part.function)
    backward = jax.jit(gradients(part.function), compiler_options=compiler_options(platform()))
    with jax.default_matmul_precision("highest"):
        compiled = jax.device_get([forward(*part.arguments), *backward(*part.arguments)])
        one_by_one = _one_by_one(lambda *each: [reference(*each), *gradients(reference)(*each)], part.arguments)
    tolerance = _TOLERANCE[part.dtype]
    for got, expected in zip(compiled, one_by_one, strict=True):
        got, expected = np.asarray(got, np.float64), np.asarray(expected, np.float64)
        largest = np.abs(expected).max()
        wrong = ~(np.abs(got - expected) <= tolerance * largest)  # NaN is wrong
        if wrong.any():
            first = np.unravel_index(np.argmax(wrong), wrong.shape)
            return f"{wrong.sum():,} of {wrong.size:,} values, the first {got[first]:g} instead of {expected[first]:g}"
    return None


def _one_by_one(function: Callable[..., list[Array]], arguments: tuple[Array, ...]) -> list[np.ndarray]:
    """The results of `function`, computed operation by operation."""
    if platform() == "cpu":
        lowered = jax.jit(function).lower(*arguments)
        options = _UNFUSED | {_EMITTERS: "bf16" in lowered.as_text()}
        with contextlib.suppress(jax.errors.JaxRuntimeError):  # another jaxlib may lack one of the options
            return jax.device_get(lowered.compile(options)(*arguments))
    with jax.disable_jit():
        return jax.device_get(function(*arguments))


def _random(*shape: int) -> Float[Array, "..."]:
    """Normal numbers by numpy: JAX would compile its generator for each shape."""
    return jnp.asarray(np.random.default_rng(len(shape)).standard_normal(shape, np.float32))


def _cache_key_fields(attention: AttentionForm) -> dict[str, Any]:
    """Everything that the compiled code depends on."""
    device = jax.devices()[0]
    code = sorted([*_MODEL.rglob("*.py"), *_TRAINING.glob("*.py")])
    return {
        "code": hashlib.sha256(b"".join(path.read_bytes() for path in code)).hexdigest(),
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
        "device": device.device_kind,
        "platform": device.client.platform_version,
        "cpu": sorted(cpu_flags()),
        "attention": attention,
        "settings": {name: os.environ[name] for name in _SETTINGS if name in os.environ},
    }
