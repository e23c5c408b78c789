"""A whole run that predicts next tokens."""

import json
import shutil

import numpy as np
import pytest
from conftest import prepared_copy
from stages import stopped_at

import bert_jax
from bert_jax.cli.main import run as command
from bert_jax.config.operation import MeshConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import Phase
from bert_jax.instances.prepared_data import PreparedData
from bert_jax.model.sharding import make_mesh
from bert_jax.pretraining.evaluation import evaluate_run, held_out_sequences
from bert_jax.pretraining.inspection import training_step
from bert_jax.pretraining.objective import pretraining_trainer
from bert_jax.pretraining.pretrain import pretrain
from bert_jax.run.metrics import read_metrics
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.errors import UsageError
from bert_jax.training.batch import read_ahead

pytestmark = pytest.mark.long

STEPS = 40


@pytest.fixture(scope="module")
def config(tiny_config) -> RunConfig:
    return tiny_config.replace(
        model=tiny_config.model.replace(causal=True),
        objective=tiny_config.objective.replace(predict="next", pair="none"),
        optimizer=tiny_config.optimizer.replace(peak_learning_rate=1e-2, bias_correction=True),
        phases=(Phase(steps=STEPS, length=32, batch_size=16),),
        evaluation=tiny_config.evaluation.replace(every=STEPS // 2),
        checkpoints=tiny_config.checkpoints.replace(every=STEPS),
    )


@pytest.fixture(scope="module")
def run(config, tmp_path_factory) -> RunDirectory:
    run = RunDirectory(tmp_path_factory.mktemp("next") / "run")
    pretrain(config, run)
    return run


def test_it_learns_more_than_frequencies(run):
    results = json.loads(run.results_file.read_text())
    lines = read_metrics(run.path / "metrics.jsonl")
    assert results["metric"] == "lm_accuracy" and results["score"] == results["lm_accuracy"]
    assert results["loss"] == results["lm_loss"] < results["baseline"]["lm_loss"] - 0.3
    assert results["lm_accuracy"] > results["baseline"]["lm_accuracy"]
    assert not [
        name for values in (results, results["baseline"], *lines) for name in values if name[:3] in ("mlm", "nsp")
    ]
    assert [line["lm_loss"] for line in lines if line["split"] == "eval"][-1] == results["lm_loss"]


def test_the_baseline_knows_how_often_a_sequence_ends(run, config):
    results, data = json.loads(run.results_file.read_text()), PreparedData.open(run.data(32))
    trainer = pretraining_trainer(config, make_mesh(MeshConfig()), 150)
    tokenizer = bert_jax.load_tokenizer(run.tokenizer)
    held_out = held_out_sequences(trainer, 0, data)
    labels = []
    ((_, source),) = held_out._parts
    for batch in read_ahead(source):
        for ids, length, weight in zip(batch.tokens.ids, batch.tokens.length[:, 0], batch.weight[:, 0]):
            labels += ids[1:length].tolist() if weight else []
    labels = np.array(labels)
    counts = (data.piece_counts + 1).astype(float)
    counts[tokenizer.vocabulary.sep_id] = 0
    ends = (labels == tokenizer.vocabulary.sep_id).mean()
    shares = (1 - ends) * counts / counts.sum()
    shares[tokenizer.vocabulary.sep_id] = ends
    assert results["baseline"]["lm_loss"] == pytest.approx(-np.log(shares[labels]).mean(), abs=2e-3)
    assert results["baseline"]["lm_accuracy"] == pytest.approx(max((labels == counts.argmax()).mean(), ends))


def test_it_is_said_at_once_that_others_cannot_read_the_model(run, config, tmp_path, capsys):
    with stopped_at(1):
        pretrain(config, prepared_copy(run, tmp_path))
    told = capsys.readouterr().err
    assert "transformers can't read this model: the model is causal" in told
    assert "only models without --model.causal can be exported" in told


def test_all_that_is_done_with_a_run_is_done_or_refused(run, tmp_path, capsys):
    results = json.loads(run.results_file.read_text())
    assert evaluate_run(run).metrics["lm_loss"] == results["lm_loss"]
    shutil.copytree(run.path, tmp_path / "copy")
    finished = ["pretrain", str(run.path), "--workdir", str(tmp_path / "copy")]
    assert command(finished) == 0  # and says what came of it
    shown = capsys.readouterr().out
    assert "LM accuracy" in shown and "MLM" not in shown and "fill-mask" not in shown and "masked" not in shown
    bert = bert_jax.load(run.path)
    assert bert.config.causal
    short, long = bert.encode(["The old cat"]), bert.encode(["The old cat sees the dog"])
    before = short.tokens.shape[1] - 1  # all but its [SEP]
    np.testing.assert_allclose(short.tokens[0, :before], long.tokens[0, :before], atol=2e-6)
    with pytest.raises(UsageError, match="the model is causal"):
        bert.fill_mask("The [MASK].")
    assert command(["export", str(run.path), str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert "the model is causal" in told and "\n" not in told.strip() and not (tmp_path / "out").exists()


def test_inspect_shows_each_token_with_the_next(run, capsys):
    seen = training_step(run, 1)
    tokenizer, batch, targets = seen.tokenizer, seen.batch, seen.targets
    assert np.array_equal(targets.masked.tokens.ids, batch.tokens.ids) and not batch.tokens.segment.any()
    assert command(["inspect", str(run.path), "--rows", "1"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    first, second, third = (tokenizer.piece_text(number) for number in batch.tokens.ids[0, :3].tolist())
    assert f"{first}/{second} {second}/{third}" in shown and f"{batch.tokens.length[0, 0] - 1} to predict" in shown
