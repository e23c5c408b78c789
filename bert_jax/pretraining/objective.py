"""Masked language modelling, and next sentence prediction where asked (Devlin et al. 2019, section 3.1).

Or, to compare with: each next token from those before it (Radford et al. 2018, section 3.1).
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.operation import ExecutionConfig
from bert_jax.layout import Tokens
from bert_jax.model.bert import BertForPretraining, Parameters, init
from bert_jax.model.size import train_flops
from bert_jax.pretraining.masking import Masked, mask_sequences, next_tokens
from bert_jax.training.batch import Batch
from bert_jax.training.cross_entropy import cross_entropy
from bert_jax.training.measurement import Mean, Means


class PretrainingTargets(NamedTuple):
    """What the model sees of a batch and what it is asked."""

    masked: Masked
    pair_label: Int[Array, "B N"]
    pair_weight: Float[Array, "B N"]


class PretrainingObjective:
    """The sum of the tasks' mean losses over the global batch.

    Grabovoy's lecture sums the first over all pieces; BERT's code, and this, takes the mean over the masked ones.
    """

    def __init__(self, config: ObjectiveConfig, model: ModelConfig, mask_id: int, execution: ExecutionConfig):
        self.model, self._config, self._mask_id = model, config, mask_id
        self._network = BertForPretraining(model, execution.remat, execution.unroll)
        self._of_next = config.predict == "next"
        of_tokens = "lm" if self._of_next else "mlm"
        self._tasks = (of_tokens, "nsp") if config.pair == "next_sentence" else (of_tokens,)
        self.losses = tuple(f"{task}_loss" for task in self._tasks)
        self.measurements = (*self.losses, *(f"{task}_accuracy" for task in self._tasks))
        self.score = f"{of_tokens}_accuracy"
        """The measurement that a run is judged by."""

    def init(self, key: Key[Array, ""]) -> Parameters:
        """Random parameters of the encoder and both heads."""
        return init(self.model, key)

    def learns(self, params: Parameters) -> None:
        """None: every parameter is trained."""

    def flops(self, shape: tuple[int, ...]) -> float:
        """FLOPs of the matrix products in a training step on a batch of ids of this shape."""
        batch_size, length = shape
        return batch_size * train_flops(self.model, length, self._config.slots(length))

    def targets(self, batch: Batch, keys: Key[Array, "B N"]) -> PretrainingTargets:
        """Masks each sequence by its key; next tokens need none."""
        masked = next_tokens(batch.tokens) if self._of_next else self._masked(batch.tokens, keys)
        sequence = jnp.take_along_axis(batch.tokens.sequence, masked.places, axis=1)
        weight = jnp.take_along_axis(batch.weight, jnp.maximum(sequence - 1, 0), axis=1)
        masked = masked._replace(weights=masked.weights * weight)
        return PretrainingTargets(masked, batch.pair_label, batch.weight)

    def counts(self, targets: PretrainingTargets) -> dict[str, Float[Array, ""]]:
        """Predicted tokens, and sequences."""
        return {f"{task}_loss": jnp.sum(weights) for task, (_, weights) in self._questions(targets).items()}

    def measure(self, params: Parameters, targets: PretrainingTargets, dropout_keys: Key[Array, " B"] | None) -> Means:
        """Cross-entropy in nats and accuracy of each task."""
        masked = targets.masked
        wanted = None if self._of_next else masked.places
        logits = self._network.apply({"params": params}, masked.tokens, wanted, dropout_keys)
        means = {}
        for (task, (labels, weights)), of_task in zip(self._questions(targets).items(), logits):
            loss, hit = cross_entropy(of_task, labels)
            means |= {f"{task}_loss": Mean.of(loss, weights), f"{task}_accuracy": Mean.of(hit, weights)}
        return means

    def _questions(self, targets: PretrainingTargets) -> dict[str, tuple[Array, Array]]:
        """Labels and weights of each task: of tokens first, then of pairs."""
        masked = targets.masked
        return dict(zip(self._tasks, ((masked.labels, masked.weights), (targets.pair_label, targets.pair_weight))))

    def _masked(self, tokens: Tokens, keys: Key[Array, "B N"]) -> Masked:
        return mask_sequences(
            tokens, keys, self._config, mask_id=self._mask_id, vocabulary_size=self.model.vocabulary_size
        )
