"""Our objective and optimizer give the losses of transformers' BertForPreTraining (tests/golden/make.py)."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from objectives import objective_of
from safetensors.numpy import load_file
from token_rows import tokens_of

from bert_jax.config.operation import ExecutionConfig
from bert_jax.config.training import OptimizerConfig
from bert_jax.interchange.model_directory import open_model_directory
from bert_jax.pretraining.masking import Masked
from bert_jax.pretraining.objective import PretrainingTargets
from bert_jax.training.batch import Batch
from bert_jax.training.optimizer import learning_rate, make_optimizer
from bert_jax.training.step import STEP_MEASUREMENTS, initial_state, make_train_step

FOLDER = Path(__file__).parents[1] / "golden" / "gelu_erf"
BATCH, STEPS = 4, 20
RECIPE = OptimizerConfig(peak_learning_rate=5e-3, warmup=0.2, weight_decay=0.01, epsilon=1e-6)
"""That of make.py."""


def questions(expected: dict[str, np.ndarray]) -> PretrainingTargets:
    """The course of questions that the file holds, one a row."""
    arrays = {key.partition(".")[2]: value for key, value in expected.items() if key.startswith("course.")}
    whole = {key: value.astype(np.int32) for key, value in arrays.items() if value.dtype == np.int64}
    tokens = tokens_of(whole["ids"], whole["segments"], arrays["mask"])
    masked = Masked(tokens, whole["positions"], whole["labels"], arrays["weights"])
    ones = np.ones((len(arrays["weights"]), 1), np.float32)
    return jax.tree.map(jnp.asarray, PretrainingTargets(masked, whole["pair_label"][:, None], ones))


def test_the_losses_of_twenty_optimizer_steps():
    expected, published = load_file(FOLDER / "expected.safetensors"), open_model_directory(FOLDER)
    course, objective = questions(expected), objective_of(published.config)
    # What the file holds, row by row, in place of masking a batch.
    objective.targets = lambda batch, keys, moment=None: jax.tree.map(lambda rows: rows[batch.ordinal[:, 0]], course)
    optimizer, rate = make_optimizer(RECIPE), learning_rate(RECIPE, STEPS)
    step = jax.jit(make_train_step(objective, optimizer, rate, ExecutionConfig(), phase=0, steps=range(1), window=1))
    params = jax.tree.map(jnp.asarray, published.parameters())
    state = initial_state(params, optimizer, (*objective.measurements, *STEP_MEASUREMENTS), seed=0)
    for number, loss in enumerate(expected["course.loss"]):
        rows = slice(number * BATCH, (number + 1) * BATCH)
        batch = Batch(  # of which the step takes lengths, weights and ordinals
            tokens=jax.tree.map(lambda array: array[rows], course.masked.tokens),
            pair_label=course.pair_label[rows],
            weight=course.pair_weight[rows],
            ordinal=np.arange(rows.start, rows.stop, dtype=np.uint32)[:, None],
        )
        state, measured = step(state, batch)
        assert float(measured["loss"].value) == pytest.approx(loss, abs=1e-4), f"step {number}"
