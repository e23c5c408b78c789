import json
from pathlib import Path

import jax
import pytest
from conftest import command

from bert_jax.cli.main import run
from bert_jax.config.model import ModelConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import Phase
from bert_jax.products.plan import plan as plan_module
from bert_jax.products.plan.account import ChipMemory, CompiledPhase, StepWork
from bert_jax.products.plan.plan import refusal, step_time_of
from bert_jax.products.plan.topology import parse_topology
from bert_jax.system.errors import RunError

CONFIGS = Path(__file__).parents[3] / "configs"
TINY = str(CONFIGS / "tiny.py")
GIB = 2**30
SLICE = parse_topology("v5e:2x2")
"""Four chips of 197 TFLOP/s, 819 GB/s and two links of 50 GB/s each."""


def fake_phase(trainer, topology, number, exact):
    """In place of the compiler's: a step of 512 tokens needs 16 GiB, of fewer tokens or in more microbatches less."""
    config = trainer.config
    phase = config.phases[number]
    memory = ChipMemory(
        arguments=GIB,
        outputs=0,
        temporaries=GIB * phase.length // 32 // config.execution.accumulation - GIB,
        code=0,
    )
    fits = memory.total < topology.chip.memory
    work = {"phase": number, "steps": phase.steps, "length": phase.length, "batch_size": phase.batch_size}
    work = StepWork(**work, flops=0.5 * topology.chip.flops * topology.chips)
    return CompiledPhase(
        **dict(work),
        mesh=dict(trainer.mesh.shape),
        remat=config.execution.remat,
        accumulation=config.execution.accumulation,
        compile_seconds=30.0,
        memory=memory if fits else None,
        needed_bytes=memory.total,
        available_bytes=round(topology.chip.memory),
        fits=fits,
        traffic_bytes=10**10,
        sent_bytes=10**9,
        time=step_time_of(config, work, topology, moved=10**10, sent=10**9) if fits else None,
    )


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(plan_module, "topology_devices", lambda topology: jax.devices()[:1])
    monkeypatch.setattr(plan_module, "can_compile", lambda: True)
    monkeypatch.setattr(plan_module, "version", lambda name: "0.0.1")
    monkeypatch.setattr(plan_module, "compiled_phase", fake_phase)


def test_a_refusal_tells_what_was_needed():
    for said, needed in (
        (
            "Ran out of memory on HBM, the total memory required for HLO temporaries (277.50G) exceeds available HBM "
            "(15.75G). HLO module: jit_train_step.",
            277.5 * GIB,
        ),
        (
            "Ran out of memory in memory space hbm. Used 17.25G of 15.75G hbm. Exceeded hbm capacity by 1.5G.",
            17.25 * GIB,
        ),
        (
            "Aborting compilation early because it's unlikely to have enough device memory. Requires 512.00M, has 1K "
            "available.",
            512 * 2**20,
        ),
        ("somehow", None),
    ):
        assert refusal(f"RESOURCE_EXHAUSTED: {said}") == needed
    with pytest.raises(RunError, match="the TPU's compiler failed: INTERNAL: a bug"):
        refusal("INTERNAL: a bug\nand more")


def test_times_are_those_of_the_slowest_or_of_all():
    config = RunConfig(model=ModelConfig.tiny(), phases=(Phase(steps=3600, length=128, batch_size=64),))
    full = config.set({"execution.remat": "full"})
    work = StepWork(phase=0, steps=3600, length=128, batch_size=64, flops=4 * 197e12)
    time = step_time_of(config, work, SLICE, moved=int(4 * 819e9), sent=int(2 * 50e9))
    assert (time.compute, time.memory, time.links) == (1.0, 4.0, 1.0)
    assert step_time_of(full, work, SLICE, moved=0, sent=0).compute == pytest.approx(4 / 3)
    assert (time.at_best.step_seconds, time.in_turn.step_seconds) == (4.0, 6.0)
    assert (time.in_turn.hours, time.in_turn.chip_hours) == (6.0, 24.0)
    assert time.at_best.mfu == pytest.approx(1 / 4) and time.at_best.sequences_per_second == 16
    assert ChipMemory(arguments=1, outputs=2, temporaries=3, code=4).total == 10


def test_the_tables_show_what_was_found(fake, capsys):
    command = ["plan", TINY, "--topology", "v5e:1x1", "--execution.accumulation", "2"]
    assert run(command) == 0
    shown = capsys.readouterr()
    expected = ("temporaries", "10.00 GB", "1.00 GB", "15.75 GiB", "chip-hours", "MFU", "1 x TPU v5e", "least effort")
    for words in expected:
        assert words in shown.out
    assert "doesn't fit" not in shown.out
    assert run([*command, "--exact"]) == 0
    assert "effort" not in capsys.readouterr().out


def test_what_does_not_fit_is_shown_with_what_to_try(fake, capsys):
    assert run(["plan", TINY, "--topology", "v5e:1x1"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "It doesn't fit. Try a larger --execution.accumulation, --execution.remat" in shown
    assert "smaller batch" in shown and "All phases" not in shown


def test_json_is_all_that_is_printed(fake, capsys):
    command = ["plan", TINY, "--topology", "v5e:1x1", "--json"]
    assert run(command) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["topology"] == "v5e:1x1" and found["chips"] == 1 and found["compiled"] and not found["fits"]
    assert [phase["fits"] for phase in found["phases"]] == [True, False] and found["phases"][1]["memory"] is None
    assert found["phases"][0]["memory"]["total"] == found["phases"][0]["needed_bytes"] == 4 * GIB
    assert found["total"] is None and found["chip"]["flops"] == 197e12
    time = found["phases"][0]["time"]
    assert time["compute"] == time["at_best"]["step_seconds"] == 0.5 and time["memory"] == 1e10 / 819e9
    hours = 900_000 * 0.5 / 3600
    assert (time["at_best"]["hours"], time["at_best"]["chip_hours"]) == (hours, hours)
    assert run([*command, "--execution.accumulation", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["fits"] and found["total"]["at_best"]["hours"] == pytest.approx(1_000_000 * 0.5 / 3600)


def test_without_the_compiler_there_are_formulas(monkeypatch, capsys):
    monkeypatch.setattr(plan_module, "can_compile", lambda: False)
    assert run(["plan", str(CONFIGS / "base.py"), "--topology", "v4:4x4x4"]) == 0
    shown = capsys.readouterr()
    assert '-e ".[plan]" for memory' in shown.err
    assert "110,106,428 parameters, 64 x TPU v4" in " ".join(shown.out.split())
    assert run(["plan", str(CONFIGS / "base.py"), "--topology", "v4:4x4x4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert not found["compiled"] and found["parameters"] == 110_106_428
    assert [(phase["phase"], phase["length"]) for phase in found["phases"]] == [(0, 128), (1, 512)]
    assert found["phases"][0]["at_best"]["step_seconds"] == pytest.approx(found["phases"][0]["flops"] / 64 / 275e12)


def test_a_program_that_jax_can_not_read_names_the_pair_that_was_tested(monkeypatch):
    class Compiled:
        def as_text(self):
            raise jax.errors.JaxRuntimeError("INTERNAL: RET_CHECK failure\nmore")

    monkeypatch.setattr(plan_module, "version", lambda name: "9.9")
    said = r"can't read what libtpu 9.9 compiled \(INTERNAL: RET_CHECK failure\).*-c launch"
    with pytest.raises(RunError, match=said):
        plan_module.program_of(Compiled())


@pytest.mark.long
def test_the_real_step_is_compiled_for_a_slice(config_file):
    """In a process of its own: another test may have set up this one's devices."""
    pytest.importorskip("libtpu")
    line = ["plan", config_file, "--topology", "v5e:2x2", "--mesh.fsdp", 2, "--model.num-layers", 1, "--json"]
    process = command(*line, JAX_PLATFORMS="")
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    first, *_, last = said.splitlines()
    assert first == "Compiling 1 programs for v5e:2x2"  # and libtpu doesn't look for a TPU
    found = json.loads(last)
    [phase] = found["phases"]
    memory = phase["memory"]
    assert not found["exact"]
    assert found["fits"] and phase["mesh"]["data"] == phase["mesh"]["fsdp"] == 2
    # Parameters and Adam's two numbers for each; biases and norms, which are not split, take the rest over a half.
    # The layouts of such small arrays pad them.
    assert 3 * 4 * found["parameters"] / 2 < memory["arguments"] < 3 * 3 * 4 * found["parameters"]
    assert memory["temporaries"] > 0 and sum(memory.values()) == 2 * memory["total"]
    assert phase["traffic_bytes"] > 3 * 4 * found["parameters"] and phase["sent_bytes"] > 4 * found["parameters"] / 2
    assert 0 < phase["time"]["at_best"]["step_seconds"] <= phase["time"]["in_turn"]["step_seconds"] < 1
