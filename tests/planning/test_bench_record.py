"""The JSON of a bench, and the comparison of two."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax.cli.bench_tables import comparison_lines
from bert_jax.cli.main import run
from bert_jax.planning.bench_record import FORMAT, Bench, read_record
from bert_jax.system.errors import UsageError
from bert_jax.system.json_file import as_shape

ROOT = Path(__file__).parents[2]
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
from bert_jax.planning import rates
rates._CPU_SIZES = (128,)
sys.exit(run(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """All that a bench prints, in a file; where only JAX and what the settings need are installed."""
    line = [sys.executable, "-c", BLOCKED, LIBRARIES, "bench", CONFIG, *FLAGS]
    done = subprocess.run(line, capture_output=True, text=True, cwd=ROOT, env=os.environ | {"COLUMNS": "100"})
    assert done.returncode == 0, done.stderr
    path = tmp_path_factory.mktemp("bench") / "there.txt"
    path.write_text(done.stdout)
    return path


@pytest.fixture(scope="module")
def found(printed):
    return json.loads(printed.read_text().splitlines()[-1])


def test_it_has_the_machine_the_versions_the_settings_and_the_source_of_the_rates(printed, found):
    for words in ("matrix products", "share of that", "compilation", "forward", "backward", "optimizer"):
        assert words in printed.read_text()
    assert found["kind"] == "bert-jax bench" and found["format"] == FORMAT
    assert set(found["versions"]) == {"bert_jax", "jax", "jaxlib"}
    assert found["machine"]["platform"] == found["machine"]["device"] == "cpu" and found["machine"]["processor"]
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
    assert expected.items() <= found["settings"].items()
    assert {rate["source"] for rate in found["rates"].values()} == {"measured"}
    for part in found["parts"]:
        assert part["flops"] >= 0 and part["bytes"] >= 0 and part["limit"]["binds"] in ("FLOPs", "bytes")
        assert part["time"]["low"] <= part["time"]["median"] <= part["time"]["high"] and part["time"]["rounds"] >= 5
    assert found["tokens_per_second"] > 0


def test_all_that_was_printed_is_read_as_well_as_the_json_alone(printed, found, tmp_path):
    alone, formatted = tmp_path / "alone.json", tmp_path / "formatted.json"
    alone.write_text(json.dumps(found))
    formatted.write_text(json.dumps(found, indent=2))
    assert read_record(printed) == read_record(alone) == read_record(formatted)
    assert list(read_record(alone).times) == ["forward", "backward", "optimizer", "step"]


def test_two_benches_stand_side_by_side_with_what_differs(printed, found, monkeypatch, capsys):
    here = as_shape(found | {"settings": found["settings"] | {"batch_size": 4}}, Bench)
    monkeypatch.setattr("bert_jax.planning.bench.bench", lambda *_: here)
    assert run(["bench", CONFIG, *FLAGS, "--compare", str(printed)]) == 0
    shown = capsys.readouterr().out
    assert "there" in shown and "ratio" in shown and "matrix rate" in shown
    assert "The work of a step differs (batch_size): the times are not of the same work." in shown
    assert "  batch_size: 2 there, 4 here" in shown.splitlines()
    assert json.loads(shown.splitlines()[-1]) == here.model_dump()


def test_versions_and_machines_differ_without_the_work(found):
    here = as_shape(found, Bench)
    there = here.model_copy(
        update={"machine": here.machine | {"device": "TPU v5e"}, "versions": here.versions | {"jax": "0.0.1"}}
    )
    assert list(comparison_lines(here, here)) == ["Machine, versions and settings are the same."]
    lines = list(comparison_lines(there, here))
    assert lines[0] == "The work of a step is the same. What differs:"
    assert lines[1] == "  device: TPU v5e there, cpu here" and lines[2].startswith("  jax: 0.0.1 there, ")


def test_another_objective_is_other_work(found):
    """Without sentence pairs a step has neither the pooler's product nor that of its head."""
    here = as_shape(found, Bench)
    there = here.model_copy(update={"settings": here.settings | {"objective.pair": "none"}})
    first, second = list(comparison_lines(there, here))
    assert first.startswith("The work of a step differs (objective.pair)")
    assert second == "  objective.pair: none there, next_sentence here"


def test_what_only_one_of_them_measured_is_named(found):
    here = as_shape(found, Bench)
    there = here.model_copy(update={"operations": [here.parts[0].model_copy(update={"name": "softmax"})]})
    assert next(comparison_lines(there, here)) == "Measured only there: softmax"
    assert next(comparison_lines(here, there)) == "Measured only here: softmax"


def test_control_characters_of_a_record_do_not_reach_the_terminal(found):
    here = as_shape(found, Bench)
    part = here.parts[0].model_copy(update={"name": "a\x1b[2Jb"})
    there = here.model_copy(
        update={"settings": here.settings | {"x\ny": "\x1b]0;title\x07"}, "operations": [part]},
    )
    lines = list(comparison_lines(there, here))
    assert len(lines) == 3 and all(line.isprintable() for line in lines)
    assert lines[-1] == r"  'x\ny': '\x1b]0;title\x07' there, nothing here"


def test_a_time_that_can_not_be_is_refused(found, tmp_path):
    """A ratio to it would be a division by zero, after all has been measured."""
    path = tmp_path / "other.json"
    damaged = found["parts"][0] | {"time": found["parts"][0]["time"] | {"median": 0.0, "low": 1.0}}
    path.write_text(json.dumps(found | {"parts": [damaged]}))
    with pytest.raises(UsageError, match="parts.0.time is .*: the median isn't above 0 and the 10th percentile is"):
        read_record(path)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"kind": "something"}, "it is no JSON of bert-jax bench"),
        ({"format": FORMAT + 1}, f"has format {FORMAT + 1} and this release of bert_jax reads format {FORMAT}"),
        ({"format": "one"}, "its format is 'one'"),
        ({"parts": 3}, "parts is 3"),
        ({"tokens_per_second": 0.0}, "tokens_per_second is 0.0"),
        ({"rates": {}}, "it has no rates.matrix"),
    ],
    ids=str,
)
def test_what_can_not_be_compared_with_is_refused(change, words, found, tmp_path):
    path = tmp_path / "other.json"
    path.write_text(json.dumps(found | change))
    with pytest.raises(UsageError) as refused:
        read_record(path)
    assert words in str(refused.value) and str(path) in str(refused.value)


@pytest.mark.parametrize(
    "content, words",
    [(None, "No such file"), (b"", "it is empty"), (b'{"kind":', "it is no JSON"), (b"\xff\n", "not UTF-8")],
    ids=str,
)
def test_it_is_refused_in_one_line_before_anything_is_measured(content, words, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("bert_jax.planning.bench.bench", lambda *_: pytest.fail("it was measured"))
    path = tmp_path / "other.json"
    if content is not None:
        path.write_bytes(content)
    assert run(["bench", CONFIG, "--compare", str(path)]) == 2
    said = capsys.readouterr()
    assert words in said.err and str(path) in said.err and said.err.count("\n") == 1 and not said.out
