"""A start opens each file of its inputs once, and so does a command on a run."""

import collections
import contextlib
import os
import sys
from pathlib import Path

import pytest
from stages import stopped_at

import bert_jax
from bert_jax.cli.main import run as command
from bert_jax.finetuning import finetune as finetune_module
from bert_jax.pretraining import fitting
from bert_jax.pretraining import pretrain as pretrain_module
from bert_jax.pretraining.dry_run import pretraining_estimates
from bert_jax.run.opened_models import OpenedModels
from bert_jax.run.run_directory import RunDirectory

MODEL = Path(__file__).parent / "golden" / "gelu_erf"
CHECKPOINT = "checkpoints/00000012/"
_listeners = []


class Started(Exception):
    """Ends a start before its first step."""


@pytest.fixture(scope="module", autouse=True)
def audited():
    def hook(event, arguments):
        if event == "open" and isinstance(arguments[0], str | os.PathLike):
            for listener in _listeners:
                listener.append(os.fspath(arguments[0]))

    sys.addaudithook(hook)  # stays until the end of the process


@contextlib.contextmanager
def openings(folder):
    """Yields how often the block has opened each file in `folder`, by its path there; known at the end of the block."""
    counts = collections.Counter()
    _listeners.append([])
    yield counts
    paths = map(Path, _listeners.pop())
    counts.update(str(path.relative_to(folder)) for path in paths if path.is_relative_to(folder))


@contextlib.contextmanager
def opened_once(folder, *names):
    """The block opens `names` in `folder`, and no file there twice."""
    with openings(folder) as counts:
        yield
    assert set(names) <= set(counts) and set(counts.values()) == {1}, counts


def started(*arguments):
    for argument in arguments:
        if callable(argument) and getattr(argument, "__name__", "") == "<lambda>":
            argument()  # the initial parameters
    raise Started


@pytest.mark.long
def test_a_pretraining_that_goes_on_opens_its_data_once(untrained, tiny_config, monkeypatch):
    with stopped_at(2):
        bert_jax.pretrain(tiny_config, untrained)
    monkeypatch.setattr(pretrain_module, "train", started)
    with opened_once(untrained.data(32), "prepared.json", "piece_counts.safetensors"), pytest.raises(Started):
        bert_jax.pretrain(tiny_config, untrained)


def test_a_published_model_is_opened_once():
    with opened_once(MODEL, "config.json", "vocab.txt", "model.safetensors"):
        bert_jax.load(MODEL)


def test_a_fine_tuning_opens_the_model_to_start_from_once(tmp_path, monkeypatch):
    monkeypatch.setattr(finetune_module, "train", lambda *given, **named: started(*given))
    rows = [{"text": text, "label": text} for text in ("a", "b")] * 4
    with opened_once(MODEL, "config.json", "vocab.txt", "model.safetensors"), pytest.raises(Started):
        bert_jax.finetune(bert_jax.configs.classes, tmp_path / "run", init=MODEL, train=rows, dev=rows)


def test_rows_that_are_divided_for_measuring_are_read_once(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f'{{"text": "row {number}", "label": {number % 2}}}\n' for number in range(20)))
    config = bert_jax.configs.classes.set({"init": str(MODEL), "task.train": str(rows), "task.dev": "20%"})
    with opened_once(tmp_path, "rows.jsonl"):
        plan = finetune_module.plan_finetuning(config, RunDirectory(tmp_path / "run"))
    assert plan.learned.rows == 16 and len(plan.measured.records) == 4


def test_the_teacher_and_the_vocabulary_of_an_adapted_model_are_opened_once(tmp_path, tiny_config, monkeypatch):
    """Its vocabulary is compared with the model's, gives the number of its padding and its size, and is the run's."""
    monkeypatch.setattr(fitting, "_row_seconds", lambda *_: 1.0)
    pieces = (MODEL / "vocab.txt").read_text(encoding="utf-8").splitlines()
    (tmp_path / "vocab.txt").write_text("\n".join([*pieces[:5], *reversed(pieces[5:])]), encoding="utf-8")
    config = bert_jax.configs.adapt.replace(init=str(MODEL), teacher=str(MODEL), minutes=1.0, data=tiny_config.data)
    for file in (None, tmp_path / "vocab.txt"):
        settings = config.change(vocabulary={"file": file and str(file)}).replace(teacher=None if file else str(MODEL))
        with opened_once(MODEL, "config.json", "vocab.txt", "model.safetensors"), openings(tmp_path) as counts:
            list(pretraining_estimates(settings, tmp_path / "run", OpenedModels()))
        assert counts["vocab.txt"] == (1 if file else 0)


@pytest.mark.parametrize("name", ["params", "pretrain"])
def test_a_command_opens_a_model_that_it_is_given_twice_once(name, corpus, tmp_path):
    """As CONFIG or teacher, and as init."""
    given = {
        "params": ["demo", "--teacher", str(MODEL), "--phases.0.length", "16"],
        "pretrain": [str(MODEL), "--init", str(MODEL), "--data.source", f"text:{corpus}", "--dry-run"],
    }
    workdir = ["--workdir", str(tmp_path / "run")] if name == "pretrain" else []
    with opened_once(MODEL, "config.json", "vocab.txt", "model.safetensors"):
        assert command([name, *given[name], *workdir]) == 0


@pytest.mark.parametrize(
    "line",
    [
        "evaluate {run}",
        "inspect {run}",
        "report {run}",
        "score {run} --save --pairs {folder}/pairs.jsonl",
        "fill-mask {run} [MASK]",
        "export {run} {folder}/exported",
        "finetune sst2 --init {run} --workdir {folder}/tuned --task.train {rows} --task.dev {rows} "
        "--task.max-length 16 --dry-run",
    ],
)
@pytest.mark.long(first=1)
def test_a_command_reads_settings_tokenizer_and_manifests_of_a_run_once(tiny_copy, line, tmp_path):
    (tmp_path / "pairs.jsonl").write_text('{"sentence_good": "the cat sees", "sentence_bad": "cat the sees"}\n')
    (tmp_path / "rows.tsv").write_text("sentence\tlabel\nThe old cat sees the dog.\t1\nA green house leaves.\t0\n")
    words = line.format(run=tiny_copy.path, folder=tmp_path, rows=tmp_path / "rows.tsv").split()
    with openings(tiny_copy.path) as counts:
        assert command(words) == 0
    assert counts["config.json"] == 1, counts
    if words[0] in ("fill-mask", "export", "finetune"):
        read = {f"{folder}{name}" for folder in ("", CHECKPOINT) for name in ("config.json", "manifest.json")}
        once = {name: count for name, count in counts.items() if name.endswith((*read, "vocab.txt"))}
        assert read <= once.keys() and set(once.values()) == {1}, counts
