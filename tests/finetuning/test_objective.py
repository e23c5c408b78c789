import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from objectives import compiled, gradients_of

from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import ExecutionConfig
from bert_jax.config.task import TaskConfig
from bert_jax.config.task_kind import TASK_KINDS
from bert_jax.finetuning.batches import TaskBatch, task_batch
from bert_jax.finetuning.objective import TaskObjective
from bert_jax.finetuning.task import IGNORED, Example
from bert_jax.layout import TokenSequence

MODEL = ModelConfig(num_layers=1, hidden_size=16, num_heads=2, max_positions=16, vocabulary_size=20)
CLASS = TaskConfig(name="x", kind="class", labels=("a", "b", "c"), max_length=16)
TASKS = {
    "class": CLASS,
    "labels": CLASS.replace(kind="labels"),
    "number": CLASS.replace(kind="number"),
    "choice": CLASS.replace(kind="choice", choices=("first", "second")),
    "tags": CLASS.replace(kind="tags"),
    "span": CLASS.replace(kind="span", texts=("q", "c"), span={"stride": 4, "question_length": 4}),
    "marked": CLASS.replace(kind="marked", marks=("begin", "end")),
}


LENGTHS = (8, 5, 6, 7)


def batch_of(kind: str, length: int = 8, weight=(1, 1, 1, 1), example_rows=None) -> TaskBatch:
    """Four examples of sequences of 5 to 8 tokens, each example in a row of its own or in its row of `example_rows`.
    `length`: tokens of a row for each sequence of an example."""
    random = np.random.default_rng(0)
    choices = 2 if kind == "choice" else 1
    targets = {
        "number": [0.5, -1.0, 2.0, 3.0],
        "choice": [0, 1, 1, 0],
        "labels": [(0, 1, 1), (0, 0, 0), (1, 0, 1), (1, 1, 1)],
        "tags": [[*random.integers(0, 3, 4).tolist(), *[IGNORED] * (size - 4)] for size in LENGTHS],
        "span": [(1, 2), (3, 3), (0, 0), (2, 4)],
    }.get(kind, [0, 1, 2, 1])
    examples = [
        Example(
            tuple(TokenSequence(random.integers(1, 20, size).tolist(), size) for _ in range(choices)),
            target,
            ((1, 3),) * (kind == "marked"),
        )
        for size, target in zip(LENGTHS, targets, strict=True)
    ]
    most = 1 if example_rows is None else int(np.bincount(example_rows).max())
    rows = 4 if example_rows is None else max(example_rows) + 1
    places = None if example_rows is None else np.array(example_rows)
    batch = task_batch(TASK_KINDS[kind], examples, (rows, length * choices), 0, 0, places, most)
    batch = batch._replace(weight=batch.weight * np.asarray(weight, np.float32)[batch.ordinal])
    return jax.tree.map(jnp.asarray, batch)


@functools.cache
def objective_of(kind: str) -> TaskObjective:
    return compiled(TaskObjective(TASKS[kind], MODEL, ExecutionConfig()))


@pytest.fixture(params=TASKS)
def kind(request):
    return request.param


def test_the_loss_of_each_kind(kind):
    objective, batch = objective_of(kind), batch_of(kind)
    params = objective.init(jax.random.key(0))
    outputs = np.asarray(objective.outputs(params, batch), np.float64)
    found = objective.measure(params, batch, None)
    target = np.asarray(batch.target)
    if kind == "number":
        expected = np.mean((outputs[..., 0] - target) ** 2)
    elif kind == "labels":
        shares = 1 / (1 + np.exp(-outputs))
        expected = -np.mean(np.log(np.where(target, shares, 1 - shares)))
    elif kind == "span":
        scores = [outputs[row, : batch.tokens.length[row, 0]] for row in range(4)]
        losses = [np.log(np.exp(row).sum(axis=0)) - row[ends, [0, 1]] for row, ends in zip(scores, target[:, 0])]
        expected = np.mean(losses)
    else:
        logits = outputs.reshape(-1, outputs.shape[-1])
        labels = target.reshape(-1)
        asked = labels != IGNORED
        expected = np.mean((np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(labels)), labels])[asked])
    assert float(found["task_loss"].value) == pytest.approx(expected, rel=1e-5)
    assert set(found) == set(objective.measurements)
    assert float(objective.counts(batch)["task_loss"]) == float(found["task_loss"].count)


@pytest.mark.long(first=1)
def test_padding_and_fillers_change_nothing(kind):
    objective = objective_of(kind)
    params = objective.init(jax.random.key(0))
    loss = lambda batch: float(objective.measure(params, batch, None)["task_loss"].value)
    assert loss(batch_of(kind, length=12)) == pytest.approx(loss(batch_of(kind)), rel=1e-5)
    each = [loss(batch_of(kind, weight=np.eye(4)[row])) for row in range(3)]
    assert loss(batch_of(kind, weight=(1, 1, 1, 0))) == pytest.approx(np.mean(each), rel=1e-5)


@pytest.mark.parametrize("kind", ["class", "choice", "tags", "marked"])  # one for each way to the head
@pytest.mark.long(first=1)
def test_dropout_is_each_rows_own(kind):
    objective, batch = objective_of(kind), batch_of(kind)
    params, keys = objective.init(jax.random.key(0)), jax.random.split(jax.random.key(1), (4, 1))
    whole, order = objective.outputs(params, batch, keys), np.array([2, 0, 3, 1])
    other = objective.outputs(params, jax.tree.map(lambda x: x[order], batch), keys[order])
    np.testing.assert_allclose(whole[order], other, rtol=1e-4, atol=1e-6)
    assert not np.allclose(whole, objective.outputs(params, batch), rtol=1e-3)


@pytest.mark.parametrize("kind", sorted(TASKS.keys() - {"number"}))  # which has the head of a class
@pytest.mark.long
def test_examples_that_share_rows_have_the_losses_and_gradients_of_rows_of_their_own(kind):
    objective, alone = objective_of(kind), batch_of(kind)
    packed = batch_of(kind, length=20, example_rows=[1, 0, 0, 1])
    assert packed.weight.shape == (2, 2) and packed.ordinal.tolist() == [[1, 2], [0, 3]]
    params, keys = objective.init(jax.random.key(0)), jax.random.split(jax.random.key(1), 4)
    found, expected = (
        gradients_of(objective, params, batch, keys[batch.ordinal], 1) for batch in (packed, alone)
    )  # with dropout, whose keys are the examples' own
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_what_is_frozen_does_not_learn():
    assert objective_of("class").learns({}) is None
    objective = compiled(TaskObjective(CLASS, MODEL.replace(num_layers=2), ExecutionConfig(), 1))
    learns = objective.learns(objective.init(jax.random.key(0)))
    assert learns["bert"]["encoder"]["layers"]["feedforward_in"]["kernel"].tolist() == [[[False]], [[True]]]
    assert not learns["bert"]["embeddings"]["word"] and not learns["bert"]["embeddings"]["norm"]["scale"]
    assert learns["bert"]["pooler"]["dense"]["kernel"] and learns["task"]["dense"]["bias"]


@pytest.mark.parametrize("mixes", [False, True])
@pytest.mark.long(first=1)
def test_the_gradients_of_a_probe_are_those_of_the_head(mixes):
    task, keys = CLASS.replace(mix_layers=mixes), jax.random.split(jax.random.key(1), (4, 1))
    probe, whole = (compiled(TaskObjective(task, MODEL, ExecutionConfig(), probe=probe)) for probe in (True, False))
    params = whole.init(jax.random.key(0))
    found, expected = (gradients_of(each, params, batch_of("class"), keys)[0] for each in (probe, whole))
    assert all(not leaf.any() for leaf in jax.tree.leaves(found["bert"]))
    assert set(found["task"]) == ({"dense", "mix", "gamma"} if mixes else {"dense"})
    for one, other in zip(jax.tree.leaves(found["task"]), jax.tree.leaves(expected["task"]), strict=True):
        assert np.abs(one).max() > 0
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-7)
    learns = probe.learns(params)
    assert all(jax.tree.leaves(learns["task"])) and not any(jax.tree.leaves(learns["bert"]))


@pytest.mark.parametrize(
    "kind, weights, smoothing",
    [
        ("class", (1.0, 2.0, 0.5), 0.0),
        ("tags", (1.0, 2.0, 0.5), 0.0),
        ("class", None, 0.3),
        ("choice", None, 0.3),
        ("tags", None, 0.3),
    ],
)
@pytest.mark.long(first=3)
def test_classes_have_weights_in_the_mean_and_smoothed_labels_share_a_part_of_each_target(kind, weights, smoothing):
    """Neither changes the accuracy."""
    plain, batch = objective_of(kind), batch_of(kind)
    task = TASKS[kind].replace(class_weights=weights, label_smoothing=smoothing)
    changed = compiled(TaskObjective(task, MODEL, ExecutionConfig()))
    params = plain.init(jax.random.key(0))
    outputs = np.asarray(plain.outputs(params, batch), np.float64)
    logits, labels = outputs.reshape(-1, outputs.shape[-1]), np.ravel(batch.target)
    shares = (1 - smoothing) * np.eye(logits.shape[1])[labels] + smoothing / logits.shape[1]
    losses = np.log(np.exp(logits).sum(axis=1)) - np.sum(shares * logits, axis=1)
    of_label = np.where(labels == IGNORED, 0, np.array(weights or [1.0] * 3)[labels])
    found = changed.measure(params, batch, None)
    assert float(found["task_loss"].value) == pytest.approx(np.average(losses, weights=of_label), rel=1e-5)
    assert float(changed.counts(batch)["task_loss"]) == pytest.approx(of_label.sum())
    assert float(found["accuracy"].value) == float(plain.measure(params, batch, None)["accuracy"].value)


def test_a_loss_with_small_class_weights_is_divided_by_their_sum():
    batch, params = batch_of("class"), objective_of("class").init(jax.random.key(0))
    small, large = (
        compiled(TaskObjective(TASKS["class"].replace(class_weights=weights), MODEL, ExecutionConfig()))
        for weights in ((1e-3, 2e-3, 3e-3), (1.0, 2.0, 3.0))
    )
    keys = jax.random.split(jax.random.key(1), (4, 1))
    of_small, of_large = (gradients_of(each, params, batch, keys)[0] for each in (small, large))
    for ours, theirs in zip(jax.tree.leaves(of_small), jax.tree.leaves(of_large), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-7)
