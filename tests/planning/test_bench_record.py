"""The JSON of a bench."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax.planning.bench_record import FORMAT

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
