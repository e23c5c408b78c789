"""The objective of fine-tuning (Devlin et al. 2019, section 4)."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.tree_util import KeyPath
from jaxtyping import Array, Bool, Float, Key

from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import ExecutionConfig
from bert_jax.config.task import TaskConfig
from bert_jax.config.task_kind import Loss
from bert_jax.finetuning.batches import TaskBatch, synthetic_task_batch
from bert_jax.finetuning.task import IGNORED, Target
from bert_jax.model.bert import Parameters
from bert_jax.model.embeddings import vocabulary_size
from bert_jax.model.kernels.cross_entropy import cross_entropy
from bert_jax.model.parameters import parameter_at, path_of
from bert_jax.model.sharding import batch_sharding, local_rows, on_mesh, placed, row_shards
from bert_jax.model.size import encoder_flops
from bert_jax.model.task import BertForTask, HeadShape, init_for_task
from bert_jax.run.measurement import Mean, Means
from bert_jax.training.step import Moment, Objective

Measured = tuple[Float[Array, "R ..."], Float[Array, "R ..."] | None]
"""The loss of each target; and 1 or 0, or a share of 1, for how right it is. None: nothing is right or wrong."""
_NOWHERE = -1e30
"""Score of padding as an answer's first or last token, which makes the loss independent of padding."""


class Outputs:
    """Runs the model on a mesh, without dropout, on batches of any shape."""

    def __init__(self, objective: "FineTuningObjective", mesh: Mesh):
        self._rows, self._shards = batch_sharding(mesh), row_shards(mesh)
        self._run = jax.jit(on_mesh(mesh, objective.outputs), out_shardings=NamedSharding(mesh, PartitionSpec()))

    def __call__(self, params: Parameters, batch: TaskBatch) -> Float[Array, "N ..."]:
        """Returns the model's outputs on every device. Outputs of filler rows may follow the batch's own."""
        count = -(-len(batch.weight) // self._shards) * self._shards
        here = local_rows(self._rows, count)

        def filled(leaf: np.ndarray) -> np.ndarray:
            return np.pad(leaf, [(0, count - len(leaf))] + [(0, 0)] * (leaf.ndim - 1))[here]

        return self._run(params, placed(jax.tree.map(filled, batch), self._rows, count))


class FineTuningObjective(Objective):
    """The mean of one loss, `task_loss`, over the rows of a task."""

    losses = {"task_loss": 1.0}
    headings = {"accuracy": "accuracy"}

    def __init__(self, task: TaskConfig, model: ModelConfig, frozen_layers: int | None, probe: bool):
        """`task` must have its labels. `frozen_layers` and `probe` are defined in FinetuneConfig."""
        self.model, self._task, self._head = model, task, HeadShape.of(task)
        self._frozen_layers, self._probe = frozen_layers, probe

    def init(self, key: Key[Array, ""]) -> Parameters:
        return init_for_task(self.model, self._head, key)

    def learns(self, params: Parameters) -> Parameters | None:
        """Whether each parameter is trained; None if all are.

        With `probe` only the head is trained. Otherwise all are, except the frozen embeddings and layers.
        """
        if self._frozen_layers is None and not self._probe:
            return None
        layers = np.arange(self.model.num_layers) >= (self._frozen_layers or 0)

        def learned(path: KeyPath, leaf: Array) -> Bool[np.ndarray, "..."]:
            group = parameter_at(path_of(path)).group
            if self._probe:
                return np.array(group == "task head")
            if group == "block":  # a stack with fewer blocks holds the last ones
                return layers[-len(leaf) :].reshape(-1, *[1] * (leaf.ndim - 1))
            return np.array(group != "embeddings")

        return jax.tree_util.tree_map_with_path(learned, params)

    def targets(self, batch: Any, keys: Key[Array, "B *N"], moment: Moment | None = None) -> Any:
        """Returns the batch itself, since nothing in it is random."""
        return batch

    @abstractmethod
    def outputs(self, params: Parameters, batch: TaskBatch) -> Float[Array, "R ..."]:
        """The model's outputs without dropout: [R, E, ...], or [R, T, ...] for tags and answers."""


def _of_classes(outputs: Float[Array, "R ..."], batch: TaskBatch) -> Measured:
    return cross_entropy(outputs, jnp.maximum(batch.target, 0))


def _of_labels(outputs: Float[Array, "R E L"], batch: TaskBatch) -> Measured:
    wrong_way = jnp.where(batch.target > 0, -outputs, outputs)
    return jax.nn.softplus(wrong_way).mean(axis=-1), (wrong_way < 0).mean(axis=-1)


def _of_numbers(outputs: Float[Array, "R E 1"], batch: TaskBatch) -> Measured:
    return jnp.square(outputs[..., 0] - batch.target), None


def _of_ends(outputs: Float[Array, "R T 2"], batch: TaskBatch) -> Measured:
    number = jnp.arange(1, batch.target.shape[1] + 1)[:, None]
    inside = batch.tokens.sequence[:, None] == number
    scores = jnp.where(inside[:, :, None], outputs.swapaxes(1, 2)[:, None], _NOWHERE)
    return cross_entropy(scores, jnp.maximum(batch.target, 0) + batch.tokens.begin[..., None])


def _examples(batch: TaskBatch) -> Float[Array, "R E"]:
    return jnp.asarray(batch.weight)


def _tagged_tokens(batch: TaskBatch) -> Float[Array, "R T"]:
    of_token = jnp.take_along_axis(_examples(batch), jnp.maximum(batch.tokens.sequence - 1, 0), axis=1)
    return jnp.where(batch.target == IGNORED, 0.0, of_token)


def _half_ends(batch: TaskBatch) -> Float[Array, "R E 2"]:
    return jnp.stack([_examples(batch) / 2] * 2, axis=-1)


class TaskLoss(NamedTuple):
    """How a loss of `config.task_kind.Loss` is computed."""

    measure: Callable[[Float[Array, "R ..."], TaskBatch], Measured]
    """Loss and accuracy of each target, from the model's outputs and the batch."""
    random_target: Callable[[int, int, np.random.Generator], Target]
    """A random target, by the number of outputs and the length of the example."""
    counted: Callable[[TaskBatch], Float[Array, "R ..."]] = _examples
    """1 for every target, 0 for ignored targets and absent examples. Each end of an answer counts one half."""
    has_accuracy: bool = True
    """Whether `measure` gives an accuracy; otherwise None stands in its place."""


TASK_LOSSES: dict[Loss, TaskLoss] = {
    "classes": TaskLoss(_of_classes, lambda outputs, length, rng: int(rng.integers(0, outputs))),
    "labels": TaskLoss(_of_labels, lambda outputs, length, rng: tuple(rng.integers(0, 2, outputs).tolist())),
    "squares": TaskLoss(_of_numbers, lambda outputs, length, rng: float(rng.random()), has_accuracy=False),
    "tags": TaskLoss(
        _of_classes, lambda outputs, length, rng: rng.integers(0, outputs, length).tolist(), _tagged_tokens
    ),
    "ends": TaskLoss(
        _of_ends, lambda outputs, length, rng: tuple(sorted(rng.integers(0, length, 2).tolist())), _half_ends
    ),
}
"""The losses of heads, by name. "contrast" has no head, and an objective of its own."""


class TaskObjective(FineTuningObjective):
    """The mean loss of all targets in the global batch, weighted by class if the task has class weights.

    `config.task_kind.Loss` describes the losses. The tag of a word is predicted at the word's first piece.
    """

    def __init__(
        self,
        task: TaskConfig,
        model: ModelConfig,
        execution: ExecutionConfig,
        frozen_layers: int | None = None,
        probe: bool = False,
    ):
        """`task` must have its labels. `frozen_layers` and `probe` are defined in FinetuneConfig."""
        super().__init__(task, model, frozen_layers, probe)
        self._loss, self._class_weights = TASK_LOSSES[task.task_kind.loss], task.class_weights
        self._smoothing = task.label_smoothing
        self._network = BertForTask(model, self._head, execution, frozen_layers)
        self.measurements = (*self.losses, "accuracy") if self._loss.has_accuracy else tuple(self.losses)

    def flops(self, shape: tuple[int, ...]) -> float:
        """FLOPs of the encoder's matrix products in a training step, as if no layer were frozen.

        Those of the head don't count, since they are few.
        """
        rows, length = shape
        wanted = length
        if self._head.input in ("pooled", "choices") and not self._head.mixes:
            wanted = self._task.batch_size * self._task.sequences_an_example // rows
        return 3 * rows * encoder_flops(self.model, length, wanted)

    def random_batch(self, shape: tuple[int, ...]) -> TaskBatch:
        return synthetic_task_batch(self._task, shape, vocabulary_size(self.model), self._loss.random_target)

    def counts(self, targets: TaskBatch) -> dict[str, Float[Array, ""]]:
        """The sum of the weights of all targets. Without class weights it is the number of rows, or of tagged words."""
        return {"task_loss": jnp.sum(self._weights(targets))}

    def measure(self, params: Parameters, targets: TaskBatch, dropout_keys: Key[Array, "R E"] | None) -> Means:
        """Returns the loss and, except for numbers, the accuracy. Class weights don't change the accuracy."""
        outputs, weights = self.outputs(params, targets, dropout_keys), self._weights(targets)
        loss, hit = self._loss.measure(outputs, targets)
        if self._smoothing:
            of_label = jnp.take_along_axis(outputs, jnp.maximum(targets.target, 0)[..., None], axis=-1)[..., 0]
            loss += self._smoothing * (of_label - outputs.mean(axis=-1))
        means = {"task_loss": Mean.of(loss, weights)}
        return means if hit is None else means | {"accuracy": Mean.of(hit, self._loss.counted(targets))}

    def outputs(
        self, params: Parameters, batch: TaskBatch, dropout_keys: Key[Array, "R E"] | None = None
    ) -> Float[Array, "R ..."]:
        """The model's outputs: [R, E, outputs]; for choices [R, E, C]; for tags and answers [R, T, outputs]."""
        return cast(Array, self._network.apply({"params": params}, batch.tokens, batch.marks, dropout_keys))

    def _weights(self, batch: TaskBatch) -> Float[Array, "R ..."]:
        """The weight of each target in the loss."""
        counted = self._loss.counted(batch)
        return counted if not self._class_weights else counted * jnp.array(self._class_weights)[batch.target]
