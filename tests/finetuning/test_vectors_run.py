"""Vectors end to end, on pairs that share no word: each letter of the one stands for a letter of the other."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from bert_jax.cli.main import run as bert_jax_command
from bert_jax.config.finetune import FinetuneConfig, TaskRunConfig
from bert_jax.config.operation import LoggingConfig
from bert_jax.config.task import TaskConfig
from bert_jax.config.training import OptimizerConfig
from bert_jax.finetuning.finetune import finetune
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.run_files import RunFiles
from bert_jax.run.trained_model import TrainedModel

STANDS_FOR = dict(zip("abcdefgh", "mnoprstu", strict=True))


def written(path: Path, score: bool = False) -> str:
    """16 pairs of three letters each; the negative of a pair is the second text of the one before."""
    chosen = list(itertools.combinations(STANDS_FOR, 3))[::3][:16]
    queries = [" ".join(letters) for letters in chosen]
    positives = [" ".join(map(STANDS_FOR.get, letters)) for letters in chosen]
    others = [*positives[-1:], *positives[:-1]]
    if score:
        sides = ((5, positives), (1, ["old green river"] * 16))
        rows = [{"a": a, "b": b, "score": score} for score, texts in sides for a, b in zip(queries, texts, strict=True)]
    else:
        rows = [
            {"query": query, "positive": positive, "negatives": [other, positive]}
            for query, positive, other in zip(queries, positives, others, strict=True)
        ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture(scope="module")
def config(tiny_run, tmp_path_factory) -> FinetuneConfig:
    rows = written(tmp_path_factory.mktemp("rows") / "pairs.jsonl")
    return FinetuneConfig(
        task=TaskConfig(
            **{"name": "pairs", "kind": "vectors", "texts": ("query", "positive"), "label": "score"},
            **{"train": rows, "dev": rows, "max_length": 32, "batch_size": 16, "epochs": 60.0, "widths": (8,)},
        ),
        init=str(tiny_run.path),
        optimizer=OptimizerConfig(peak_learning_rate=3e-3, warmup=0.1),
        evaluations=1 / 20,
        logging=LoggingConfig(every=10, tensorboard=False),
    )


@pytest.fixture(scope="module")
def finished(config, tmp_path_factory) -> RunDirectory:
    """`config`, trained to its end. Not to be changed."""
    run = RunDirectory(tmp_path_factory.mktemp("vectors") / "run")
    finetune(config, run)
    return run


@pytest.mark.long
def test_vectors_find_what_words_do_not(finished):
    results = json.loads(finished.results_file.read_text())
    assert results["metric"] == "ndcg@10" and results["score"] == results["ndcg@10"] > 0.95
    assert results["recall@10"] == 1.0 and results["8/ndcg@10"] > 0.9
    assert results["baselines"]["BM25"]["ndcg@10"] < 0.7 and results["baselines"]["tf-idf"]["ndcg@10"] < 0.7
    assert (results["training_rows"], results["dev_rows"], results["steps"]) == (16, 16, 60)
    planned = RunFiles(finished.path).config
    assert isinstance(planned, TaskRunConfig) and planned.task.most_negatives == 1 and not planned.task.scored
    assert "pooler" not in TrainedModel.open(finished.path).shapes["bert"]


def test_it_is_measured_again_and_on_pairs_with_scores_and_compares_pairs(finished, config, tmp_path, capsys):
    scored = written(tmp_path / "scored.jsonl", score=True)
    assert bert_jax_command(["evaluate", str(finished.path), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["score"] == pytest.approx(json.loads(finished.results_file.read_text())["score"])
    assert bert_jax_command(["evaluate", str(finished.path), "--data", scored, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["metric"] == "spearman" and found["score"] > 0.7 and found["dev_rows"] == 32
    assert {"8/spearman", "pearson", "baselines"} <= found.keys()
    assert bert_jax_command(["predict", str(finished.path), config.task.train, str(tmp_path / "out.jsonl")]) == 0
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(rows) == 16 and np.mean([row["predicted_similarity"] for row in rows]) > 0.6


@pytest.mark.long
def test_scored_pairs_are_learned(config, tmp_path):
    rows = written(tmp_path / "scored.jsonl", score=True)
    task = config.task.replace(train=rows, dev=rows, batch_size=32, widths=(), epochs=20.0)
    results = finetune(config.replace(task=task), RunDirectory(tmp_path / "run")).content
    assert results["metric"] == "spearman" and results["score"] > 0.7
    assert RunFiles(tmp_path / "run").config.task.scored
