"""The compiler is right about the parts of a step for many rows, and one that isn't is refused."""

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
import pytest

from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import ExecutionConfig, MeshConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import Phase
from bert_jax.model.exact_attention import EXACT
from bert_jax.model.kernels.attention_forms import FORMS, GPU
from bert_jax.model.sharding import make_mesh
from bert_jax.pretraining.objective import pretraining_trainer
from bert_jax.pretraining.pretrain import pretrain
from bert_jax.system.errors import RunError
from bert_jax.training import trust
from bert_jax.training.batch import synthetic_batch
from bert_jax.training.trust import CheckedPart, check_compiler, difference


def random(*shape):
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


@pytest.fixture
def unchecked(tmp_path, monkeypatch):
    """No check has passed on this machine yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.skipif(jaxlib.__version__ != "0.10.2", reason="the fault of jaxlib 0.10.2")
def test_the_fault_of_this_jaxlib_is_found():
    squares = jax.vmap(lambda row: jnp.sum((jnp.eye(3) @ row) ** 2))
    assert "of 40,000 values" in difference(CheckedPart("squares", squares, (jnp.asarray(random(40_000, 3)),)))


def test_a_part_that_compiles_to_something_else_is_refused(unchecked, monkeypatch):
    wrong = CheckedPart("the wrong part", lambda x: x + 1, (jnp.ones(3),), reference=lambda x: x)
    monkeypatch.setattr(trust, "parts_to_check", lambda attention: [wrong])
    with pytest.raises(
        RunError, match="computes the wrong part wrong .* 3 of 3 values, the first 2 instead of 1. Install"
    ):
        check_compiler()
    assert not list(unchecked.rglob("*.json"))


def test_a_jaxlib_without_an_option_of_the_reference_computes_it_one_by_one(monkeypatch):
    monkeypatch.setitem(trust._UNFUSED, "xla_no_such_option", True)
    assert difference(CheckedPart("sum", lambda x: x.sum(-1), (jnp.ones((3, 4)),))) is None


@pytest.mark.parametrize("dtype, wrong", [("bfloat16", False), ("float32", True)])
def test_results_are_compared_by_the_type_that_a_part_computes_in(dtype, wrong):
    """Products in bfloat16 have float32 gradients if their arguments are float32, rounded as AMX or the plain loops
    round them."""
    rounded = lambda x: x.astype(jnp.bfloat16).astype(jnp.float32)
    part = CheckedPart("rounded", rounded, (jnp.asarray(random(100)),), reference=lambda x: x, dtype=dtype)
    assert bool(difference(part)) == wrong


def test_not_a_number_is_wrong():
    assert difference(CheckedPart("infinite", lambda x: x / 0, (jnp.zeros(3),), reference=lambda x: x))


def test_a_machine_is_checked_once(unchecked, monkeypatch):
    checked = []
    monkeypatch.setattr(trust, "parts_to_check", lambda attention: checked.append(attention) or [])
    check_compiler()
    check_compiler()
    assert len(checked) == 1
    monkeypatch.setenv("XLA_FLAGS", "--xla_another")
    check_compiler()
    assert len(checked) == 2


def test_a_record_that_cannot_be_written_stops_no_training(unchecked, monkeypatch):
    monkeypatch.setattr(trust, "parts_to_check", lambda attention: [])
    (unchecked / "bert_jax").mkdir()
    (unchecked / "bert_jax/trusted").touch()  # a file where the folder of records should be
    check_compiler()
    assert not list(unchecked.rglob("trusted/*.json"))


def test_the_parts_of_a_step_are_right_here():
    assert {part.name: difference(part) for part in trust.parts_to_check()} == {
        part.name: None for part in trust.parts_to_check()
    }


@pytest.mark.long
def test_a_step_of_many_tokens_is_that_of_its_microbatches():
    """66,560 tokens, whole and in 16 parts of 4,160."""
    losses = {}
    for accumulation in (1, 16):
        config = RunConfig(
            model=ModelConfig(num_layers=1, hidden_size=16, num_heads=2, max_positions=64, compute_dtype="float32"),
            phases=(Phase(steps=1, length=64, batch_size=1040),),
            execution=ExecutionConfig(accumulation=accumulation),
        )
        trainer = pretraining_trainer(config, make_mesh(MeshConfig()), 50)
        _, measured = trainer.train_step(0)(trainer.initial_state(), synthetic_batch(1040, 64, 50))
        losses[accumulation] = [float(measured[name].value) for name in ("loss", "grad_norm")]
    np.testing.assert_allclose(losses[1], losses[16], rtol=1e-5)


@pytest.mark.long
def test_a_kernel_of_attention_is_checked_where_there_is_one(interpreted, monkeypatch):
    """Beside the exact form; on a machine without a kernel there is nothing to check."""
    monkeypatch.setattr(trust, "_ATTENTION", (1, 128, 1))
    kernels = lambda: [part for part in trust.parts_to_check() if part.reference]
    assert not kernels()
    monkeypatch.setattr(trust, "platform", lambda: "gpu")
    assert [difference(part) for part in kernels()] == [None, None]
    assert not [part for part in trust.parts_to_check("exact") if part.reference]
    wrong = GPU._replace(attend=lambda *arrays_and_more: 1.1 * EXACT.attend(*arrays_and_more))
    monkeypatch.setitem(FORMS, "auto", (wrong,))
    assert all("values, the first" in difference(part) for part in kernels())


@pytest.mark.parametrize("reference, remedy", [(None, "jaxlib or"), (jnp.sin, "use --execution.attention exact or")])
def test_a_part_that_does_not_compile_is_refused_in_one_line(unchecked, monkeypatch, reference, remedy):
    def refuse(x):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Shared memory size limit exceeded\nand more")

    part = CheckedPart("the attention kernel", refuse, (jnp.ones(3),), reference)
    monkeypatch.setattr(trust, "parts_to_check", lambda attention: [part])
    with pytest.raises(RunError, match=f"Shared memory size limit exceeded. Install another .* {remedy}"):
        check_compiler()


def test_a_wrong_compiler_ends_a_training_before_a_result_is_used(tiny_config, untrained, monkeypatch):
    def refuse(attention):
        raise RunError("jaxlib computes LayerNorm wrong")

    monkeypatch.setattr(trust, "check_compiler", refuse)
    config = tiny_config.set({"execution.check_compiler": True})
    with pytest.raises(RunError, match="computes LayerNorm wrong"):
        pretrain(config, untrained)
    assert not untrained.metrics_file.exists() and not untrained.checkpoints.exists()
