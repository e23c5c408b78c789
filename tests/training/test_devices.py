import jax.numpy as jnp
import pytest

from bert_jax.training.devices import SquareProduct, compiler_options


def test_options_of_the_compiler_are_those_of_the_device_and_not_what_the_user_has_set(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_enable_triton_gemm=true")
    assert compiler_options("gpu") == {"xla_gpu_enable_latency_hiding_scheduler": True, "xla_gpu_autotune_level": 0}
    monkeypatch.delenv("XLA_FLAGS")
    assert compiler_options("gpu")["xla_gpu_enable_triton_gemm"] is False
    assert compiler_options("tpu") == compiler_options("cpu") == {}  # tests compile at XLA's lowest level
    monkeypatch.delenv("JAX_DISABLE_MOST_OPTIMIZATIONS")
    assert compiler_options("cpu") == {"xla_backend_optimization_level": 1}
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=3")
    assert not compiler_options("cpu")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_square_products_are_of_the_compute_dtype_with_float32_results(dtype):
    product = SquareProduct.of(16, dtype)
    assert product.run().dtype == jnp.float32 and product.flops == 2 * 16**3
