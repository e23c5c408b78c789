"""--dry-run and --print-config."""

import json

import pytest

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.fitted import AdaptConfig, ScratchConfig
from bert_jax.config.run import RunConfig
from bert_jax.system.progress import output


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """Tables in which nothing wraps."""
    monkeypatch.setattr(output, "width", 240)


def contents(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_a_dry_run_tells_what_would_be_done_and_writes_nothing(config_file, tiny_run, tmp_path, done, refused):
    shown = done("pretrain", config_file, "--workdir", tmp_path / "run", "--dry-run").out
    assert "a new one of 12 steps" in shown and "a device by formula: state" in shown
    assert not list(tmp_path.iterdir())
    before = contents(tiny_run.path)
    command = ["pretrain", config_file, "--workdir", tiny_run.path, "--dry-run"]
    shown = done(*command, "--phases.0.steps", "20").out
    assert "go on from step 12 of 20" in shown and "20 steps (8 left)" in shown
    assert "is another run: --seed is 0 there and 9 now" in refused(*command, "--seed", "9")
    assert contents(tiny_run.path) == before


def test_a_dry_run_of_a_task_reads_its_rows(tiny_run, tmp_path, done):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("\n".join(json.dumps({"sentence": f"The old cat {n}.", "label": n % 2}) for n in range(20)))
    flags = ["--init", tiny_run.path, "--task.train", rows, "--task.dev", rows, "--workdir", tmp_path / "run"]
    flags += ["--task.max-length", "32", "--task.batch-size", "5", "--task.epochs", "2"]
    shown = done("finetune", "sst2", *flags, "--dry-run").out
    for words in (
        "a new one of 8 steps",
        "20 of ",
        "labels",
        "8 steps of 5 rows, whose texts are cut to 32 tokens, in at most ",
    ):
        assert words in shown
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


def test_what_can_not_fit_is_refused_before_anything_is_written(config_file, tmp_path, refused, monkeypatch):
    monkeypatch.setattr("bert_jax.training.devices.device_memory", lambda device: 10_000)
    for flags in ([], ["--dry-run"]):
        said = refused("pretrain", config_file, "--workdir", tmp_path / "run", *flags)
        assert "a step of 8 rows of 32 tokens (--phases.0.batch-size) takes about" in said
        assert "each has 0.01 MB; give a smaller model or --mesh.fsdp over more devices" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "command, kind",
    [
        ("pretrain demo", RunConfig),
        ("pretrain adapt --model.dropout 0.1", AdaptConfig),
        ("pretrain scratch_small", ScratchConfig),
        ("finetune squad --init RUN", FinetuneConfig),
    ],
)
def test_a_printed_config_is_one_that_builds_the_same(command, kind, tmp_path, done):
    changed = ["--workdir", tmp_path / "run", "--seed", "7", "--print-config"]
    printed = done(*command.split(), *changed).out
    (tmp_path / "mine.py").write_text(printed)
    assert done(command.split()[0], tmp_path / "mine.py", *changed).out == printed
    assert {path.name for path in tmp_path.iterdir()} == {"mine.py"}
    built = {}
    exec(printed, built)
    assert isinstance(built["config"], kind) and built["config"].seed == 7
    if kind is AdaptConfig:  # the others are the model's
        assert built["config"].model.model_fields_set == {"dropout", "attention_dropout"}
