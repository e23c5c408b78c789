"""The objective of learning vectors: the texts of a batch are compared with each other.

For pairs that match, the loss raises each pair's cosine over the cosines of its texts with the other texts of the
global batch (Henderson et al. 2017, section 4.4, arXiv:1705.00652; with a temperature as in Gao et al. 2021,
arXiv:2104.08821). For pairs with scores, the loss raises the cosines of pairs with higher scores over the cosines of
pairs with lower scores (CoSENT: https://kexue.fm/archives/8847).

Further letters in shapes: R rows of packed texts, P groups (rows of the task), S slots of a group, C texts to choose
from.
"""

from collections.abc import Callable
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, Num

from bert_jax.config.finetune import TaskRunConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import ExecutionConfig
from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.batches import AnyArray, TaskBatch, TextBatch, synthetic_text_batch
from bert_jax.finetuning.objective import FineTuningObjective, TaskObjective
from bert_jax.model.bert import Parameters
from bert_jax.model.embeddings import vocabulary_size
from bert_jax.model.kernels.cross_entropy import cross_entropy
from bert_jax.model.placement import split_by_rows
from bert_jax.model.size import encoder_flops
from bert_jax.model.task import PooledEncoder, normalised
from bert_jax.run.measurement import Mean, Means
from bert_jax.training.step import every_nth, undo_every_nth

_IMPOSSIBLE = -1e30
"""Logit of a text that isn't compared."""


class _Groups(NamedTuple):
    """The numbers of a batch's texts, by group. A missing text has the number -1."""

    first: Int[Array, " P"]
    second: Int[Array, " P"]
    negatives: Int[Array, " M"]
    """The negatives of all groups, group after group; M = P (S - 2)."""
    weight: Float[Array, " P"]
    """1 for a group that is present, else 0."""
    score: Float[Array, " P"]


class ContrastObjective(FineTuningObjective):
    """The mean loss of the groups of the global batch. Each group is compared with the whole batch.

    With execution.accumulation above 1 the texts are encoded in that many parts, and activations are recomputed in the
    backward pass (Gao et al. 2021, arXiv:2101.06983). Pairs that match are compared part by part, too. The result
    equals that of the undivided batch, in less memory. Accumulated gradients would differ, because smaller batches have
    fewer texts to compare. Pairs with scores are compared all at once, in arrays [P, P].
    """

    headings = {"accuracy": "accuracy", "excluded": "excluded"}

    def __init__(
        self, task: TaskConfig, model: ModelConfig, execution: ExecutionConfig, frozen_layers: int | None = None
    ):
        """`task` must have its labels. `frozen_layers` is defined in FinetuneConfig."""
        super().__init__(task, model, frozen_layers, probe=False)
        self._parts = execution.accumulation
        self._encoder = PooledEncoder(model, task.pooling, execution, frozen_layers)
        self._widths = sorted({model.hidden_size, *task.widths})
        self.measurements = ("task_loss", "accuracy") if task.scored else ("task_loss", "accuracy", "excluded")

    def flops(self, shape: tuple[int, ...]) -> float:
        """FLOPs of the encoder's matrix products in a training step. Recomputation doesn't count."""
        rows, length = shape
        return 3 * rows * encoder_flops(self.model, length, length)

    def random_batch(self, shape: tuple[int, ...]) -> TextBatch:
        return synthetic_text_batch(self._task, shape, vocabulary_size(self.model))

    def counts(self, targets: TextBatch) -> dict[str, Float[Array, ""]]:
        """The number of groups that are present."""
        return {"task_loss": jnp.sum(self._by_slot(targets, targets.weight)[:, 0])}

    def gradients(
        self, params: Parameters, targets: TextBatch, dropout_keys: Key[Array, "R N"], microbatches: int
    ) -> tuple[Parameters, Means]:
        """Gradients of the loss of the whole batch. `measure` itself divides the batch into parts."""
        return super().gradients(params, targets, dropout_keys, microbatches=1)

    def outputs(self, params: Parameters, batch: TaskBatch) -> Float[Array, "R N D"]:
        """The vector of each text, not normalised."""
        return cast(Array, self._encoder.apply({"params": params}, batch.tokens))

    def measure(self, params: Parameters, targets: TextBatch, dropout_keys: Key[Array, "R N"] | None) -> Means:
        """Returns the loss, the accuracy and, of pairs that match, `excluded`.

        The accuracy is the share of first texts whose most similar text is their own second text. With scores it is the
        share of pairs of groups that cosines and scores order in the same way. `excluded` is the number of texts that a
        first text isn't compared with, because they also match it, or equal it.
        """
        vectors = self._by_slot(targets, self._encoded(params, targets, dropout_keys))
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

    def _by_slot(self, batch: TextBatch, values: Num[AnyArray, "R N *D"], empty: float = 0) -> Num[Array, "P S *D"]:
        """Arranges `values` of the texts by group and slot; a slot without a text gets `empty`."""
        groups, each = self._task.batch_size, self._task.texts_a_group
        rest = values.shape[2:]
        # Places of a row without a text have a slot past the end, which the scatter drops.
        by_slot = jnp.full((groups * each, *rest), empty, values.dtype)
        by_slot = by_slot.at[batch.slot.reshape(-1)].set(values.reshape(-1, *rest), mode="drop")
        return by_slot.reshape(groups, each, *rest)

    def _groups(self, batch: TextBatch) -> _Groups:
        text = self._by_slot(batch, batch.text, -1)
        weight, score = self._by_slot(batch, batch.weight)[:, 0], self._by_slot(batch, batch.score)[:, 0]
        return _Groups(text[:, 0], text[:, 1], text[:, 2:].reshape(-1), weight, score)

    def _matching(
        self, first: Float[Array, "P D"], second: Float[Array, "P D"], negatives: Float[Array, "M D"], groups: _Groups
    ) -> Means:
        """The cross-entropy of choosing each first text's second text among all candidates, and the reverse choice."""
        candidates = jnp.concatenate([second, negatives])
        numbers = jnp.concatenate([groups.second, groups.negatives])
        group = jnp.arange(len(first))
        matches, of_first, of_candidate = _matches(groups.first, numbers)

        def losses(part: Int[Array, " p"]) -> tuple[Array, Array, Array]:
            match = matches[of_first[part]][:, of_candidate] | (numbers == groups.first[part][:, None])
            excluded = match & (jnp.arange(len(numbers)) != part[:, None]) & (numbers >= 0)
            logits = jnp.where(excluded | (numbers < 0), _IMPOSSIBLE, self._cosines(first[part], candidates))
            loss = cross_entropy(logits, part)[0]
            # Of equal vectors, as of a collapsed encoder, none is found.
            own = jnp.take_along_axis(logits, part[:, None], axis=1)
            hit = (jnp.sum(logits >= own, axis=1) == 1).astype(jnp.float32)
            if self._task.directions == "both":
                match = matches[:, of_candidate[part]][of_first].T | (groups.first == groups.second[part][:, None])
                left_out = match & (group != part[:, None]) | (groups.first < 0)
                logits = jnp.where(left_out, _IMPOSSIBLE, self._cosines(second[part], first))
                loss = (loss + cross_entropy(logits, part)[0]) / 2
            return loss, hit, jnp.sum(excluded, axis=1, dtype=jnp.float32)

        loss, hit, excluded = self._in_parts(losses, group)
        names = ("task_loss", "accuracy", "excluded")
        return {name: Mean.of(each, groups.weight) for name, each in zip(names, (loss, hit, excluded), strict=True)}

    def _ordering(self, first: Float[Array, "P D"], second: Float[Array, "P D"], groups: _Groups) -> Means:
        """log(1 + sum of exp((c - d) / temperature)) over all pairs of groups with scores s < t and cosines c and d."""
        cosines = jnp.sum(first * second, axis=-1) / self._task.temperature
        present = groups.weight > 0
        ordered = (groups.score[:, None] < groups.score) & present[:, None] & present
        differences = jnp.where(ordered, cosines[:, None] - cosines, _IMPOSSIBLE)
        loss = jax.nn.logsumexp(jnp.append(differences.reshape(-1), 0.0))
        weights = ordered.astype(jnp.float32)
        count = jnp.sum(groups.weight)
        return {"task_loss": Mean(loss * count, count), "accuracy": Mean.of((differences < 0) * 1.0, weights)}

    def _cosines(self, x: Float[Array, "p D"], y: Float[Array, "C D"]) -> Float[Array, "p C"]:
        return jnp.einsum("PD,CD->PC", x, y, precision=jax.lax.Precision.HIGHEST) / self._task.temperature

    def _in_parts(self, losses: Callable, group: Int[Array, " P"]) -> tuple[Array, ...]:
        """`losses` of all groups. They are computed for one part of the groups at a time."""
        if self._parts == 1:
            return losses(group)
        parts = jax.lax.map(jax.checkpoint(losses), every_nth(group, self._parts))
        return jax.tree.map(undo_every_nth, parts)


def _matches(
    first: Int[Array, " P"], candidates: Int[Array, " C"]
) -> tuple[Bool[Array, "P C"], Int[Array, " P"], Int[Array, " C"]]:
    """A table of which candidates match which first text; its row for each first text, its column for each candidate.

    The arguments are numbers of texts. The first P candidates are the second texts of the groups. A candidate matches a
    first text if it is the second text of any group with an equal first text.
    """
    row = jnp.unique(first, return_inverse=True, size=len(first))[1].reshape(-1)
    column = jnp.unique(candidates, return_inverse=True, size=len(candidates))[1].reshape(-1)
    table = jnp.zeros((len(first), len(candidates)), bool).at[row, column[: len(first)]].set(True)
    return table, row, column


def make_objective(
    task: TaskConfig,
    model: ModelConfig,
    execution: ExecutionConfig,
    frozen_layers: int | None = None,
    probe: bool = False,
) -> FineTuningObjective:
    """The objective of a task with its labels. `frozen_layers` and `probe` are defined in FinetuneConfig."""
    if task.makes_vectors:
        return ContrastObjective(task, model, execution, frozen_layers)
    return TaskObjective(task, model, execution, frozen_layers, probe)


def objective_of(config: TaskRunConfig) -> FineTuningObjective:
    """The objective of a fine-tuning run."""
    return make_objective(config.task, config.model, config.execution, config.layers_frozen, config.probe)
