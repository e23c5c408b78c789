"""launch/measure.py: a case measured on this machine, and what it makes of all that a process of bench may end with."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax.system.errors import UsageError
from bert_jax.training import devices as training_devices

SCRIPT = Path(__file__).parents[2] / "launch/measure.py"
SMALL = ["--model.num-layers", "1", "--model.hidden-size", "32", "--model.num-heads", "2", "--vocabulary.size", "100"]
BENCH = {
    "parts": [{"name": "forward"}, {"name": "step", "time": {"median": 0.25, "low": 0.2, "high": 0.3, "count": 9}}],
    "sequences_per_second": 256.0,
    "mfu": 0.5,
    "share_of_matrix_rate": 0.75,
    "peak_memory_bytes": 70 * 10**9,
    "compile_seconds": 33.0,
    "another": "kept",
}


class Devices:
    """Stands in for a machine: knows how each attempt ends, and which were made."""

    def __init__(self, script, path, most=64, name="NVIDIA H100", **options):
        self.script, self.most, self.name, self.ends, self.tried = script, most, name, {}, []
        sizes = {"configs": ("base",), "lengths": (512,), "dropout": ("all",), "attention": ("exact", "gpu")}
        self.options = script.Options(output=path, **sizes | {"batch_sizes": (128, 64, 32)} | options)

    def look(self, cases, batch_sizes, settings):
        refusals = {case: "no kernel" if case.attention == "gpu" else None for case in cases}
        prospects = {case: self.script.Prospect(why, [] if why else [*batch_sizes]) for case, why in refusals.items()}
        return self.script.Machine(self.name, 1, prospects)

    def run(self, flags, minutes):
        size = int(flags[flags.index("--batch-size") + 1])
        self.tried.append((flags[0], size))
        if size > self.most:
            return self.script.Attempt(1, "", "Traceback\nJaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory\n---\n")
        return self.ends.get(size, self.script.Attempt(0, f"a table\n{json.dumps(BENCH)}\n", ""))

    def measure(self, *settings):
        failed = self.script.measure(self.options, [*settings], self.look, self.run)
        return failed, json.loads(self.options.output.read_text())["cases"]


def test_the_largest_batch_that_fits_is_measured_and_all_of_its_figures_kept(script, tmp_path):
    devices = Devices(script, tmp_path / "new" / "h100.json")
    failed, (exact, kernel) = devices.measure()
    assert not failed and devices.tried == [("base", 128), ("base", 64)]
    assert (exact["batch_size"], exact["bench"], exact["remark"]) == (64, BENCH, None)
    assert (kernel["batch_size"], kernel["bench"], kernel["remark"]) == (None, None, "no kernel")
    first, _, head, _, *lines = (tmp_path / "new" / "h100.md").read_text().splitlines()
    assert first.startswith("1 x NVIDIA H100; jax ") and len({line.count("|") for line in (head, *lines)}) == 1
    row = (
        "| base | 512 | all | exact | 64 | 250.0 ms | 200.0 to 300.0 ms | 256.0 | 50.0% | 75.0% | 70.0 GB | 33.0 s |  |"
    )
    assert lines[0] == row and lines[1].endswith("|  | no kernel |")


def test_what_was_measured_is_not_measured_again(script, tmp_path):
    """Neither are cases for which there was no room; the file grows by what is asked for next."""
    small = Devices(script, tmp_path / "h100.json", most=16)
    assert small.measure()[1][0]["remark"] == "not even 32 sequences fit into memory"
    more = Devices(script, tmp_path / "h100.json", configs=("base", "large"))
    assert [row["config"] for row in more.measure()[1]] == ["base", "base", "large", "large"]
    assert more.tried == [("large", 128), ("large", 64)]


@pytest.mark.parametrize(
    "code, errors, remark",
    [
        (1, "Traceback\nValueError: no such thing\n-----\nJAX has removed its frames", "ValueError: no such thing"),
        (134, "", "it said nothing"),
        (None, "ended after 8 minutes", "ended after 8 minutes"),
    ],
)
def test_what_failed_is_told_and_tried_again(code, errors, remark, script, tmp_path):
    devices = Devices(script, tmp_path / "h100.json")
    devices.ends[64] = script.Attempt(code, "", errors)
    failed, (row, _) = devices.measure()
    assert failed and (row["remark"], row["bench"]) == (remark, None)
    devices.ends.clear()
    failed, (row, _) = devices.measure()
    assert not failed and row["bench"] == BENCH


def test_what_bench_refuses_is_told_and_not_tried_again(script, tmp_path):
    devices = Devices(script, tmp_path / "h100.json")
    devices.ends[64] = script.Attempt(2, "", "bert-jax: 600 tokens, and the model has 512 positions")
    failed, (row, _) = devices.measure()
    assert not failed and "600 tokens" in row["remark"]
    devices.measure()
    assert len(devices.tried) == 2


def test_a_process_that_the_system_ends_for_its_memory_did_not_fit(script, tmp_path):
    devices = Devices(script, tmp_path / "h100.json")
    devices.ends[64] = script.Attempt(-9, "", "")
    assert devices.measure()[1][0]["batch_size"] == 32


def test_measurements_of_others_are_not_mixed(script, tmp_path):
    path = tmp_path / "h100.json"
    Devices(script, path).measure()
    with pytest.raises(UsageError, match=r"h100.json was measured with .*H100.* and this would be .*H200.*; give"):
        Devices(script, path, name="NVIDIA H200").measure()
    with pytest.raises(UsageError, match="settings.*give another --output"):
        Devices(script, path).measure("--execution.remat", "full")
    with pytest.raises(UsageError, match="batch_sizes.*give another --output"):
        Devices(script, path, batch_sizes=(256,)).measure()
    with pytest.raises(UsageError, match="h100.md is where the table is written; give a name like .*h100.json"):
        Devices(script, path.with_suffix(".md")).measure()
    path.write_text("{}")
    with pytest.raises(UsageError, match="can't be read as measurements .*; give another --output"):
        Devices(script, path).measure()


def test_batches_that_are_hopeless_by_formula_are_not_tried(script, monkeypatch):
    monkeypatch.setattr(training_devices, "device_memory", lambda device: 10**9)
    case = script.Case("tiny", 128, "all", "exact")
    refused, sizes = script._prospect(case, (4096, 1024, 8), [])
    assert refused is None and sizes == [8]
    refused, sizes = script._prospect(case, (8192, 4096), [])
    assert not sizes and refused.startswith("4,096 sequences take about ") and refused.endswith("there are 1.00 GB")


def test_flags_of_bench_are_passed_on_and_a_wrong_one_ends_it(script):
    own, others = script.split(["--output", "o", "--seed", "3", "--lengths", "8", "16", "--mesh.data=1"])
    assert (own, others) == (["--output", "o", "--lengths", "8", "16"], ["--seed", "3", "--mesh.data=1"])
    with pytest.raises(UsageError, match="--execution.no-such is no setting of bert-jax bench"):
        script._prospect(script.Case("tiny", 128, "all", "exact"), (8,), ["--execution.no-such", "1"])


@pytest.mark.long
def test_it_measures_this_machine(tmp_path):
    path = tmp_path / "tiny.json"
    flags = ["--tiny", "--dropout", "outputs", "--attention", "exact", "gpu", *SMALL]
    ended = subprocess.run(
        [sys.executable, SCRIPT, "--output", path, *flags], capture_output=True, text=True, cwd=tmp_path
    )
    assert ended.returncode == 0, ended.stderr
    result = json.loads(path.read_text())
    exact, kernel = result["cases"]
    assert (result["device"], result["devices"], result["settings"]) == ("cpu", 1, SMALL)
    assert exact["batch_size"] == exact["bench"]["settings"]["batch_size"] == 8
    assert kernel["bench"] is None and "this is a CPU, and the kernel is for NVIDIA's GPUs" in kernel["remark"]
    assert " ms |" in path.with_suffix(".md").read_text()
