"""Evaluation on held-out documents: of the model, and of a baseline that knows only frequencies."""

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
from bert_jax.run.measurement import Means
from bert_jax.training.batch import Batch, read_ahead
from bert_jax.training.input import BatchSource, InOrder
from bert_jax.training.step import example_keys, make_evaluation_step


class HeldOut:
    """The sequences of one prepared set for evaluation, with fixed masks. Rows of weight 0 fill up the last batch."""

    def __init__(
        self, trainer: PretrainingTrainer, phase: int, data: PreparedData, split: str, max_sequences: int | None
    ):
        """The sequences of `split`, all if `max_sequences` is None, for evaluation in phase number `phase`."""
        config, rows = trainer.config, row_shards(trainer.mesh)
        instances = InstanceSource(data.directory, split, config.input.damaged_records)
        largest = max(each.batch_size for each in config.phases if each.length == data.length)
        self._batch_size = -(-largest // rows) * rows
        self._method, self._seed = trainer.objective.in_phase(phase), config.seed
        self._sharding = batch_sharding(trainer.mesh)
        self.sequences = min(len(instances), max_sequences or len(instances))
        self._source = BatchSource(
            instances,
            InOrder(len(instances), self.sequences),
            batch_size=self._batch_size,
            length=data.length,
            vocabulary_size=vocabulary_size(self._method.model),
            num_batches=-(-self.sequences // self._batch_size),
            rows=local_rows(self._sharding, self._batch_size),
        )
        self._step = jax.jit(on_mesh(trainer.mesh, make_evaluation_step(self._method, seed=self._seed)))

    def evaluate(self, params: Parameters, between: Callable[[], None] = lambda: None) -> dict[str, float]:
        """The loss and all measurements. `between` is called before each batch, and may raise to end the evaluation."""
        values = self._means(lambda batch: self._step(params, batch), between)
        return {"loss": sum(weight * values[name] for name, weight in self._method.losses.items())} | values

    def baseline(self, piece_counts: Int[np.ndarray, " V"], measured: dict[str, float]) -> dict[str, float]:
        """The measurements of the method's baseline, which knows the frequencies of pieces and labels.

        `measured`: the result of `evaluate`, for the frequency of replaced tokens."""
        log_share = jnp.log((piece_counts + 1) / np.sum(piece_counts + 1))

        @jax.jit
        def step(batch: Batch) -> Means:
            targets = self._method.targets(batch, example_keys(self._seed, "evaluation", 0, batch.ordinal))
            return self._method.guess(batch, targets, log_share)

        return self._method.baseline(self._means(step), measured)

    def _means(self, step: Callable[[Any], Means], between: Callable[[], None] = lambda: None) -> dict[str, float]:
        """The means over all batches, from sums in float64."""
        sums = []
        for batch in read_ahead(self._source):
            between()
            sums.append(jax.device_get(step(placed(batch, self._sharding, self._batch_size))))
        return {
            name: sum(float(part[name].total) for part in sums) / max(sum(float(part[name].count) for part in sums), 1)
            for name in sums[0]
        }
