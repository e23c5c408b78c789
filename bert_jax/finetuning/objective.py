"""The objective of fine-tuning (Devlin et al. 2019, section 4)."""

from abc import abstractmethod
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.tree_util import KeyPath
from jaxtyping import Array, Bool, Float, Key

from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import ExecutionConfig
from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.batches import TaskBatch, synthetic_task_batch
from bert_jax.finetuning.task import IGNORED
from bert_jax.model.bert import Parameters
from bert_jax.model.embeddings import vocabulary_size
from bert_jax.model.kernels.cross_entropy import cross_entropy
from bert_jax.model.parameters import parameter_at, path_of
from bert_jax.model.sharding import batch_sharding, local_rows, on_mesh, placed, row_shards
from bert_jax.model.size import encoder_flops
from bert_jax.model.task import BertForTask, HeadShape, init_for_task
from bert_jax.run.measurement import Mean, Means
from bert_jax.training.step import Moment, Objective

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
    labels = {"accuracy": "accuracy"}

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
        self._loss, self._class_weights, self._smoothing = task.task_kind.loss, task.class_weights, task.label_smoothing
        self._network = BertForTask(model, self._head, execution, frozen_layers)
        self.measurements = tuple(self.losses) if self._loss == "squares" else (*self.losses, "accuracy")

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
        return synthetic_task_batch(self._task, shape, vocabulary_size(self.model))

    def counts(self, targets: TaskBatch) -> dict[str, Float[Array, ""]]:
        """The sum of the weights of all targets. Without class weights it is the number of rows, or of tagged words."""
        return {"task_loss": jnp.sum(self._weights(targets))}

    def measure(self, params: Parameters, targets: TaskBatch, dropout_keys: Key[Array, "R E"] | None) -> Means:
        """Returns the loss and, except for numbers, the accuracy. Class weights don't change the accuracy."""
        outputs, weights = self.outputs(params, targets, dropout_keys), self._weights(targets)
        if self._loss == "labels":
            wrong_way = jnp.where(targets.target > 0, -outputs, outputs)
            loss, hit = jax.nn.softplus(wrong_way).mean(axis=-1), (wrong_way < 0).mean(axis=-1)
            return {"task_loss": Mean.of(loss, weights), "accuracy": Mean.of(hit, weights)}
        if self._loss == "squares":
            return {"task_loss": Mean.of(jnp.square(outputs[..., 0] - targets.target), weights)}
        labels = jnp.maximum(targets.target, 0)
        if self._loss == "ends":
            number = jnp.arange(1, labels.shape[1] + 1)[:, None]
            inside = targets.tokens.sequence[:, None] == number
            outputs = jnp.where(inside[:, :, None], outputs.swapaxes(1, 2)[:, None], _NOWHERE)
            labels = labels + targets.tokens.begin[..., None]
        loss, hit = cross_entropy(outputs, labels)
        if self._smoothing:
            of_label = jnp.take_along_axis(outputs, labels[..., None], axis=-1)[..., 0]
            loss += self._smoothing * (of_label - outputs.mean(axis=-1))
        return {"task_loss": Mean.of(loss, weights), "accuracy": Mean.of(hit, self._counted(targets))}

    def outputs(
        self, params: Parameters, batch: TaskBatch, dropout_keys: Key[Array, "R E"] | None = None
    ) -> Float[Array, "R ..."]:
        """The model's outputs: [R, E, outputs]; for choices [R, E, C]; for tags and answers [R, T, outputs]."""
        if self._probe:
            params = {**params, "bert": jax.lax.stop_gradient(params["bert"])}
        return cast(Array, self._network.apply({"params": params}, batch.tokens, batch.marks, dropout_keys))

    def _weights(self, batch: TaskBatch) -> Float[Array, "R ..."]:
        """The weight of each target in the loss."""
        counted = self._counted(batch)
        return counted if not self._class_weights else counted * jnp.array(self._class_weights)[batch.target]

    def _counted(self, batch: TaskBatch) -> Float[Array, "R ..."]:
        """1 for every target, 0 for ignored targets and absent examples. Each end of an answer counts one half."""
        weight = jnp.asarray(batch.weight)
        if self._loss == "tags":
            of_token = jnp.take_along_axis(weight, jnp.maximum(batch.tokens.sequence - 1, 0), axis=1)
            return jnp.where(batch.target == IGNORED, 0.0, of_token)
        return jnp.stack([weight / 2] * 2, axis=-1) if self._loss == "ends" else weight
