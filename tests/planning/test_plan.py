import json
from pathlib import Path

import jax
import pytest
from conftest import command

from bert_jax.cli import planning as plan_command
from bert_jax.cli.main import run
from bert_jax.config.model import ModelConfig
from bert_jax.config.phase import Phase
from bert_jax.config.run import RunConfig
from bert_jax.planning import plan as plan_module
from bert_jax.planning.collectives import Collective
from bert_jax.planning.plan import Planner, refusal
from bert_jax.planning.plan_record import Memory, PhasePlan, StepTime, work_of
from bert_jax.planning.topology import parse_topology
from bert_jax.system.errors import RunError, UsageError

CONFIGS = Path(__file__).parents[2] / "configs"
GIB = 2**30
RUN = RunConfig(
    model=ModelConfig.tiny(),
    phases=(Phase(steps=3600, length=128, batch_size=64), Phase(steps=360, length=512, batch_size=64)),
)


SLICE = parse_topology("v5e:2x2")
"""Four chips of 197 TFLOP/s, 819 GB/s and two links of 50 GB/s each."""


def memory_of(*sizes):
    return Memory(**dict(zip(Memory.model_fields, sizes, strict=True)))


class FakePlanner(Planner):
    """Stands in for the compiler: a sequence of 512 tokens takes 1 GiB and less with remat, the state 8 GiB."""

    def __init__(self, topology, vocabulary_size=0, exact=False):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(plan_module, "topology_devices", lambda topology: [])
            super().__init__(topology, vocabulary_size, exact)

    def trainer(self, config):
        if min(phase.batch_size for phase in config.phases) % (config.execution.accumulation * self.topology.chips):
            raise UsageError("doesn't divide")
        self.state_shapes = {}
        return self

    def phase(self, config, number):
        self.trainer(config)
        phase, execution = config.phases[number], config.execution
        rows = phase.batch_size / self.topology.chips / execution.accumulation
        kept = {"none": 1.0, "dots": 0.75, "full": 0.25}[execution.remat]
        state = 8 * GIB // max(config.mesh.fsdp, 1)
        memory = memory_of(state // 4, state - state // 4, 0, 0, int(rows * phase.length / 512 * kept * GIB), 0)
        fits = memory.total < self.topology.chip.memory
        chip, chips, links = self.topology.chip, self.topology.chips, max(self.topology.links, 1)
        work = {"computed": 0.5 * config.mesh.fsdp * chip.flops * chips, "moved": 0.3 * chip.memory_bandwidth}
        plan = PhasePlan(
            **work_of(number, phase, 10**15),
            mesh={"data": self.topology.chips // config.mesh.fsdp, "fsdp": config.mesh.fsdp},
            remat=execution.remat,
            accumulation=execution.accumulation,
            compile_seconds=30.0,
            needed_bytes=memory.total,
            available_bytes=round(self.topology.chip.memory),
            fits=fits,
            memory=memory if fits else None,
            collectives=[Collective(kind="all-reduce", count=13, bytes=10**9, sent=2 * 10**9)] if fits else [],
            time=StepTime.of(
                phase,
                self.topology,
                sequences=phase.batch_size,
                flops=1e15,
                **work,
                sent=0.2 * chip.link_bandwidth * links,
            )
            if fits
            else None,
            traffic_bytes=10**10 if fits else None,
        )
        with self._one_at_a_time:
            self.compilations += 1
            self.on_compiled(plan)
        return plan


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(plan_command, "Planner", FakePlanner)
    monkeypatch.setattr(plan_command, "can_compile", lambda: True)
    monkeypatch.setattr(plan_command, "version", lambda name: "0.0.1")


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
    work = {"flops": 4 * 197e12, "computed": 3 * 4 * 197e12, "moved": 4 * 819e9, "sent": 2 * 50e9}
    time = StepTime.of(RUN.phases[0], SLICE, sequences=64, **work)
    assert (time.compute, time.memory, time.links) == (3.0, 4.0, 1.0)
    assert (time.at_best.step_seconds, time.in_turn.step_seconds) == (4.0, 8.0)
    assert (time.in_turn.hours, time.in_turn.chip_hours) == (8.0, 32.0)
    assert time.at_best.mfu == pytest.approx(1 / 4) and time.at_best.sequences_per_second == 16
    assert memory_of(1, 2, 3, 4, 5, 6).total == 21


def test_the_tables_show_what_was_found(fake, capsys):
    assert run(["plan", str(CONFIGS / "tiny.py"), "--topology", "v5e:16x16"]) == 0
    shown = capsys.readouterr()
    for words in (
        "temporaries",
        "all-reduce",
        "13 x, 1.00 GB, 2.00 GB",
        "15.75 GiB",
        "chip-hours",
        "MFU",
        "256 x TPU v5e",
    ):
        assert words in shown.out
    assert "doesn't fit" not in shown.out
    assert "Compiled with the least effort" in shown.out
    assert run(["plan", str(CONFIGS / "tiny.py"), "--topology", "v5e:16x16", "--exact"]) == 0
    assert "effort" not in capsys.readouterr().out


def test_what_does_not_fit_is_shown_with_what_to_try(fake, capsys):
    assert run(["plan", str(CONFIGS / "tiny.py"), "--topology", "v5e:4x4"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "It doesn't fit. Try a larger --execution.accumulation, --execution.remat" in shown
    assert "smaller batch" in shown and "All phases" not in shown


def test_json_is_all_that_is_printed(fake, capsys):
    assert run(["plan", str(CONFIGS / "tiny.py"), "--topology", "v5e:4x4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["topology"] == "v5e:4x4" and found["chips"] == 16 and found["compiled"] and not found["fits"]
    assert [phase["fits"] for phase in found["phases"]] == [True, False] and found["phases"][1]["memory"] is None
    assert found["phases"][0]["memory"]["total"] == found["phases"][0]["needed_bytes"] == 12 * GIB
    assert found["total"] is None
    best, hours = found["phases"][0]["time"]["at_best"], 900_000 * 0.5 / 3600
    assert best["step_seconds"] == 0.5 and (best["hours"], best["chip_hours"]) == (hours, hours * 16)
    assert run(["plan", str(CONFIGS / "tiny.py"), "--topology", "v5e:16x16", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["fits"] and found["total"]["at_best"]["hours"] == pytest.approx(1_000_000 * 0.5 / 3600)


def test_without_the_compiler_there_are_formulas(monkeypatch, capsys):
    monkeypatch.setattr(plan_command, "can_compile", lambda: False)
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


def test_the_real_step_is_compiled_for_a_slice(config_file):
    """In a process of its own: another test may have set up this one's devices."""
    pytest.importorskip("libtpu")
    line = ["plan", config_file, "--topology", "v5e:2x2", "--mesh.fsdp", 2, "--model.num-layers", 1, "--json"]
    process = command(*line, JAX_PLATFORMS="")
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    found = json.loads(said.splitlines()[-1])
    [phase] = found["phases"]
    memory = phase["memory"]
    assert not found["exact"]
    assert found["fits"] and phase["mesh"]["data"] == phase["mesh"]["fsdp"] == 2
    # Adam keeps two numbers a parameter; biases and norms, which are not split, take the rest over a half.
    assert 4 * found["parameters"] / 2 < memory["parameters"] < 4 * found["parameters"]
    assert memory["optimizer"] == pytest.approx(2 * memory["parameters"], rel=0.01)
    assert memory["temporaries"] > 0 and sum(memory.values()) == 2 * memory["total"]
    kinds = {each["kind"] for each in phase["collectives"]}
    assert "all-gather" in kinds and kinds & {"all-reduce", "reduce-scatter"}
    assert 0 < phase["time"]["at_best"]["step_seconds"] <= phase["time"]["in_turn"]["step_seconds"] < 1
