"""A whole run of ELMo over the bytes of pieces."""

import json

import jax
import numpy as np
import pytest
from conftest import prepared_copy
from stages import stopped_at

import bert_jax
from bert_jax.cli.main import run as command
from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import MeshConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import Phase
from bert_jax.instances.prepared_data import PreparedData
from bert_jax.model.relatives.characters import BEGIN_SENTENCE, BEGIN_WORD, END_WORD, PADDING
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

STEPS = 24


@pytest.fixture(scope="module")
def config(tiny_config) -> RunConfig:
    return tiny_config.replace(
        model=ModelConfig(
            layer="lstm",
            positions="none",
            num_segments=0,
            num_layers=2,
            hidden_size=32,
            feedforward_size=32,
            max_positions=32,
            character_filters=(8, 8, 16),
            highways=1,
            initializer_range=0.1,
        ),
        objective=tiny_config.objective.replace(predict="both", pair="none"),
        optimizer=tiny_config.optimizer.replace(peak_learning_rate=2e-2, bias_correction=True),
        phases=(Phase(steps=STEPS, length=32, batch_size=16),),
        evaluation=tiny_config.evaluation.replace(every=STEPS // 2),
        checkpoints=tiny_config.checkpoints.replace(every=STEPS // 4),
    )


@pytest.fixture(scope="module")
def run(config, tmp_path_factory) -> RunDirectory:
    run = RunDirectory(tmp_path_factory.mktemp("elmo") / "run")
    pretrain(config, run)
    return run


def params_of(run: RunDirectory):
    return bert_jax.load(run.path).params


def test_it_learns_more_than_frequencies(run):
    results = json.loads(run.results_file.read_text())
    assert results["metric"] == "bilm_accuracy"
    assert results["loss"] == results["bilm_loss"] < results["baseline"]["bilm_loss"] - 0.2
    assert results["bilm_accuracy"] > results["baseline"]["bilm_accuracy"]
    assert evaluate_run(run).metrics["bilm_loss"] == results["bilm_loss"]


def test_the_baseline_knows_how_often_a_sequence_ends_on_either_side(run, config):
    results, data = json.loads(run.results_file.read_text()), PreparedData.open(run.data(32))
    trainer = pretraining_trainer(config, make_mesh(MeshConfig()), 150)
    ((_, source),) = held_out_sequences(trainer, 0, data)._parts
    counts = (data.piece_counts + 1).astype(float)
    vocabulary = bert_jax.load_tokenizer(run.tokenizer).vocabulary
    counts[[vocabulary.cls_id, vocabulary.sep_id]] = 0
    losses = []
    rows = [
        ids[:length]
        for batch in read_ahead(source)
        for ids, length, weight in zip(batch.tokens.ids, batch.tokens.length[:, 0], batch.weight[:, 0])
        if weight
    ]
    for side, end in ((slice(1, None), vocabulary.sep_id), (slice(None, -1), vocabulary.cls_id)):
        labels = np.concatenate([row[side] for row in rows])
        ends = (labels == end).mean()
        shares = (1 - ends) * counts / counts.sum()
        shares[end] = ends
        losses.append(-np.log(shares[labels]).mean())
    assert results["baseline"]["bilm_loss"] == pytest.approx(np.mean(losses), abs=2e-3)


def test_a_stopped_run_goes_on_to_the_same_bits(run, config, tmp_path):
    again = prepared_copy(run, tmp_path)
    with stopped_at(STEPS // 2 + 1):
        pretrain(config, again)
    pretrain(config, again)
    jax.tree.map(np.testing.assert_array_equal, params_of(again), params_of(run))
    assert read_metrics(again.metrics_file)[-1]["loss"] == read_metrics(run.metrics_file)[-1]["loss"]


def test_the_spelling_travels_with_the_model_and_is_not_trained(run):
    numbers = np.asarray(params_of(run)["bert"]["spelling"]["numbers"])
    tokenizer = bert_jax.load_tokenizer(run.tokenizer)
    pieces = tokenizer.vocabulary.pieces

    def spelled(piece: str) -> list[int]:
        row = numbers[pieces.index(piece)]
        return row[row != PADDING].tolist()

    assert spelled("a") == [BEGIN_WORD, ord("a") + 1, END_WORD]
    assert spelled("##a") == [ord("a") + 1, END_WORD]
    assert spelled("[CLS]") == [BEGIN_WORD, BEGIN_SENTENCE, END_WORD]
    assert not numbers[len(pieces) :].any()


def test_all_that_is_done_with_a_run_is_done_or_refused(run, tmp_path, capsys):
    bert = bert_jax.load(run.path)
    (first, second) = bert.features(["The old cat", "The old cat sees the dog"], layers=[0, 1, 2], join="none")
    same, half = len(first.pieces) - 1, bert.config.hidden_size // 2  # all but [SEP]
    np.testing.assert_allclose(first.vectors[:same, :, :half], second.vectors[:same, :, :half], atol=2e-6)
    assert np.abs(first.vectors[:same, 1:, half:] - second.vectors[:same, 1:, half:]).max() > 1e-3
    np.testing.assert_array_equal(first.vectors[:, 0, :half], first.vectors[:, 0, half:])
    with pytest.raises(UsageError, match="each direction sees only one side of a \\[MASK\\]"):
        bert.fill_mask("The [MASK].")
    with pytest.raises(UsageError, match="have no attention"):
        bert.attention("The old cat")
    assert command(["export", str(run.path), str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert "LSTM layers" in told and "\n" not in told.strip() and not (tmp_path / "out").exists()


def test_inspect_shows_each_token_with_both_neighbours(run, capsys):
    seen = training_step(run, 1)
    assert command(["inspect", str(run.path), "--rows", "1"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    first, second, third = (seen.tokenizer.piece_text(number) for number in seen.batch.tokens.ids[0, :3].tolist())
    assert f"{first}/{second} {second}/{third}|{first}" in shown
    assert f"{seen.batch.tokens.length[0, 0]} to predict" in shown
