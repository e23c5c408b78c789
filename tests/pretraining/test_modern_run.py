"""A whole run of ModernBERT's block: rotary positions, local attention, norms before the layers, a longer context; with
Muon."""

import json

import jax
import numpy as np
import pytest
from stages import parameters

import bert_jax
from bert_jax.config.model import ModelConfig
from bert_jax.config.run import RunConfig
from bert_jax.model.bert import init
from bert_jax.model.parameters import path_of
from bert_jax.model.sharding import make_mesh
from bert_jax.pretraining.evaluation import evaluate_run
from bert_jax.pretraining.initial import initial_parameters, open_initial
from bert_jax.pretraining.pretrain import pretrain
from bert_jax.run.metrics import read_metrics
from bert_jax.run.opened_models import OpenedModels
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.errors import UsageError

pytestmark = pytest.mark.long

UNTRAINED = ("bert/pooler/", "next_sentence/")


@pytest.fixture(scope="module")
def config(tiny_config) -> RunConfig:
    phase = tiny_config.phases[0]
    shape = {"num_layers": 4, "hidden_size": 32, "num_heads": 2, "feedforward_size": 48, "local_window": 4}
    return tiny_config.replace(
        model=ModelConfig.modern(**shape, max_positions=64),
        objective=tiny_config.objective.replace(pair="none", masked_share=0.3, masked_share_end=0.15),
        data=tiny_config.data.replace(packed=True),
        optimizer=tiny_config.optimizer.replace(name="muon", peak_learning_rate=1e-2, bias_correction=True),
        phases=(phase.replace(steps=8, rotary_base=100.0), phase.replace(steps=4, length=64)),
    )


@pytest.fixture(scope="module")
def run(config, tmp_path_factory) -> RunDirectory:
    run = RunDirectory(tmp_path_factory.mktemp("modern") / "run")
    pretrain(config, run)
    return run


def test_every_part_learns(run, config):
    bert = bert_jax.load(run.path)
    before = jax.tree_util.tree_leaves_with_path(init(bert.config, jax.random.key(0)))
    after = jax.tree.leaves(bert.params)
    for (path, shape), leaf in zip(before, after, strict=True):
        assert shape.shape == leaf.shape
        if path_of(path).endswith("scale") and not path_of(path).startswith(UNTRAINED):
            assert np.ptp(leaf) > 0, path_of(path)  # it began as ones; every row of every block has moved
            assert leaf.ndim == 1 or all(np.ptp(row) > 0 for row in np.asarray(leaf))
    results = json.loads(run.results_file.read_text())
    trained = [line for line in read_metrics(run.metrics_file) if line["split"] == "train"]
    assert results["mlm_loss"] < trained[0]["loss"]


def test_a_phase_has_its_own_rotations(run, config):
    saved = sorted(int(path.name) for path in run.checkpoints.iterdir() if path.name.isdecimal())
    bases = {step: bert_jax.load(run.path, step=step).config.rotary_base for step in saved}
    assert bases[12] == config.model.rotary_base == 160_000.0 and bases[8] == 100.0
    at_8 = [line for line in read_metrics(run.metrics_file) if line["split"] == "eval" and line["step"] == 6]
    assert at_8 and evaluate_run(run, step=8).metrics["mlm_loss"] > 0


def test_it_goes_on_bit_for_bit_over_the_change_of_the_phase(run, config, resumed):
    assert parameters(resumed(config, 8, run).path) == parameters(run.path)


def test_a_copy_with_another_context_goes_on_from_it(run, config):
    copy, opened = config.replace(init=str(run.path)), OpenedModels()
    longer = copy.change(model={"rotary_base": 50_000.0, "max_positions": 128})  # there is no table of positions
    initial = open_initial(longer, opened)
    began = initial_parameters(initial, longer, run.files.tokenizer, make_mesh(longer.mesh))
    jax.tree.map(np.testing.assert_array_equal, began, bert_jax.load(run.path).params)
    with pytest.raises(UsageError, match="--model.local-window is 4 there and 5 here"):
        open_initial(copy.change(model={"local_window": 5}), opened)
