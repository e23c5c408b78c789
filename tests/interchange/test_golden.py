"""The same numbers as transformers' BertForPreTraining: see tests/golden/make.py for what the files hold."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from objectives import gradients_of, objective_of
from safetensors.numpy import load_file
from token_rows import tokens_of

from bert_jax.config.operation import ExecutionConfig
from bert_jax.config.optimizer import OptimizerConfig
from bert_jax.interchange.model_directory import open_model_directory
from bert_jax.interchange.names import to_tensors
from bert_jax.model.bert import BertForPretraining
from bert_jax.pretraining.masking import Masked
from bert_jax.pretraining.objective import PretrainingTargets
from bert_jax.training.batch import Batch
from bert_jax.training.optimizer import learning_rate, make_optimizer
from bert_jax.training.step import STEP_MEASUREMENTS, initial_state, make_train_step

FOLDER = Path(__file__).parents[1] / "golden"
BATCH, STEPS = 4, 20
RECIPE = OptimizerConfig(peak_learning_rate=5e-3, warmup=0.2, weight_decay=0.01, epsilon=1e-6)
"""That of make.py."""


class Golden:
    """A model as transformers wrote it, and what transformers computed with it."""

    def __init__(self, folder: Path):
        self.expected = load_file(folder / "expected.safetensors")
        self.published = open_model_directory(folder)
        self.config = self.published.config
        self.params = jax.tree.map(jnp.asarray, self.published.parameters())
        self.objective = objective_of(self.config)

    def targets(self, name: str) -> PretrainingTargets:
        """The questions that the file holds under `name`, one a row."""
        told = {key.partition(".")[2]: value for key, value in self.expected.items() if key.startswith(f"{name}.")}
        whole = {key: value.astype(np.int32) for key, value in told.items() if value.dtype == np.int64}
        tokens = tokens_of(whole["ids"], whole["segments"], told["mask"])
        masked = Masked(tokens, whole["positions"], whole["labels"], told["weights"])
        ones = np.ones((len(told["weights"]), 1), np.float32)
        return jax.tree.map(jnp.asarray, PretrainingTargets(masked, whole["pair_label"][:, None], ones))


@pytest.fixture(scope="module", params=["gelu_erf", "gelu_tanh"])
def golden(request):
    return Golden(FOLDER / request.param)


def test_the_form_of_gelu_comes_with_the_model(golden, request):
    assert golden.config.activation == request.node.callspec.params["golden"]
    assert not golden.published.absent and not golden.published.unused


def test_hidden_states_of_every_layer_and_the_logits_of_both_heads(golden):
    asked, config = golden.targets("batch"), golden.config
    variables, network = {"params": golden.params}, BertForPretraining(config)
    encoded = network.apply(variables, asked.masked.tokens, True, method="encode")
    real = np.asarray(asked.masked.tokens.sequence > 0)
    for number, layer in enumerate(encoded.layers):
        theirs = golden.expected[f"hidden.{number}"]
        np.testing.assert_allclose(layer[real], theirs[real], atol=1e-5, err_msg=f"layer {number}")
    everywhere = jnp.tile(jnp.arange(real.shape[1]), (BATCH, 1))
    pieces, pairs = network.apply(variables, asked.masked.tokens, everywhere)
    pieces = np.asarray(pieces)[..., : config.vocabulary_size]
    np.testing.assert_allclose(pieces[real], golden.expected["logits.mlm"][real], atol=1e-4)
    np.testing.assert_allclose(pairs[:, 0], golden.expected["logits.nsp"], atol=1e-4)


def test_both_losses(golden):
    means = golden.objective.measure(golden.params, golden.targets("batch"), None)
    for task in ("mlm", "nsp"):
        assert float(means[f"{task}_loss"].value) == pytest.approx(float(golden.expected[f"loss.{task}"]), abs=1e-5)


def test_the_gradient_of_every_parameter(golden):
    targets = golden.targets("batch")
    keys = jax.random.split(jax.random.key(0), (BATCH, 1))
    gradients, _ = gradients_of(golden.objective, golden.params, targets, keys)
    ours = to_tensors(jax.device_get(gradients), golden.config)
    theirs = {
        name.removeprefix("gradient."): value for name, value in golden.expected.items() if name.startswith("gradient.")
    }
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        if name.endswith("self.key.bias"):  # zero but for rounding: a softmax doesn't see what all scores share
            assert np.abs(ours[name]).max() < 1e-7 and np.abs(expected).max() < 1e-7
        else:
            np.testing.assert_allclose(ours[name], expected, atol=1e-4 * np.abs(expected).max(), rtol=0, err_msg=name)


def test_the_losses_of_twenty_optimizer_steps(golden):
    course = golden.targets("course")

    objective = objective_of(golden.config)
    # What the file holds, row by row, in place of masking a batch.
    objective.targets = lambda batch, keys, moment=None: jax.tree.map(lambda rows: rows[batch.ordinal[:, 0]], course)
    optimizer, rate = make_optimizer(RECIPE), learning_rate(RECIPE, STEPS)
    step = jax.jit(make_train_step(objective, optimizer, rate, ExecutionConfig(), phase=0, steps=range(1), window=1))
    state = initial_state(golden.params, optimizer, (*objective.measurements, *STEP_MEASUREMENTS), seed=0)
    for number, expected in enumerate(golden.expected["course.loss"]):
        rows = slice(number * BATCH, (number + 1) * BATCH)
        state, measured = step(state, _batch(course, rows))
        assert float(measured["loss"].value) == pytest.approx(expected, abs=1e-4), f"step {number}"


def _batch(course: PretrainingTargets, rows: slice) -> Batch:
    """Rows of `course` as a batch, of which the step takes lengths, weights and ordinals."""
    return Batch(
        tokens=jax.tree.map(lambda array: array[rows], course.masked.tokens),
        pair_label=course.pair_label[rows],
        weight=course.pair_weight[rows],
        ordinal=np.arange(rows.start, rows.stop, dtype=np.uint32)[:, None],
    )
