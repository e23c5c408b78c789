from bert_jax.training.devices import compiler_options


def test_options_of_the_compiler_are_those_of_the_device_and_not_what_the_user_has_set(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_enable_triton_gemm=true")
    assert compiler_options("gpu") == {"xla_gpu_enable_latency_hiding_scheduler": True, "xla_gpu_autotune_level": 0}
    monkeypatch.delenv("XLA_FLAGS")
    assert compiler_options("gpu")["xla_gpu_enable_triton_gemm"] is False
    assert compiler_options("cpu") == compiler_options("tpu") == {}
