import functools
import json
from pathlib import Path

import jax
import numpy as np
import pytest

from bert_jax.cli.main import run
from bert_jax.model.sharding import make_mesh
from bert_jax.planning import bench as bench_module
from bert_jax.planning import rates
from bert_jax.planning.bench import bench
from bert_jax.planning.bench_record import Part, Timing
from bert_jax.planning.program import Program
from bert_jax.planning.rates import Limit, RateProbes
from bert_jax.planning.traffic import traffic
from bert_jax.pretraining.objective import pretraining_trainer
from bert_jax.training.batch import synthetic_batch
from bert_jax.training.devices import CHIPS, Chip

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def quick_rates():
    """Rates by small products and a short copy."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rates, "_CPU_SIZES", (128, 256))
        patched.setattr(rates, "copy", functools.partial(rates.copy, 1 << 20))
        yield


@pytest.fixture(scope="module")
def trainer(tiny_config):
    return pretraining_trainer(tiny_config, make_mesh(tiny_config.mesh), 150, mask_id=4)


@pytest.fixture(scope="module")
def measured(trainer, quick_rates):
    return bench(trainer, seconds=0.1)


def test_its_figures_belong_together(measured, trainer):
    forward, backward, optimizer, step = measured.parts
    assert step.time == measured.step and step.time.rounds >= 5 and step.time.low <= step.time.median <= step.time.high
    assert [part.name for part in measured.parts] == ["forward", "backward", "optimizer", "step"]
    assert forward.flops + backward.flops == pytest.approx(step.flops) == trainer.flops(0) and optimizer.flops == 0
    assert forward.bytes + backward.bytes + optimizer.bytes == step.bytes
    assert measured.sequences_per_second == pytest.approx(8 / measured.step.median)
    assert measured.tokens_per_second == pytest.approx(32 * measured.sequences_per_second)
    assert measured.model_flops_per_second == pytest.approx(trainer.flops(0) / measured.step.median)
    rate = measured.model_flops_per_second / measured.rates.matrix.measured
    assert 0 < measured.share_of_matrix_rate < 1 and measured.share_of_matrix_rate == pytest.approx(rate)
    assert measured.rates.matrix.measured > 1e8 and measured.rates.memory.measured > 1e8
    assert measured.peak_memory_bytes > 100e6
    assert measured.mfu is None and measured.input_sequences_per_second is None


def test_the_optimizer_moves_parameters_and_moments_at_least(measured, trainer):
    """It reads parameters, two moments and gradients, and writes the first three."""
    held = sum(4 * leaf.size for leaf in jax.tree.leaves(trainer.state_shapes.params))
    assert 6 * held < measured.parts[2].bytes < 20 * held


def test_the_bytes_of_a_loop_over_layers_count_every_turn(tiny_config, measured):
    """The compiler's own count has the body of a loop once."""
    looped = tiny_config.replace(execution=tiny_config.execution.replace(unroll=1))
    trainer = pretraining_trainer(looped, make_mesh(looped.mesh), 150, mask_id=4)
    step = trainer.train_step(0).lower(trainer.state_shapes, synthetic_batch(8, 32, 150)).compile()
    moved = traffic(Program(step.as_text()))
    assert 0.9 < moved / measured.parts[-1].bytes < 3


def test_times_are_taken_in_turn(monkeypatch):
    calls = []
    monkeypatch.setattr(bench_module, "_WARM_ROUNDS", 1)
    times = bench_module._timed_in_turn({name: lambda name=name: calls.append(name) for name in "ab"}, 0.0)
    assert calls == ["a", "b"] * 6 and len(times["a"]) == len(times["b"]) == 5


def test_a_short_last_item_does_not_keep_the_others_running(monkeypatch):
    """Until it had taken its seconds by itself the long one would take a thousand times as many."""
    clock = iter(range(10**6))
    monkeypatch.setattr(bench_module.time, "perf_counter", lambda: next(clock) / 1000)
    times = bench_module._timed_in_turn({"long": lambda: [next(clock) for _ in range(999)] and 0, "short": int}, 10.0)
    assert 10 < sum(times["long"]) < 25


def test_a_timing_tells_the_spread():
    timing = Timing.of([float(number) for number in range(11)])
    assert timing == Timing(median=5.0, low=1.0, high=9.0, rounds=11)


def test_made_up_rows_are_full_and_of_the_vocabulary():
    batch = synthetic_batch(4, 32, 150)
    assert batch.tokens.ids.shape == (4, 32) and batch.tokens.ids.max() < 150
    assert (batch.tokens.length == 32).all() and (batch.tokens.segment.sum(axis=1) == 16).all()
    assert ((batch.tokens.units > 0).sum(axis=1) == 29).all() and np.unique(batch.ordinal).size == 4
    packed = synthetic_batch(4, 32, 150, most=3)
    assert packed.tokens.length.tolist() == [[24, 8, 0]] * 4 and (packed.tokens.sequence > 0).all()
    assert packed.weight.tolist() == [[1, 1, 0]] * 4 and np.unique(packed.ordinal).size == 12


def test_a_run_in_place_of_a_config_is_measured_on_its_own_sequences(tiny_run, capsys, monkeypatch):
    """And beside the peak of the chip, where that is known."""
    monkeypatch.setitem(CHIPS, "cpu", Chip(1e12, memory_bandwidth=1e11))
    assert run(["bench", str(tiny_run.path), "--seconds", "0.01"]) == 0
    shown = capsys.readouterr().out
    printed = json.loads(shown.splitlines()[-1])
    settings = printed["settings"]
    assert "input alone" in shown and printed["input_sequences_per_second"] > 10
    assert (settings["batch_size"], settings["length"], settings["sequences"]) == (8, 32, "of a run")
    assert printed["mfu"] == pytest.approx(printed["model_flops_per_second"] / 1e12)
    matrix, memory = printed["rates"]["matrix"], printed["rates"]["memory"]
    assert memory["source"] == "data sheet" and memory["per_second"] == 1e11 and memory["measured"] != 1e11
    assert matrix["source"] == "measured"  # the data sheet's is that of bfloat16, and this is float32
    probes = RateProbes("bfloat16")
    assert probes.rates(dict.fromkeys(probes.work, [1.0])).matrix.per_second == 1e12


def test_a_batch_that_does_not_fit_is_one_line(capsys):
    flags = ["--length", "1024"]
    assert run(["bench", str(ROOT / "configs" / "tiny.py"), *flags]) == 2
    assert "--phases.0.length=1024 is more than --model.max-positions=512" in capsys.readouterr().err


def test_a_difference_that_is_lost_in_the_noise_has_no_share_of_its_limit():
    for low, share in ((0.5, 0.5), (-0.5, None)):
        time = Timing(median=1.0, low=low, high=2.0, rounds=5)
        limit = Limit(seconds=0.5, binds="bytes")
        assert Part(name="any", flops=0, bytes=10, limit=limit, time=time).limit_share == share
