"""The objective of learning vectors: the texts of a batch are compared with each other.

Pairs that match are told apart from all other texts of the batch over all devices (Henderson et al. 2017, section 4.4,
arXiv:1705.00652; with a temperature as in Gao et al. 2021, arXiv:2104.08821). Pairs with scores are ordered by them
(CoSENT: https://kexue.fm/archives/8847).

Further letters in shapes: R rows of packed texts, P groups (rows of the task), S slots of a group, C texts to choose
from.
"""

from collections.abc import Callable
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import ExecutionConfig
from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.batches import TaskBatch
from bert_jax.finetuning.objective import FineTuningObjective, TaskObjective
from bert_jax.finetuning.text_batches import TextBatch, slots
from bert_jax.model.bert import Parameters
from bert_jax.model.placement import split_by_rows
from bert_jax.model.size import encoder_flops
from bert_jax.model.vectors import TextEncoder, normalised
from bert_jax.run.measurement import Mean, Means
from bert_jax.training.cross_entropy import cross_entropy
from bert_jax.training.step import every_nth, undo_every_nth

_IMPOSSIBLE = -1e30
"""Logit of a text that isn't compared."""


class _Groups(NamedTuple):
    """The texts of a batch by group. Absent ones have the number -1."""

    first: Int[Array, " P"]
    second: Int[Array, " P"]
    negatives: Int[Array, " M"]
    """Of all groups, one after the other; M = P (S - 2)."""
    weight: Float[Array, " P"]
    """1 for a group that is there, else 0."""
    score: Float[Array, " P"]


class ContrastObjective(FineTuningObjective):
    """The mean loss over the groups of the global batch, each of which is compared with the whole batch.

    With execution.accumulation above 1 the texts are encoded in so many parts, whose activations are computed again in
    the backward pass, and the losses of as many parts of the groups one after the other: exactly the loss of the
    undivided batch in less memory, where accumulated gradients would be those of smaller batches with fewer negatives
    (Gao et al. 2021, arXiv:2101.06983).
    """

    def __init__(
        self, task: TaskConfig, model: ModelConfig, execution: ExecutionConfig, frozen_layers: int | None = None
    ):
        """`task` is settled; `frozen_layers` as in FinetuneConfig."""
        super().__init__(task, model, frozen_layers, probe=False)
        self._task, self._parts = task, execution.accumulation
        self._encoder = TextEncoder(model, task.pooling, execution, frozen_layers)
        self._widths = sorted({model.hidden_size, *task.widths})
        self.measurements = ("task_loss", "accuracy") if task.scored else ("task_loss", "accuracy", "excluded")

    def flops(self, shape: tuple[int, ...]) -> float:
        """FLOPs of a training step's matrix products in the encoder, as if nothing were computed again."""
        rows, length = shape
        return 3 * rows * encoder_flops(self.model, length, length)

    def counts(self, targets: TextBatch) -> dict[str, Float[Array, ""]]:
        """The number of groups."""
        slot = targets.slot
        there = (slot < self._task.batch_size * slots(self._task)) & (slot % slots(self._task) == 0)
        return {"task_loss": jnp.sum(there, dtype=jnp.float32)}

    def gradients(
        self, params: Parameters, targets: TextBatch, dropout_keys: Key[Array, "R N"], microbatches: int
    ) -> tuple[Parameters, Means]:
        """Gradients of the loss of the whole batch; `measure` itself computes it in parts."""
        return super().gradients(params, targets, dropout_keys, microbatches=1)

    def outputs(self, params: Parameters, batch: TaskBatch) -> Float[Array, "B D"]:
        """The vector of each text of a batch with one text in each row, not normalised."""
        tokens = jax.tree.map(lambda leaf: leaf.reshape(-1, leaf.shape[-1]), batch.tokens)
        return cast(Array, self._encoder.apply({"params": params}, tokens))[:, 0]

    def measure(self, params: Parameters, targets: TextBatch, dropout_keys: Key[Array, "R N"] | None) -> Means:
        """Returns the loss and the accuracy: the share of the first texts that are most similar to their second one or,
        with scores, of pairs of groups that the cosines order as the scores do.

        `excluded`: texts that a first text isn't compared with, because they are its own or match it as well.
        """
        vectors = self._by_group(self._encoded(params, targets, dropout_keys), targets)
        groups = self._groups(targets)
        first, second = split_by_rows(vectors[:, 0]), split_by_rows(vectors[:, 1])
        negatives = vectors[:, 2:].reshape(-1, vectors.shape[-1])

        def of_width(width: int) -> Means:
            cut = [normalised(each, width) for each in (first, second, negatives)]
            if self._task.scored:
                return self._ordering(cut[0], cut[1], groups)
            return self._matching(cut[0], cut[1], cut[2], groups)

        by_width = [of_width(width) for width in self._widths]
        widest, losses = by_width[-1], [means["task_loss"] for means in by_width]
        total = jnp.mean(jnp.stack([loss.total for loss in losses]))
        return widest | {"task_loss": Mean(total, losses[-1].count)}

    def _encoded(self, params: Parameters, batch: TextBatch, keys: Key[Array, "R N"] | None) -> Float[Array, "R N D"]:
        def encode(part):
            return self._encoder.apply({"params": params}, *part)

        if self._parts == 1:
            return encode((batch.tokens, keys))
        parts = jax.tree.map(lambda leaf: every_nth(leaf, self._parts), (batch.tokens, keys))
        return undo_every_nth(jax.lax.map(jax.checkpoint(encode), parts))

    def _by_group(self, vectors: Float[Array, "R N D"], batch: TextBatch) -> Float[Array, "P S D"]:
        places, width = self._task.batch_size * slots(self._task), vectors.shape[-1]
        # Each text has a place of its own, and those without one are beyond the end and dropped.
        flat = jnp.zeros((places, width)).at[batch.slot.reshape(-1)].set(vectors.reshape(-1, width), mode="drop")
        return flat.reshape(self._task.batch_size, slots(self._task), width)

    def _groups(self, batch: TextBatch) -> _Groups:
        count, of_group = self._task.batch_size, slots(self._task)

        def by_group(values: Array, empty: float) -> Array:
            flat = jnp.full(count * of_group, empty, values.dtype)
            return flat.at[batch.slot.reshape(-1)].set(values.reshape(-1), mode="drop").reshape(count, of_group)

        text = by_group(batch.text, -1)
        weight, score = by_group(batch.weight, 0)[:, 0], by_group(batch.score, 0)[:, 0]
        return _Groups(text[:, 0], text[:, 1], text[:, 2:].reshape(-1), weight, score)

    def _matching(
        self,
        first: Float[Array, "P D"],
        second: Float[Array, "P D"],
        negatives: Float[Array, "M D"],
        groups: _Groups,
    ) -> Means:
        """The cross-entropy of each first text's own second one among all, and the reverse."""
        candidates = jnp.concatenate([second, negatives])
        numbers = jnp.concatenate([groups.second, groups.negatives])
        group = jnp.arange(len(first))

        def losses(part: Int[Array, " p"]) -> tuple[Array, Array, Array]:
            # Groups with an equal first or second text match each other's texts, too.
            same = groups.first[part][:, None] == groups.first
            own = jnp.arange(len(numbers)) == part[:, None]
            excluded = (numbers == groups.second[part][:, None]) | (numbers == groups.first[part][:, None])
            excluded = excluded.at[:, : len(first)].set(excluded[:, : len(first)] | same)
            excluded &= ~own & (numbers >= 0)
            logits = jnp.where(excluded | (numbers < 0), _IMPOSSIBLE, self._cosines(first[part], candidates))
            loss, hit = cross_entropy(logits, part)
            if self._task.directions == "both":
                also = (groups.first == groups.second[part][:, None]) | (groups.second == groups.second[part][:, None])
                barred = (same | also) & (group != part[:, None]) | (groups.first < 0)
                logits = jnp.where(barred, _IMPOSSIBLE, self._cosines(second[part], first))
                loss = (loss + cross_entropy(logits, part)[0]) / 2
            return loss, hit, jnp.sum(excluded, axis=1, dtype=jnp.float32)

        loss, hit, excluded = self._in_parts(losses, group)
        names = ("task_loss", "accuracy", "excluded")
        return {name: Mean.of(each, groups.weight) for name, each in zip(names, (loss, hit, excluded), strict=True)}

    def _ordering(self, first: Float[Array, "P D"], second: Float[Array, "P D"], groups: _Groups) -> Means:
        """log(1 + sum of exp(c - d)) over all pairs of groups of which that with cosine c has the lower score, and that
        with cosine d the higher."""
        cosines = jnp.sum(first * second, axis=-1) / self._task.temperature
        there = groups.weight > 0
        wrong = (groups.score[:, None] < groups.score) & there[:, None] & there
        differences = jnp.where(wrong, cosines[:, None] - cosines, _IMPOSSIBLE)
        loss = jax.nn.logsumexp(jnp.append(differences.reshape(-1), 0.0))
        weights = wrong.astype(jnp.float32)
        count = jnp.sum(groups.weight)
        return {"task_loss": Mean(loss * count, count), "accuracy": Mean.of((differences < 0) * 1.0, weights)}

    def _cosines(self, x: Float[Array, "p D"], y: Float[Array, "C D"]) -> Float[Array, "p C"]:
        return jnp.einsum("PD,CD->PC", x, y, precision=jax.lax.Precision.HIGHEST) / self._task.temperature

    def _in_parts(self, losses: Callable, group: Int[Array, " P"]) -> tuple[Array, ...]:
        """`losses` of all groups, computed for a part of them at a time."""
        if self._parts == 1:
            return losses(group)
        found = jax.lax.map(jax.checkpoint(losses), every_nth(group, self._parts))
        return jax.tree.map(undo_every_nth, found)


def objective_of(
    task: TaskConfig,
    model: ModelConfig,
    execution: ExecutionConfig,
    frozen_layers: int | None = None,
    probe: bool = False,
) -> FineTuningObjective:
    """The objective of a task that is settled; `frozen_layers` and `probe` as in FinetuneConfig."""
    if task.facts.loss == "contrast":
        return ContrastObjective(task, model, execution, frozen_layers)
    return TaskObjective(task, model, execution, frozen_layers, probe)
