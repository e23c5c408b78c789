"""Evaluation on held-out documents: of the model, and of a baseline that knows only frequencies."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from bert_jax.instances.prepared_data import PreparedData
from bert_jax.instances.store import InstanceSource
from bert_jax.model.bert import Parameters
from bert_jax.model.embeddings import vocabulary_size
from bert_jax.model.sharding import batch_sharding, local_rows, on_mesh, placed, row_shards
from bert_jax.pretraining.objective import PretrainingTrainer
from bert_jax.pretraining.questions import REPLACED_SHARE, REPLACED_TOKENS
from bert_jax.run.measurement import Mean, Means
from bert_jax.training.batch import Batch, read_ahead
from bert_jax.training.input import BatchSource, InOrder
from bert_jax.training.step import example_keys, make_evaluation_step


class HeldOut:
    """Sequences of one prepared set that a model is measured on, with fixed masks. Rows of weight 0 fill up the last
    batch."""

    def __init__(
        self, trainer: PretrainingTrainer, phase: int, data: PreparedData, split: str, max_sequences: int | None
    ):
        """The sequences of `split`, all where `max_sequences` is None, measured as in phase number `phase`."""
        config, rows = trainer.config, row_shards(trainer.mesh)
        instances = InstanceSource(data.directory, split, config.input.damaged_records)
        largest = max(each.batch_size for each in config.phases if each.length == data.length)
        self._batch_size = -(-largest // rows) * rows
        self._objective, self._seed = trainer.objective.in_phase(phase), config.seed
        self._sharding = batch_sharding(trainer.mesh)
        self.sequences = min(len(instances), max_sequences or len(instances))
        self._source = BatchSource(
            instances,
            InOrder(len(instances), self.sequences),
            batch_size=self._batch_size,
            length=data.length,
            vocabulary_size=vocabulary_size(self._objective.model),
            num_batches=-(-self.sequences // self._batch_size),
            rows=local_rows(self._sharding, self._batch_size),
        )
        self._step = jax.jit(on_mesh(trainer.mesh, make_evaluation_step(self._objective, seed=self._seed)))

    def evaluate(self, params: Parameters, stop: Callable[[], bool] = lambda: False) -> dict[str, float] | None:
        """Returns all measurements and the loss; None if `stop`, called before each batch, returns True."""
        values = self._means(lambda batch: self._step(params, batch), stop)
        return values and {"loss": self._loss(values)} | values

    def _loss(self, values: dict[str, float]) -> float:
        return sum(weight * values[name] for name, weight in self._objective.losses.items())

    def baseline(self, piece_counts: Int[np.ndarray, " V"], measured: dict[str, float]) -> dict[str, float]:
        """The measurements of a baseline that answers every question from frequencies, the same for each token or pair.

        Tokens: each piece is predicted with its share of `piece_counts`, and the commonest piece is the guess. These
        counts have no [SEP], which may be a next token: its probability is its share of the labels. Pairs: the guess is
        the commoner label. Replaced tokens: every token is guessed to be original, and is replaced with the probability
        that `measured`, the result of `evaluate`, has for the share of replaced tokens.
        """
        log_share = jnp.log((piece_counts + 1) / np.sum(piece_counts + 1))
        loss, accuracy = self._objective.token_question.loss, self._objective.token_question.accuracy

        @jax.jit
        def step(batch: Batch) -> Means:
            targets = self._objective.targets(batch, example_keys(self._seed, "evaluation", 0, batch.ordinal))
            labels, weights = targets.masked.labels, targets.masked.weights
            last = batch.tokens.begin + batch.tokens.length - 1
            # Each sequence ends with [SEP], the first of a row too.
            is_end = labels == jnp.take_along_axis(batch.tokens.ids, last[:, :1], axis=1)
            return {
                loss: Mean.of(jnp.where(is_end, 0.0, -log_share[labels]), weights),
                accuracy: Mean.of((labels == jnp.argmax(log_share)).astype(jnp.float32), weights),
                "end": Mean.of(is_end.astype(jnp.float32), weights),
                "random": Mean.of(batch.pair_label.astype(jnp.float32), batch.weight),
            }

        values = self._means(step, lambda: False)
        assert values is not None  # never stopped
        random, end = values.pop("random"), values.pop("end")
        values[loss] += _entropy(end)
        values[accuracy] = max(values[accuracy], end)
        if self._objective.pair_question:
            values[self._objective.pair_question.accuracy] = max(random, 1 - random)
        if REPLACED_SHARE in measured:
            values[REPLACED_TOKENS.loss] = _entropy(measured[REPLACED_SHARE])
            values[REPLACED_TOKENS.accuracy] = 1 - measured[REPLACED_SHARE]
        return values

    def _means(self, step: Callable[[Any], Means], stop: Callable[[], bool]) -> dict[str, float] | None:
        """The means over all batches, from sums in float64."""
        sums = []
        for batch in read_ahead(self._source):
            if stop():
                return None
            sums.append(jax.device_get(step(placed(batch, self._sharding, self._batch_size))))
        return {
            name: sum(float(part[name].total) for part in sums) / max(sum(float(part[name].count) for part in sums), 1)
            for name in sums[0]
        }


def _entropy(share: float) -> float:
    """Entropy of an event with probability `share`, in nats: the least loss of a constant prediction of it."""
    return -sum(part * math.log(part) for part in (share, 1 - share) if part)
