"""Masked language modelling and next sentence prediction (Devlin et al. 2019, section 3.1)."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.operation import ExecutionConfig
from bert_jax.model.bert import BertForPretraining, Parameters
from bert_jax.pretraining.masking import Masked, mask_sequences
from bert_jax.system.batch import Batch
from bert_jax.training.cross_entropy import cross_entropy
from bert_jax.training.measurement import Mean, Means


class PretrainingTargets(NamedTuple):
    """What the model sees of a batch and what it is asked."""

    masked: Masked
    segments: Int[Array, "B T"]
    """0 in the first segment, 1 in the second."""
    mask: Bool[Array, "B T"]
    """False at padding."""
    pair_label: Int[Array, " B"]
    weight: Float[Array, " B"]


class PretrainingObjective:
    """The sum of the two tasks' mean losses over the global batch.

    Grabovoy's lecture sums the first over all pieces; BERT's code, and this, takes the mean over the masked ones.
    """

    losses = ("mlm_loss", "nsp_loss")
    measurements = (*losses, "mlm_accuracy", "nsp_accuracy")
    """Names of what `measure` gives."""

    def __init__(self, config: ObjectiveConfig, model: ModelConfig, mask_id: int, execution: ExecutionConfig):
        self._config, self._model, self._mask_id = config, model, mask_id
        self._network = BertForPretraining(model, execution.remat, execution.unroll)

    def targets(self, batch: Batch, keys: Key[Array, " B"]) -> PretrainingTargets:
        """Masks each sequence by its key."""
        masked = mask_sequences(
            batch.ids,
            batch.units,
            batch.length,
            keys,
            self._config,
            mask_id=self._mask_id,
            vocabulary_size=self._model.vocabulary_size,
        )
        at = jnp.arange(batch.ids.shape[1])
        inside = at < batch.length[:, None]
        segments = (inside & (at >= batch.first_length[:, None])).astype(jnp.int32)
        masked = masked._replace(weights=masked.weights * batch.weight[:, None])
        return PretrainingTargets(masked, segments, inside, batch.pair_label, batch.weight)

    def counts(self, targets: PretrainingTargets) -> dict[str, Float[Array, ""]]:
        """Masked tokens, and sequences."""
        return {"mlm_loss": jnp.sum(targets.masked.weights), "nsp_loss": jnp.sum(targets.weight)}

    def measure(self, params: Parameters, targets: PretrainingTargets, dropout_keys: Key[Array, " B"] | None) -> Means:
        """Cross-entropy in nats and accuracy of both tasks."""
        masked = targets.masked
        pieces, pairs = self._network.apply(
            {"params": params}, masked.ids, targets.segments, targets.mask, masked.positions, dropout_keys
        )
        mlm_loss, mlm_hit = cross_entropy(pieces, masked.labels)
        nsp_loss, nsp_hit = cross_entropy(pairs, targets.pair_label)
        return {
            "mlm_loss": Mean.of(mlm_loss, masked.weights),
            "nsp_loss": Mean.of(nsp_loss, targets.weight),
            "mlm_accuracy": Mean.of(mlm_hit, masked.weights),
            "nsp_accuracy": Mean.of(nsp_hit, targets.weight),
        }
