"""Runs for reports, made of the runs that other tests trained."""

import json
import shutil
from pathlib import Path

import pytest
from reports import HOSTILE

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import TaskConfig
from bert_jax.products.report.report import write_report
from bert_jax.run.recorded_config import write_config
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.run_files import RunFiles


@pytest.fixture(scope="session")
def hostile_run(tiny_run, tmp_path_factory) -> Path:
    """A copy of `tiny_run` whose own files hold HTML, huge numbers, damaged lines and values of wrong types."""
    run = shutil.copytree(tiny_run.path, tmp_path_factory.mktemp("hostile") / "run <b>&")
    with open(run / "metrics.jsonl", "a", encoding="utf-8") as file:
        for line in (
            {"step": 13, "split": "train", "loss": None, "mlm_loss": 10**400, "learning_rate": "high", HOSTILE: 1.0},
            {"step": 2**62, "split": "eval", "loss": 1e299, "mlm_loss": -1e299, f"{HOSTILE}/mlm_loss": 2.0},
            {"step": 14, "split": HOSTILE, "loss": [1], "grad_norm": True},
        ):
            file.write(json.dumps(line) + "\n")
        file.write('{"step": 15, "split": "tr\n\n[]\n{"step": 16, "split": "train", "loss": 1')
    event = json.dumps({"time": HOSTILE, "event": HOSTILE, "message": HOSTILE})
    with open(run / "events.jsonl", "a", encoding="utf-8") as file:
        file.write(f'{{"time": 5}}\nnonsense\n{event}\n')
    wrong = {"task": HOSTILE, "baseline": [HOSTILE], "confusion": {"labels": [HOSTILE], "counts": [["x"]]}}
    (run / "results.json").write_text(json.dumps(wrong | {"steps": "many", "errors": [{"text": HOSTILE}, 5]}))
    return run


@pytest.fixture(scope="session")
def packed_copy(tiny_run, tmp_path_factory) -> Path:
    """A copy of `tiny_run` whose settings have another value. Not to be changed."""
    run = RunDirectory(shutil.copytree(tiny_run.path, tmp_path_factory.mktemp("other") / "packed"))
    write_config(run.config_file, RunFiles(run.path).config.change(data={"packed": True}))
    return run.path


@pytest.fixture
def page_of(tmp_path):
    """The text of a page about runs, which is `page.html` in the test's folder."""

    def written(*runs: Path) -> str:
        write_report(tmp_path / "page.html", list(runs))
        return (tmp_path / "page.html").read_text()

    return written


@pytest.fixture
def without_measurements(tiny_copy) -> Path:
    """A run of which no step was measured or saved."""
    for name in ("metrics.jsonl", "results.json", "events.jsonl"):
        (tiny_copy.path / name).unlink()
    shutil.rmtree(tiny_copy.checkpoints)
    return tiny_copy.path


@pytest.fixture
def vectors_run(tiny_copy) -> RunDirectory:
    """A run of vectors of texts that was measured by a search beside two comparisons of words; it has no checkpoint."""
    task = TaskConfig(name="x", kind="vectors", texts=("query", "positive"), train="x.jsonl", dev="y.jsonl")
    pretraining = RunFiles(tiny_copy.path).config
    config = FinetuneConfig(task=task).run_config(pretraining.model, task, "0", pretraining.phases[0])
    write_config(tiny_copy.config_file, config)
    shutil.rmtree(tiny_copy.checkpoints)
    line = {"step": 12, "split": "eval", "score": 0.5, "ndcg@10": 0.5}
    tiny_copy.metrics_file.write_text(json.dumps(line) + "\n")
    baselines = {"tf-idf": {"ndcg@10": 0.75}, "BM25": {"ndcg@10": 0.875}}
    results = {"steps": 12, "metric": "ndcg@10", "score": 0.5, "ndcg@10": 0.5, "64/ndcg@10": 0.25, "dev_rows": 4}
    results |= {"baseline": baselines["BM25"], "baselines": baselines, "errors": []}
    tiny_copy.results_file.write_text(json.dumps(results))
    return tiny_copy
