"""Pretraining with an objective of a program: the class on the manual's page, and one with a head and targets."""

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import jax
import numpy as np
import optax
import pytest
from conftest import faked_devices, program

import bert_jax
from bert_jax.cli.main import run as bert_jax_command
from bert_jax.config.operation import MeshConfig
from bert_jax.model.sharding import make_mesh
from bert_jax.pretraining.dataset import prepared_for
from bert_jax.pretraining.objective import MaskedTokens, NextTokens
from bert_jax.pretraining.pretrain import training_source
from bert_jax.run.metrics import read_metrics
from bert_jax.run.recorded_config import write_config
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.run_files import RunFiles
from bert_jax.training.loop import train
from bert_jax.training.trainer import PhaseWork, Trainer

pytestmark = pytest.mark.long

PAGE = (Path(bert_jax.__file__).parents[1] / "docs/objective.md").read_text(encoding="utf-8")
ON_THE_PAGE = re.search(r"```python\n(.*?)\nconfig = ", PAGE, re.DOTALL)[1]
CLASSES = (
    ON_THE_PAGE
    + '''
import jax


class Halves(MaskedTokens):
    """Classifies from [CLS] whether a sequence's two halves were exchanged, with a head of its own."""

    def __init__(self, config, mask_id):
        super().__init__(config, mask_id)
        self.losses |= {"halves_loss": 0.5}
        self.measurements += ("halves_loss",)

    def init(self, key):
        kernel = 0.02 * jax.random.normal(jax.random.fold_in(key, 1), (self.model.hidden_size, 2))
        return super().init(key) | {"halves": {"task": {"dense": {"kernel": kernel, "bias": jnp.zeros(2)}}}}

    def targets(self, batch, keys, moment=None):
        exchanged = jax.vmap(lambda key: jax.random.bernoulli(jax.random.fold_in(key, 99)))(keys[:, 0])
        ids = batch.tokens.ids
        other = jnp.concatenate([ids[:, :1], jnp.roll(ids[:, 1:], ids.shape[1] // 2, axis=1)], axis=1)
        tokens = batch.tokens._replace(ids=jnp.where(exchanged[:, None], other, ids))
        return super().targets(batch._replace(tokens=tokens), keys, moment), exchanged

    def counts(self, targets):
        return super().counts(targets[0]) | {"halves_loss": jnp.sum(targets[0].pair_weight)}

    def measure(self, params, targets, dropout_keys):
        targets, exchanged = targets
        first = self.network.apply({"params": params}, targets.masked.tokens, method="encode").tokens[:, 0]
        head = params["halves"]["task"]["dense"]
        logits = first.astype(jnp.float32) @ head["kernel"] + head["bias"]
        loss = -jnp.take_along_axis(jax.nn.log_softmax(logits), exchanged[:, None].astype(int), axis=1)
        means = super().measure(params, targets, dropout_keys)
        return means | {"halves_loss": Mean.of(loss, targets.pair_weight)}

    def guess(self, batch, targets, log_share):
        return super().guess(batch, targets[0], log_share)
'''
)
ON_DEVICES = (
    CLASSES
    + """
import sys

from bert_jax.run.run_files import RunFiles
from bert_jax.run.run_directory import RunDirectory

config = RunFiles(RunDirectory(sys.argv[1]).path).pretraining_config
bert_jax.pretrain(config, sys.argv[2], objective=globals()[sys.argv[3]])
"""
)


@pytest.fixture(scope="module")
def classes() -> dict:
    names: dict = {}
    exec(compile(CLASSES, "classes", "exec"), names)
    return names


@pytest.fixture(scope="module")
def config(tiny_config):
    return tiny_config.change(logging={"every": 1}, optimizer={"peak_learning_rate": 1e-3})


def lines(path, split="train"):
    return [line for line in read_metrics(RunDirectory(path).metrics_file) if line["split"] == split]


@pytest.mark.parametrize("name, loss", [("SpreadWords", "cosine"), ("Halves", "halves_loss")])
def test_it_trains_on_eight_devices_as_on_one(classes, config, tmp_path, name, loss):
    results = bert_jax.pretrain(config, tmp_path / "one", objective=classes[name])
    alone = lines(tmp_path / "one")
    assert results.steps == 12 and {line["step"] for line in lines(tmp_path / "one", "eval")} == {6, 12}
    assert getattr(results, loss) == lines(tmp_path / "one", "eval")[-1][loss]
    weight = classes[name](config.change(model={"vocabulary_size": 150}), 4).losses[loss]
    for line in alone:
        assert line["loss"] == pytest.approx(line["mlm_loss"] + line["nsp_loss"] + weight * line[loss], rel=1e-5)

    mesh = config.replace(mesh=MeshConfig(data=2, fsdp=2, tensor=2)).change(execution={"accumulation": 2})
    (tmp_path / "config").mkdir()
    write_config(tmp_path / "config/config.json", mesh)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    arguments = ON_DEVICES, tmp_path / "config", tmp_path / "eight", name
    process = program(*arguments, env=os.environ | faked_devices(8), **pipes)
    _, said = process.communicate()
    assert process.returncode == 0, said
    eight = lines(tmp_path / "eight")
    for measured in ("loss", loss):
        np.testing.assert_allclose([line[measured] for line in eight], [line[measured] for line in alone], rtol=2e-4)


@pytest.fixture(scope="module")
def trained(classes, config, tmp_path_factory):
    path = tmp_path_factory.mktemp("own") / "run"
    bert_jax.pretrain(config, path, objective=classes["Halves"])
    return path


def test_a_stopped_run_goes_on_to_the_same_measurements(classes, config, trained, tmp_path):
    def stop(step, *_):
        if step == 5:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(bert_jax.Interrupted):
        bert_jax.pretrain(config, tmp_path / "run", objective=classes["Halves"], on_measured=stop)
    bert_jax.pretrain(config, tmp_path / "run", objective=classes["Halves"])
    measured = [[line["halves_loss"] for line in lines(path)] for path in (tmp_path / "run", trained)]
    assert measured[0] == measured[1]


def test_another_class_is_refused_and_so_is_the_command(classes, config, trained, tmp_path, capsys):
    assert json.loads((trained / "config.json").read_text())["config"]["objective"]["class_name"] == "Halves"
    with pytest.raises(bert_jax.UsageError, match="class-name"):
        bert_jax.pretrain(config, trained, objective=classes["SpreadWords"])
    with pytest.raises(bert_jax.UsageError, match="class-name"):
        bert_jax.pretrain(config, trained)
    assert bert_jax_command(["pretrain", str(trained), "--workdir", str(trained)]) == 2
    assert "train with bert_jax.pretrain(config, workdir, objective=Halves)" in capsys.readouterr().err
    with pytest.raises(bert_jax.UsageError, match="expected a subclass of MaskedTokens, the class of"):
        bert_jax.pretrain(config, tmp_path / "other", objective=NextTokens)
    assert not (tmp_path / "other/config.json").exists()


def test_other_commands_read_the_run_as_one_of_the_named_class(trained, tiny_run, tmp_path, capsys):
    copy = shutil.copytree(trained, tmp_path / "run")
    for words in (
        ["evaluate", copy],
        ["inspect", copy, "--rows", "1"],
        ["report", copy],
        ["export", copy, tmp_path / "exported"],
        ["fill-mask", copy, "The [MASK] cat."],
        ["verify", copy],
    ):
        assert bert_jax_command([*map(str, words)]) == 0, words
    assert bert_jax.load(tmp_path / "exported").params.keys() == bert_jax.load(tiny_run.path).params.keys()


def misnamed(**changes):
    """A class with other attributes than its methods fit."""

    class Misnamed(MaskedTokens):
        def __init__(self, config, mask_id):
            super().__init__(config, mask_id)
            for name, value in changes.items():
                setattr(self, name, value)

    return Misnamed


@pytest.mark.parametrize(
    "objective, message",
    [
        (misnamed(losses={"mlm_loss": 1.0, "other": 1.0}), "`counts` returns .*, and `losses` names .*other"),
        (misnamed(measurements=("mlm_loss",)), "`measure` returns .*, and `measurements` names mlm_loss;"),
    ],
)
def test_a_class_that_does_not_fit_itself_is_refused_before_anything_is_written(config, tmp_path, objective, message):
    with pytest.raises(bert_jax.UsageError, match=message):
        bert_jax.pretrain(config, tmp_path / "run", objective=objective)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_the_loop_trains_with_an_optimizer_of_ones_own(config, tiny_run, untrained):
    """As the page says: a trainer, a phase, and `train`, with a checkpoint at the end."""
    config = config.set({"model.vocabulary_size": 150})
    trainer = Trainer(config, make_mesh(config.mesh), MaskedTokens(config, 4), optax.lion(1.0))
    untrained.open(config)
    prepared = prepared_for(RunFiles(tiny_run.path).pretraining_config, tiny_run, 32)
    phase = PhaseWork(trainer, 0, training_source(trainer, 0, prepared), None, str, sequences=8, name="Training")
    trained = train(trainer, untrained, [phase], lambda: None)
    slots = jax.tree_util.tree_leaves_with_path(trained.state.optimizer)
    assert int(trained.state.step) == 12 and not any("square" in str(path) for path, _ in slots)
    assert (untrained.checkpoints / "00000012").is_dir()


def test_the_named_class_itself_is_an_objective(config, tmp_path):
    results = bert_jax.pretrain(config.change(objective={"pair": "none"}), tmp_path / "run", objective=MaskedTokens)
    assert results.steps == 12
