"""The objectives of fine-tuned runs with random rows, which bench, plan and params work on."""

import json

import jax
import numpy as np
import pytest

from bert_jax.cli.arguments import objective_of_config
from bert_jax.config.finetune import FinetuneConfig, TaskRunConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.task import SpanConfig, TaskConfig
from bert_jax.config.training import Phase
from bert_jax.model.sharding import make_mesh
from bert_jax.model.size import encoder_flops
from bert_jax.products.bench import bench as bench_module
from bert_jax.products.plan import plan as plan_module
from bert_jax.run.opened_models import OpenedModels
from bert_jax.run.recorded_config import write_config
from bert_jax.system.errors import UsageError
from bert_jax.training.devices import with_even_batches
from bert_jax.training.trainer import Trainer

MODEL = ModelConfig(num_layers=1, hidden_size=16, num_heads=2, max_positions=64, vocabulary_size=100)
LABELS = {"labels": ("a", "b", "c")}
KINDS = {
    "class": LABELS,
    "labels": LABELS,
    "number": {},
    "marked": LABELS | {"marks": ("begin", "end")},
    "choice": {"choices": ("one", "two", "three")},
    "tags": LABELS,
    "span": {"texts": ("question", "text"), "span": SpanConfig(stride=8, question_length=8)},
    "vectors": {"texts": ("query", "positive"), "most_negatives": 1, "widths": (8,)},
    "scored": {"kind": "vectors", "texts": ("a", "b"), "scored": True},
}


def settings(kind: str, **changes) -> TaskRunConfig:
    """Of 12 rows a step; vectors have 36 texts in 7 rows of 32 tokens, or 24 where they are scored."""
    task = TaskConfig(**{"name": kind, "kind": kind, "batch_size": 12, "max_length": 32} | KINDS[kind] | changes)
    rows = 7 if task.kind == "vectors" else 12
    planned = FinetuneConfig(task=task).run_config(MODEL, task, "0" * 16, Phase(steps=3, length=32, batch_size=rows))
    return planned.replace(model=planned.model.replace(compute_dtype="float32"))


@pytest.fixture
def vectors_run(tmp_path):
    """Only the file of settings: nothing else of a run is read."""
    write_config(tmp_path / "config.json", settings("vectors"))
    return str(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_the_step_of_every_kind_takes_its_random_rows(kind):
    config = settings(kind)
    objective = objective_of_config(config, OpenedModels())
    trainer = Trainer(config, make_mesh(config.mesh), objective)
    batch = objective.random_batch(config.ids_shape(0))
    assert batch.tokens.ids.shape == config.ids_shape(0) and 50 < batch.tokens.ids.max() < 100
    lengths = batch.tokens.length
    assert lengths.sum() >= 0.9 * batch.tokens.ids.size and (lengths > 0).sum() == config.sequences(0)
    state, measured = jax.eval_shape(trainer.train_step(0), trainer.state_shapes, batch)
    assert state.step.shape == () and {"task_loss", "loss"} <= measured.keys()
    assert jax.tree.structure(state.params) == jax.tree.structure(objective.parameter_shapes)
    assert trainer.flops(0) > 0


def test_random_texts_are_all_of_a_step_and_spread_over_its_rows():
    config = settings("vectors")
    batch = objective_of_config(config, OpenedModels()).random_batch(config.ids_shape(0))
    there = batch.weight > 0
    assert sorted(batch.slot[there]) == sorted(batch.text[there]) == list(range(36))
    assert (batch.slot[~there] == 36).all()
    assert set(there.sum(axis=1)) == {5, 6} and (batch.tokens.length[there] >= 32 // 6).all()
    assert len(np.unique(batch.ordinal[there])) == 36
    config = settings("scored")
    scores = objective_of_config(config, OpenedModels()).random_batch(config.ids_shape(0))
    of_pair = scores.slot[scores.weight > 0] // 2
    assert len(set(zip(of_pair, scores.score[scores.weight > 0], strict=True))) == 12


def test_rows_follow_the_pairs_and_are_filled_up_for_devices_and_parts():
    config = settings("vectors")
    more = config.set({"task.batch_size": 48, "execution.accumulation": 8})
    assert [each.phases[0].batch_size for each in (more, config.set({"task.batch_size": 6}))] == [28, 4]
    assert config.set({"task.batch_size": 48, "phases.0.batch_size": 9}).phases[0].batch_size == 9
    assert with_even_batches(more, make_mesh(more.mesh)).phases[0].batch_size == 32
    with pytest.raises(ValueError, match="--task.batch-size=12 is not a multiple of --execution.accumulation=8"):
        config.set({"execution.accumulation": 8})
    with pytest.raises(UsageError, match="batch-size=3 rows of --phases.0.length=32 tokens are too few for 36 texts"):
        with_even_batches(config.set({"phases.0.batch_size": 3}), make_mesh(config.mesh))


def test_flops_are_those_of_the_encoder_for_every_row():
    step = objective_of_config(config := settings("choice"), OpenedModels()).flops(config.ids_shape(0))
    assert step == 3 * 12 * encoder_flops(MODEL, 32, 3)


@pytest.mark.long
def test_a_run_for_vectors_is_measured_on_random_texts(vectors_run, monkeypatch, done):
    monkeypatch.setattr(bench_module, "_CPU_SIZES", (128,))
    shown = done("bench", vectors_run, "--batch-size", 24, "--execution.accumulation", 2, "--seconds", 0.01)
    assert "Measuring steps of 14 rows of 32 tokens with 72 texts, float32" in shown.err
    found = json.loads(shown.out.splitlines()[-1])
    assert found["sequences_per_second"] == pytest.approx(72 / found["parts"][-1]["time"]["median"])
    expected = {"batch_size": 14, "length": 32, "predictions": 0, "task.batch_size": 24, "task.kind": "vectors"}
    assert (expected | {"sequences": "random", "execution.accumulation": 2}).items() <= found["settings"].items()


def test_a_run_for_vectors_is_planned_in_texts_a_second(vectors_run, monkeypatch, done):
    monkeypatch.setattr(plan_module, "can_compile", lambda: False)
    found = json.loads(done("plan", vectors_run, "--topology", "v5e:2x2", "--json").out)
    [phase] = found["phases"]
    assert phase["flops"] == 3 * 7 * encoder_flops(MODEL, 32, 32)
    assert phase["at_best"]["sequences_per_second"] == pytest.approx(36 / phase["at_best"]["step_seconds"])
    shapes = jax.tree.leaves(objective_of_config(settings("vectors"), OpenedModels()).parameter_shapes)
    assert 0 <= sum(leaf.size for leaf in shapes) - found["parameters"] < 128 * 16  # the vocabulary's padding


def test_parameters_are_those_of_the_run(vectors_run, tmp_path, done):
    shown = done("params", vectors_run).out
    assert "total without heads" in shown and "pooler" not in shown and "total with heads" not in shown
    (tmp_path / "class").mkdir()
    write_config(tmp_path / "class" / "config.json", settings("class"))
    shown = done("params", tmp_path / "class").out
    assert "pooler" in shown and "task dense" in shown and "total with heads" in shown and "MLM" not in shown
