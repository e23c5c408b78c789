"""Whole runs that predict tokens from one side: the next tokens, those on both sides by an LSTM each (ELMo), and tokens
in permuted order (XLNet, whose order and spans are tested in test_masking.py)."""

import json
import shutil
from functools import cache

import numpy as np
import pytest
from conftest import prepared_copy
from stages import parameters, stopped_at

import bert_jax
from bert_jax.cli.main import run as command
from bert_jax.config.operation import MeshConfig
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

LSTM = {"layer": "lstm", "positions": "none", "num_segments": 0, "feedforward_size": 32, "initializer_range": 0.1}
XLNET = {"positions": "relative", "class_token": "last", "num_segments": 0, "model_type": "xlnet"}
MODELS = {
    "next": {"causal": True},
    "both": LSTM | {"character_filters": (8, 8, 16), "highways": 1},
    "permuted": XLNET,
}
SHARES = {"units": "context", "masked_share": 1 / 6, "evaluated_share": 1 / 6}
STEPS = {"next": 40, "both": 24, "permuted": 60}
NAMES = {"next": "lm", "both": "bilm", "permuted": "plm"}
"""How the names of measurements begin."""


@pytest.fixture(scope="module")
def trained(tiny_config, tmp_path_factory):
    """Gives the run that predicts such tokens, and its config; each is trained once."""

    @cache
    def run_of(predict):
        steps, objective = STEPS[predict], {"predict": predict, "pair": "none"}
        changed = tiny_config.change(
            model=MODELS[predict],
            objective=objective | (SHARES if predict == "permuted" else {}),
            optimizer={"peak_learning_rate": 2e-2 if predict == "both" else 1e-2, "bias_correction": True},
            evaluation={"every": steps // 2},
            checkpoints={"every": steps // 2},
        )
        config = changed.replace(phases=(Phase(steps=steps, length=32, batch_size=16),))
        run = RunDirectory(tmp_path_factory.mktemp(predict) / "run")
        pretrain(config, run)
        return run, config

    return run_of


@pytest.mark.parametrize("predict, lower", [("next", 0.3), ("both", 0.2), ("permuted", 0.05)])
def test_it_learns_more_than_frequencies(trained, predict, lower):
    (run, _), name = trained(predict), NAMES[predict]
    results, lines = json.loads(run.results_file.read_text()), read_metrics(run.metrics_file)
    baseline = results["baseline"]
    assert results["metric"] == f"{name}_accuracy" and results["score"] == results[f"{name}_accuracy"]
    assert results["loss"] == results[f"{name}_loss"] < baseline[f"{name}_loss"] - lower
    assert predict == "permuted" or results[f"{name}_accuracy"] > baseline[f"{name}_accuracy"]
    measured = {key for values in (results, baseline, *lines) for key in values}
    assert not [key for key in measured if key.startswith(("mlm", "nsp"))]
    assert [line[f"{name}_loss"] for line in lines if line["split"] == "eval"][-1] == results[f"{name}_loss"]
    assert evaluate_run(run).metrics[f"{name}_loss"] == results[f"{name}_loss"]


@pytest.mark.parametrize("predict", ["next", "both"])
def test_the_baseline_knows_how_often_a_sequence_ends_on_each_side(trained, predict):
    (run, config), name = trained(predict), NAMES[predict]
    baseline, data = json.loads(run.results_file.read_text())["baseline"], PreparedData.open(run.data(32))
    ((_, source),) = held_out_sequences(pretraining_trainer(config, make_mesh(MeshConfig()), 150), 0, data)._parts
    rows = [
        ids[:length]
        for batch in read_ahead(source)
        for ids, length, weight in zip(batch.tokens.ids, batch.tokens.length[:, 0], batch.weight[:, 0])
        if weight
    ]
    vocabulary = bert_jax.load_tokenizer(run.tokenizer_directory).vocabulary
    counts = (data.piece_counts + 1).astype(float)
    counts[[vocabulary.cls_id, vocabulary.sep_id]] = 0
    losses, accuracies = [], []
    sides = [(slice(1, None), vocabulary.sep_id), (slice(None, -1), vocabulary.cls_id)]
    for side, end in sides if predict == "both" else sides[:1]:
        labels = np.concatenate([row[side] for row in rows])
        ends = (labels == end).mean()
        shares = (1 - ends) * counts / counts.sum()
        shares[end] = ends
        losses.append(-np.log(shares[labels]).mean())
        accuracies.append(max((labels == counts.argmax()).mean(), ends))
    assert baseline[f"{name}_loss"] == pytest.approx(np.mean(losses), abs=2e-3)
    assert baseline[f"{name}_accuracy"] == pytest.approx(np.mean(accuracies))


@pytest.mark.parametrize("predict, step", [("both", 13), ("permuted", 33)])
def test_it_goes_on_bit_for_bit(trained, resumed, predict, step):
    run, config = trained(predict)
    again = resumed(config, step, run)
    assert parameters(again.path) == parameters(run.path)
    assert read_metrics(again.metrics_file)[-1]["loss"] == read_metrics(run.metrics_file)[-1]["loss"]


@pytest.mark.parametrize("predict, before", [("next", ""), ("both", "|{}")])
def test_inspect_shows_each_token_with_its_neighbours(trained, predict, before, capsys):
    run, _ = trained(predict)
    seen = training_step(run, 1)
    tokens = seen.batch.tokens
    assert np.array_equal(seen.targets.masked.tokens.ids, tokens.ids) and not tokens.segment.any()
    assert command(["inspect", str(run.path), "--rows", "1"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    first, second, third = (seen.tokenizer.piece_text(number) for number in tokens.ids[0, :3].tolist())
    assert f"{first}/{second} {second}/{third}{before.format(first)}" in shown
    assert f"{tokens.length[0, 0] - (predict == 'next')} to predict" in shown


def test_an_elmo_fills_no_masks_and_is_not_exported(trained, tmp_path, capsys):
    run, _ = trained("both")
    with pytest.raises(UsageError, match=r"each direction sees only one side of a \[MASK\]"):
        bert_jax.load(run.path).fill_mask("The [MASK].")
    capsys.readouterr()  # of the training, if this is the first test
    assert command(["export", str(run.path), str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert "LSTM layers" in told and "\n" not in told.strip() and not (tmp_path / "out").exists()


def test_it_is_said_at_once_that_others_cannot_read_the_model(trained, tmp_path, capsys):
    run, config = trained("next")
    with stopped_at(1):
        pretrain(config, prepared_copy(run, tmp_path))
    told = capsys.readouterr().err
    assert "transformers can't read this model: the model is causal" in told
    assert "only models without --model.causal can be exported" in told


def test_a_finished_run_of_next_tokens_tells_of_nothing_masked(trained, tmp_path, capsys):
    run, _ = trained("next")
    shutil.copytree(run.path, tmp_path / "copy")
    assert command(["pretrain", str(run.path), "--workdir", str(tmp_path / "copy")]) == 0
    shown = capsys.readouterr().out
    assert "LM accuracy" in shown and not [word for word in ("MLM", "fill-mask", "masked") if word in shown]


def test_each_half_of_an_elmos_vectors_knows_its_own_side(trained):
    run, _ = trained("both")
    bert = bert_jax.load(run.path)
    (first, second) = bert.features(["The old cat", "The old cat sees the dog"], layers=[0, 1, 2], join="none")
    same, half = len(first.pieces) - 1, bert.config.hidden_size // 2  # all but [SEP]
    np.testing.assert_allclose(first.vectors[:same, :, :half], second.vectors[:same, :, :half], atol=2e-6)
    assert np.abs(first.vectors[:same, 1:, half:] - second.vectors[:same, 1:, half:]).max() > 1e-3
    np.testing.assert_array_equal(first.vectors[:, 0, :half], first.vectors[:, 0, half:])
    with pytest.raises(UsageError, match="have no attention"):
        bert.attention("The old cat")


def test_the_spelling_travels_with_an_elmo_and_is_not_trained(trained):
    run, _ = trained("both")
    bert = bert_jax.load(run.path)
    numbers, ids = np.asarray(bert.params["bert"]["spelling"]["numbers"]), bert.tokenizer.vocabulary.ids
    row_of = lambda piece: [number for number in numbers[ids[piece]] if number != PADDING]
    spelled = {piece: row_of(piece) for piece in ("a", "##a", "[CLS]")}
    assert spelled["a"] == [BEGIN_WORD, ord("a") + 1, END_WORD]
    assert spelled["##a"] == [ord("a") + 1, END_WORD]
    assert spelled["[CLS]"] == [BEGIN_WORD, BEGIN_SENTENCE, END_WORD]
    assert not numbers[len(ids) :].any()


def test_commands_take_a_run_of_permuted_tokens(trained, tmp_path, capsys):
    run, _ = trained("permuted")
    assert command(["fill-mask", str(run.path), "The [MASK] sees a [MASK]."]) == 0
    assert capsys.readouterr().out.count("0.") >= 2
    assert command(["evaluate", str(run.path), "--json"]) == 0
    assert command(["inspect", str(run.path), "--rows", "1"]) == 0
    assert "predict by context" in capsys.readouterr().out
    (tmp_path / "texts.txt").write_text("The cat sees the dog.\n")
    texts, features = str(tmp_path / "texts.txt"), str(tmp_path / "out.npz")
    assert command(["features", str(run.path), texts, features, "--layers", "0", "2"]) == 0
    shutil.copytree(run.path, tmp_path / "copy")
    assert command(["report", str(tmp_path / "copy")]) == 0
