"""Masked language modelling, and a question about two segments where asked (Devlin et al. 2019, section 3.1).

Or, to compare with: each next token from those before it (Radford et al. 2018, section 3.1).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, Key

from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.operation import ExecutionConfig
from bert_jax.config.phase import Phase
from bert_jax.config.run import RunConfig
from bert_jax.layout import Tokens
from bert_jax.model.bert import BertForPretraining, Parameters, init
from bert_jax.model.size import train_flops
from bert_jax.pretraining.masking import Masked, mask_sequences, next_tokens
from bert_jax.pretraining.questions import MASKED_TOKENS, NEXT_TOKENS, OF_PAIRS, Question
from bert_jax.run.measurement import Mean, Means
from bert_jax.system.errors import UsageError
from bert_jax.training.batch import Batch
from bert_jax.training.cross_entropy import cross_entropy
from bert_jax.training.step import Moment
from bert_jax.training.trainer import Trainer


class PretrainingTargets(NamedTuple):
    """The model's input for a batch, with labels and weights."""

    masked: Masked
    pair_label: Int[Array, "B N"]
    pair_weight: Float[Array, "B N"]


class PretrainingObjective:
    """The sum of the tasks' mean losses over the global batch.

    Grabovoy's lecture sums the first over all pieces; BERT's code, and this, takes the mean over the masked ones.
    """

    def __init__(
        self,
        config: ObjectiveConfig,
        model: ModelConfig,
        mask_id: int,
        execution: ExecutionConfig,
        phases: Sequence[Phase] = (),
        sequences_a_row: Callable[[int], int] = lambda length: 1,
    ):
        """`phases`: those of the run, which may have units of masking and rotations of their own. `sequences_a_row`:
        the most sequences in a row of so many tokens."""
        self.model, self._config, self._mask_id, self._phases = model, config, mask_id, phases
        self._execution, self.sequences_a_row = execution, sequences_a_row
        self._network = BertForPretraining(model, execution.remat, execution.unroll, execution.attention)
        self._of_next = config.predict == "next"
        self.of_tokens = NEXT_TOKENS if self._of_next else MASKED_TOKENS
        """The question about tokens, by which a run is judged."""
        self.of_pairs = OF_PAIRS[config.pair]
        questions = tuple(filter(None, (self.of_tokens, self.of_pairs)))
        self.losses = tuple(question.loss for question in questions)
        self.measurements = (*self.losses, *(question.accuracy for question in questions))
        self.shown = {
            question.accuracy: question.label if number else f"accuracy: {question.label}"
            for number, question in enumerate(questions)
        }

    def in_phase(self, phase: int) -> "PretrainingObjective":
        """The objective with the rotations of that phase; itself where they are the model's."""
        base = self._phases[phase].rotary_base if self._phases else None
        if base in (None, self.model.rotary_base):
            return self
        model, others = self.model.replace(rotary_base=base), (self._phases, self.sequences_a_row)
        return PretrainingObjective(self._config, model, self._mask_id, self._execution, *others)

    def init(self, key: Key[Array, ""]) -> Parameters:
        """Random parameters of the encoder and both heads."""
        return init(self.model, key)

    def learns(self, params: Parameters) -> None:
        """Returns None: every parameter is trained."""

    def flops(self, shape: tuple[int, ...]) -> float:
        """FLOPs of the matrix products in a training step on a batch of ids of this shape."""
        batch_size, length = shape
        return batch_size * train_flops(self.model, length, self.slots(length))

    def slots(self, length: int) -> int:
        """Prediction slots P of a row of `length` tokens."""
        return self._config.slots(length, self.sequences_a_row(length))

    def targets(self, batch: Batch, keys: Key[Array, "B N"], moment: Moment | None = None) -> PretrainingTargets:
        """Masks each sequence by its key; next tokens need none."""
        masked = next_tokens(batch.tokens) if self._of_next else self._masked(batch.tokens, keys, moment)
        sequence = jnp.take_along_axis(batch.tokens.sequence, masked.places, axis=1)
        weight = jnp.take_along_axis(batch.weight, jnp.maximum(sequence - 1, 0), axis=1)
        masked = masked._replace(weights=masked.weights * weight)
        return PretrainingTargets(masked, batch.pair_label, batch.weight)

    def counts(self, targets: PretrainingTargets) -> dict[str, Float[Array, ""]]:
        """The number of predicted tokens and of sequences."""
        return {question.loss: jnp.sum(weights) for question, _, weights in self._asked(targets)}

    def measure(self, params: Parameters, targets: PretrainingTargets, dropout_keys: Key[Array, "B N"] | None) -> Means:
        """Cross-entropy in nats and accuracy of each task."""
        masked = targets.masked
        wanted = None if self._of_next else masked.places
        logits = self._network.apply({"params": params}, masked.tokens, wanted, dropout_keys)
        means = {}
        for (question, labels, weights), own_logits in zip(self._asked(targets), logits):
            loss, hit = cross_entropy(own_logits, labels)
            means |= {question.loss: Mean.of(loss, weights), question.accuracy: Mean.of(hit, weights)}
        return means

    def _asked(self, targets: PretrainingTargets) -> Iterator[tuple[Question, Int[Array, "..."], Float[Array, "..."]]]:
        """Each question with its labels and weights, in the order of the model's logits."""
        yield self.of_tokens, targets.masked.labels, targets.masked.weights
        if self.of_pairs:
            yield self.of_pairs, targets.pair_label, targets.pair_weight

    def _masked(self, tokens: Tokens, keys: Key[Array, "B N"], moment: Moment | None) -> Masked:
        return mask_sequences(
            tokens,
            keys,
            self._config,
            mask_id=self._mask_id,
            vocabulary_size=self.model.vocabulary_size,
            units=self._phases[moment.phase].units if moment and self._phases else None,
            done=moment and moment.done,
        )


def pretraining_trainer(config: RunConfig, mesh: Mesh, vocabulary_size: int, mask_id: int) -> Trainer:
    """Needs no data, only the size of the vocabulary and the id of [MASK].

    Raises UsageError where the settings name another size.
    """
    if config.model.vocabulary_size not in (None, vocabulary_size):
        raise UsageError(
            f"model.vocabulary_size={config.model.vocabulary_size} and the vocabulary has {vocabulary_size} "
            "pieces; leave the setting out: it is taken from the vocabulary"
        )
    model = config.model.replace(vocabulary_size=vocabulary_size)
    others = config.phases, config.data.sequences_a_row
    objective = PretrainingObjective(config.objective, model, mask_id, config.execution, *others)
    return Trainer(config, mesh, objective)


def planned_vocabulary_size(config: RunConfig) -> int:
    """Pieces of the vocabulary before there is one: of that which is given, or what the settings name.

    Raises UsageError where a given one can't be read.
    """
    if config.vocabulary.file or config.init:
        from bert_jax.pretraining.vocabulary import (
            given_tokenizer,  # needs the tokenizers' libraries; else none does
        )

        return len(given_tokenizer(config).vocabulary)
    return config.model.vocabulary_size or config.vocabulary.size
