"""The same course of 50 steps as transformers' classes take with torch's AdamW: see tests/golden/make_tasks.py."""

from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from bert_jax.config.operation import ExecutionConfig
from bert_jax.config.task import SpanConfig, TaskConfig
from bert_jax.config.task_kind import TASK_KINDS
from bert_jax.config.training import OptimizerConfig
from bert_jax.finetuning.batches import TaskBatch, task_batch
from bert_jax.finetuning.objective import TaskObjective
from bert_jax.finetuning.task import IGNORED, Example
from bert_jax.interchange.model_directory import open_model_directory
from bert_jax.interchange.tensor_names import to_tensors
from bert_jax.layout import TokenSequence
from bert_jax.training.optimizer import learning_rate, make_optimizer
from bert_jax.training.step import STEP_MEASUREMENTS, initial_state, make_train_step

FOLDER = Path(__file__).parents[1] / "golden"
BATCH, LENGTH, STEPS = 4, 12, 50
TASK = TaskConfig(name="golden", kind="class", labels=("a", "b", "c"), max_length=LENGTH)
TASKS = {
    "class": TASK,
    "tags": TASK.replace(kind="tags"),
    "span": TASK.replace(
        kind="span", labels=None, texts=("question", "context"), span=SpanConfig(stride=4, question_length=4)
    ),
}
RECIPE = OptimizerConfig(peak_learning_rate=2e-3, warmup=0.1, weight_decay=0.1, epsilon=1e-8, bias_correction=True)
"""That of make_tasks.py."""
HEADS = {"class": "classifier", "tags": "classifier", "span": "qa_outputs"}
NOT_COMPARED = {
    "class": ("self.key.bias",),
    "tags": ("self.key.bias",),
    "span": ("self.key.bias", "layer.1.output.LayerNorm.bias", "classifier.bias"),
}
"""Parameters that add the same to all scores of a softmax: their gradient is rounding alone, which Adam makes large."""


def initial_parameters(kind):
    """Encoder and head as transformers wrote them, and the model's shape."""
    folder = FOLDER / f"task_{kind}"
    published, tensors = open_model_directory(folder), load_file(folder / "model.safetensors")
    head = {"kernel": tensors[f"{HEADS[kind]}.weight"].T, "bias": tensors[f"{HEADS[kind]}.bias"]}
    return published.config, published.parameters() | {"task": {"dense": head}}


def batch_of(kind, rows, number) -> TaskBatch:
    """Batch `number`, padded as transformers had it."""
    examples = []
    for place in range(number * BATCH, (number + 1) * BATCH):
        ids, length, first, target = (rows[name][place] for name in ("ids", "length", "first_length", "target"))
        if kind == "tags":
            target = np.where(target < 0, IGNORED, target)[:length]
        examples.append(Example((TokenSequence(ids[:length].tolist(), int(first)),), target.tolist()))
    if kind == "span":
        examples = [example._replace(target=tuple(example.target)) for example in examples]
    return task_batch(TASK_KINDS[kind], examples, (BATCH, LENGTH), pad_id=0, first_ordinal=number * BATCH)


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.long(first=1)
def test_losses_and_parameters_follow_transformers(kind):
    expected = load_file(FOLDER / f"task_{kind}" / "expected.safetensors")
    rows = {name.removeprefix("rows."): value for name, value in expected.items() if name.startswith("rows.")}
    model, params = initial_parameters(kind)
    objective, optimizer = TaskObjective(TASKS[kind], model, ExecutionConfig()), make_optimizer(RECIPE)
    step = jax.jit(
        make_train_step(
            objective, optimizer, learning_rate(RECIPE, STEPS), ExecutionConfig(), phase=0, steps=range(STEPS), window=1
        )
    )
    state = initial_state(params, optimizer, (*objective.measurements, *STEP_MEASUREMENTS), seed=0)
    for number, loss in enumerate(expected["loss"]):
        state, measured = step(state, batch_of(kind, rows, number))
        assert float(measured["loss"].value) == pytest.approx(loss, rel=1e-3), f"step {number}"
    before, after = (to_tensors(jax.device_get(tree), model) for tree in (params, state.params))
    for name, tensor in after.items():
        theirs = expected["after." + name.replace("classifier.", f"{HEADS[kind]}.")]
        if not name.endswith(NOT_COMPARED[kind]):
            moved = np.abs(theirs - before[name]).max()
            np.testing.assert_allclose(tensor, theirs, atol=1e-3 * moved, rtol=0, err_msg=name)
    assert len(after) == sum(name.startswith("after.") for name in expected)
    assert (rows["length"] < LENGTH).any() == (kind != "span")
