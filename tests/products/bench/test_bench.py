"""A bench of the train step, and what it prints."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bert_jax.cli.main import run
from bert_jax.model.sharding import make_mesh
from bert_jax.pretraining.objective import pretraining_trainer
from bert_jax.products.bench import bench as bench_module
from bert_jax.products.bench.bench import bench
from bert_jax.products.bench.step_bench import BENCH_FORMAT, Timing
from bert_jax.training import devices
from bert_jax.training.batch import synthetic_batch
from bert_jax.training.devices import CHIPS, Chip

ROOT = Path(__file__).parents[3]
CONFIG = str(ROOT / "configs" / "tiny.py")
FLAGS = "--batch-size 2 --length 16 --seconds 0.01 --vocabulary.size 200 --model.compute-dtype float32".split()
LIBRARIES = (
    "grain orbax tensorflow_datasets array_record tokenizers sentencepiece sentencex zstandard tensorboardX pyarrow"
)
BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in LIBRARIES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
LIBRARIES = set(sys.argv.pop(1).split())
sys.meta_path.insert(0, Blocked())
from bert_jax.cli.main import run
from bert_jax.products.bench import bench
bench._CPU_SIZES = (128,)
sys.exit(run(sys.argv[1:]))
"""


@pytest.fixture(scope="module", autouse=True)
def small_products():
    """The matrix rate by small products."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bench_module, "_CPU_SIZES", (128, 256))
        yield


@pytest.fixture(scope="module")
def trainer(tiny_config):
    return pretraining_trainer(tiny_config, make_mesh(tiny_config.mesh), 150)


@pytest.fixture(scope="module")
def measured(trainer, small_products):
    return bench(trainer, seconds=0.1)


@pytest.mark.long
def test_its_figures_belong_together(measured, trainer):
    forward, backward, optimizer, step = measured.parts
    assert step.time == measured.step and step.time.rounds >= 5 and step.time.low <= step.time.median <= step.time.high
    assert [part.name for part in measured.parts] == ["forward", "backward", "optimizer", "step"]
    assert forward.flops + backward.flops == pytest.approx(step.flops) == trainer.flops(0) and optimizer.flops == 0
    assert measured.sequences_per_second == pytest.approx(8 / measured.step.median)
    assert measured.tokens_per_second == pytest.approx(32 * measured.sequences_per_second)
    assert measured.model_flops_per_second == pytest.approx(trainer.flops(0) / measured.step.median)
    rate = measured.model_flops_per_second / measured.matrix_rate
    assert 0 < measured.share_of_matrix_rate < 1 and measured.share_of_matrix_rate == pytest.approx(rate)
    assert step.matrix_share == pytest.approx(rate) and step.step_share == 1
    assert measured.matrix_rate > 1e8 and measured.peak_memory_bytes > 100e6
    assert measured.mfu is None and measured.input_sequences_per_second is None


def test_a_difference_that_is_lost_in_the_noise_has_no_share_of_the_matrix_rate():
    seconds = [1.0, 1.1, 0.9, 1.0, 1.2]
    times = {"forward": seconds, "gradients": seconds, "step": [2.0] * 5}
    forward, backward, optimizer, step = bench_module._parts(times, flops=30.0, forward=10.0, rate=20.0)
    assert backward.matrix_share is None and backward.time.median == 0
    assert forward.matrix_share == pytest.approx(10 / 20) and step.matrix_share == pytest.approx(15 / 20)
    assert optimizer.matrix_share == 0 and optimizer.step_share == pytest.approx(0.5)


def test_times_are_taken_in_turn(monkeypatch):
    calls = []
    monkeypatch.setattr(devices, "_WARM_ROUNDS", 1)
    times = devices.timed_in_turn({name: lambda name=name: calls.append(name) for name in "ab"}, 0.0)
    assert calls == ["a", "b"] * 6 and len(times["a"]) == len(times["b"]) == 5


def test_a_short_last_item_does_not_keep_the_others_running():
    """Until it had taken its seconds by itself the long one would take a thousand times as many."""
    clock = iter(range(10**6))
    work = {"long": lambda: [next(clock) for _ in range(999)] and 0, "short": int}
    times = devices.timed_in_turn(work, 10.0, lambda: next(clock) / 1000)
    assert 10 < sum(times["long"]) < 25


def test_a_timing_tells_the_spread():
    measured = Timing.of([float(number) for number in range(11)])
    assert measured == Timing(median=5.0, low=1.0, high=9.0, rounds=11)


def test_made_up_rows_are_full_and_of_the_vocabulary():
    batch = synthetic_batch(4, 32, 150)
    assert batch.tokens.ids.shape == (4, 32) and batch.tokens.ids.max() < 150
    assert (batch.tokens.length == 32).all() and (batch.tokens.segment.sum(axis=1) == 16).all()
    assert ((batch.tokens.units > 0).sum(axis=1) == 29).all() and np.unique(batch.ordinal).size == 4
    packed = synthetic_batch(4, 32, 150, most=3)
    assert packed.tokens.length.tolist() == [[24, 8, 0]] * 4 and (packed.tokens.sequence > 0).all()
    assert packed.weight.tolist() == [[1, 1, 0]] * 4 and np.unique(packed.ordinal).size == 12


@pytest.mark.long
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
    # The data sheet's rate is that of bfloat16, and this is float32.
    assert printed["rates"]["matrix"]["source"] == "measured"
    rate = bench_module._matrix_rate(2e11, np.dtype("bfloat16"))
    assert (rate.per_second, rate.source, rate.measured) == (1e12, "data sheet", 2e11)


def test_a_batch_that_does_not_fit_is_one_line(capsys):
    assert run(["bench", CONFIG, "--length", "1024"]) == 2
    assert "--phases.0.length=1024 is more than --model.max-positions=512" in capsys.readouterr().err


@pytest.mark.long
def test_where_only_jax_is_installed_it_tells_the_machine_the_versions_the_settings_and_the_source_of_the_rates():
    line = [sys.executable, "-c", BLOCKED, LIBRARIES, "bench", CONFIG, *FLAGS]
    done = subprocess.run(line, capture_output=True, text=True, cwd=ROOT, env=os.environ | {"COLUMNS": "100"})
    assert done.returncode == 0, done.stderr
    for words in ("matrix products", "share of that", "compilation", "forward", "backward", "optimizer"):
        assert words in done.stdout
    printed = json.loads(done.stdout.splitlines()[-1])
    assert printed["kind"] == "bert-jax bench" and printed["format"] == BENCH_FORMAT
    assert set(printed["versions"]) == {"bert_jax", "jax", "jaxlib"}
    assert printed["machine"]["platform"] == printed["machine"]["device"] == "cpu" and printed["machine"]["processor"]
    expected = {
        "batch_size": 2,
        "length": 16,
        "compute_dtype": "float32",
        "model.num_layers": 2,
        "model.vocabulary_size": 200,
        "model.dropout": 0.1,
        "objective.predict": "masked",
        "objective.pair": "next_sentence",
        "execution.attention": "exact",
        "execution.unroll": 2,
    }
    assert expected.items() <= printed["settings"].items()
    assert printed["rates"]["matrix"]["source"] == "measured" and printed["tokens_per_second"] > 0
    for part in printed["parts"]:
        assert part["flops"] >= 0 and {"step_share", "matrix_share"} < part.keys()
        assert part["time"]["low"] <= part["time"]["median"] <= part["time"]["high"] and part["time"]["rounds"] >= 5
