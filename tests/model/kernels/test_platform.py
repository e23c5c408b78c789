"""The type of products that `auto` stands for."""

import jax.numpy as jnp
import pytest

from bert_jax.config.model import ModelConfig
from bert_jax.model.kernels import platform
from bert_jax.model.kernels.platform import compute_dtype, for_inference


@pytest.fixture
def flags(monkeypatch):
    """Sets the instruction sets that this machine's CPU is taken to have."""
    monkeypatch.delenv("BERT_JAX_AUTO_DTYPE")
    return lambda *names: monkeypatch.setattr(platform, "cpu_flags", lambda: frozenset(names))


@pytest.mark.parametrize(
    "has, dtype",
    [((), "float32"), (("avx512f", "avx512_bf16"), "bfloat16"), (("amx_bf16",), "bfloat16"), (("avx2",), "float32")],
)
def test_cpus_take_bfloat16_where_they_multiply_it(flags, has, dtype):
    flags(*has)
    assert compute_dtype(ModelConfig.tiny()) == jnp.dtype(dtype)
    assert compute_dtype(ModelConfig.tiny(compute_dtype="float32")) == jnp.float32  # a given type is taken anywhere


def test_accelerators_take_bfloat16(flags, monkeypatch):
    flags()
    monkeypatch.setattr(platform, "platform", lambda: "tpu")
    assert compute_dtype(ModelConfig.tiny()) == jnp.bfloat16


@pytest.mark.parametrize("trained_in", ["auto", "bfloat16"])
def test_inference_on_cpus_is_in_float32_unless_asked(flags, monkeypatch, trained_in):
    flags("avx512_bf16")
    config = ModelConfig.tiny(compute_dtype=trained_in)
    assert compute_dtype(for_inference(config)) == jnp.float32
    assert compute_dtype(for_inference(config, "bfloat16")) == jnp.bfloat16
    monkeypatch.setattr(platform, "platform", lambda: "tpu")
    assert for_inference(config) == config
