"""A whole run of permuted prediction (XLNet). Its order and its spans are tested in test_masking.py."""

import json
import shutil

import jax
import numpy as np
import pytest
from conftest import prepared_copy
from stages import stopped_at

import bert_jax
from bert_jax.cli.main import run as command
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import Phase
from bert_jax.pretraining.pretrain import pretrain
from bert_jax.run.run_directory import RunDirectory

pytestmark = pytest.mark.long

STEPS = 60
OBJECTIVE = ObjectiveConfig(predict="permuted", pair="none", units="context", masked_share=1 / 6, evaluated_share=1 / 6)


@pytest.fixture(scope="module")
def config(tiny_config) -> RunConfig:
    model = tiny_config.model.replace(positions="relative", class_token="last", num_segments=0, model_type="xlnet")
    return tiny_config.replace(
        model=model,
        objective=OBJECTIVE,
        optimizer=tiny_config.optimizer.replace(peak_learning_rate=1e-2, bias_correction=True),
        phases=(Phase(steps=STEPS, length=32, batch_size=16),),
        evaluation=tiny_config.evaluation.replace(every=STEPS // 2),
        checkpoints=tiny_config.checkpoints.replace(every=STEPS // 2),
    )


@pytest.fixture(scope="module")
def run(config, tmp_path_factory) -> RunDirectory:
    run = RunDirectory(tmp_path_factory.mktemp("permuted") / "run")
    pretrain(config, run)
    return run


def test_it_learns_more_than_frequencies(run):
    results = json.loads(run.results_file.read_text())
    assert results["metric"] == "plm_accuracy" and results["loss"] == results["plm_loss"]
    assert results["plm_loss"] < results["baseline"]["plm_loss"] - 0.05


def test_a_stopped_run_ends_with_the_same_bits(run, config, tmp_path):
    copy = prepared_copy(run, tmp_path)
    with stopped_at(STEPS // 2 + 3):
        pretrain(config, copy)
    pretrain(config, copy)
    whole, resumed = (bert_jax.load(each.path).params for each in (run, copy))
    assert jax.tree.all(jax.tree.map(lambda a, b: np.array_equal(a, b), whole, resumed))


def test_masks_are_filled_by_the_query_stream(run, capsys):
    bert = bert_jax.load(run.path)
    ((piece, probability), *_), *_ = bert.fill_mask("The [MASK] sees the dog.")
    assert isinstance(piece, str) and 0 < probability < 1
    assert command(["fill-mask", str(run.path), "The [MASK] sees a [MASK]."]) == 0
    assert capsys.readouterr().out.count("0.") >= 2


def test_commands_take_the_run(run, tmp_path, capsys):
    assert command(["evaluate", str(run.path), "--json"]) == 0
    assert command(["inspect", str(run.path), "--rows", "1"]) == 0
    assert "predict by context" in capsys.readouterr().out
    (tmp_path / "texts.txt").write_text("The cat sees the dog.\n")
    texts, features = str(tmp_path / "texts.txt"), str(tmp_path / "out.npz")
    assert command(["features", str(run.path), texts, features, "--layers", "0", "2"]) == 0
    shutil.copytree(run.path, tmp_path / "copy")
    assert command(["report", str(tmp_path / "copy")]) == 0
