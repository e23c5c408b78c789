"""Files of a run that are read by several parts of a command."""

import sys
from collections import Counter
from pathlib import Path

import pytest

import bert_jax
from bert_jax.cli.main import run as command

_OPENED: list[str] = []
"""Paths of the files that Python opens in this process, in order."""


@pytest.fixture(scope="module")
def opened() -> list[str]:
    """`_OPENED`, filled by an audit hook, which can't be taken away."""
    sys.addaudithook(lambda event, details: _OPENED.append(str(details[0])) if event == "open" else None)
    return _OPENED


def finetune_dry(path: Path, folder: Path) -> int:
    rows = folder / "rows.tsv"
    rows.write_text("sentence\tlabel\nThe old cat sees the dog.\t1\nA green house leaves.\t0\n")
    settings = ["--task.train", str(rows), "--task.dev", str(rows), "--task.max-length", "16", "--dry-run"]
    return command(["finetune", "sst2", "--init", str(path), "--workdir", str(folder / "run"), *settings])


@pytest.mark.parametrize(
    "use",
    [
        lambda path, _: bert_jax.load(path),
        lambda path, _: command(["fill-mask", str(path), "The old [MASK]."]),
        lambda path, folder: command(["export", str(path), str(folder / "exported")]),
        finetune_dry,
    ],
    ids=["load", "fill-mask", "export", "finetune --init"],
)
def test_config_tokenizer_and_manifests_are_opened_once(tiny_run, opened, tmp_path, use):
    opened.clear()
    use(tiny_run.path, tmp_path)
    here = [path.removeprefix(f"{tiny_run.path}/") for path in opened if path.startswith(f"{tiny_run.path}/")]
    counts = Counter(name for name in here if name.endswith(("config.json", "manifest.json", "vocab.txt")))
    checkpoint = "checkpoints/00000012"
    read = {f"{folder}{name}" for folder in ("", f"{checkpoint}/") for name in ("config.json", "manifest.json")}
    assert read <= counts.keys() and set(counts.values()) == {1}, counts
