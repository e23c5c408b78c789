"""What a model is made of and what training it takes: the facts that bert-jax params and a report show."""

from typing import Any, NamedTuple

import jax

from bert_jax.config.model import ModelConfig
from bert_jax.config.run import RunConfig
from bert_jax.model.bert import parameter_shapes
from bert_jax.model.embeddings import padded_vocabulary_size
from bert_jax.model.size import Part, forward_flops, num_parameters, parts, train_flops
from bert_jax.training.optimizer import make_optimizer


class PhaseFlops(NamedTuple):
    """FLOPs of the matrix products in a phase, without recomputation."""

    length: int
    """Tokens of a full sequence."""
    predicted: int
    """Predicted tokens of a sequence."""
    forward: int
    """Of one sequence."""
    trained: int
    """Of one sequence, forward and backward."""
    whole: int
    """Of all steps of the phase."""


class ModelFacts(NamedTuple):
    """Parameters, memory and FLOPs of one run's model."""

    parts: list[Part]
    padding_rows: int
    """Rows of the word table past the vocabulary, which no count has."""
    padding: int
    """Zeros in these rows and in the output bias past the vocabulary."""
    parameter_bytes: int
    """With the padding, over all devices."""
    optimizer_bytes: int
    phases: list[PhaseFlops]

    @classmethod
    def of(cls, model: ModelConfig, config: RunConfig) -> "ModelFacts":
        """The facts of `model`, whose `vocabulary_size` is set, trained as `config` says. Nothing is allocated."""
        shapes = parameter_shapes(model)
        slots = jax.eval_shape(make_optimizer(config.optimizer).init, shapes)
        phases = []
        for phase in config.phases:
            predicted = config.slots(phase.length)
            trained = train_flops(model, phase.length, predicted)
            forward = forward_flops(model, phase.length, predicted)
            phases.append(
                PhaseFlops(phase.length, predicted, forward, trained, trained * phase.batch_size * phase.steps)
            )
        padded = padded_vocabulary_size(model)
        return cls(
            parts(model),
            padded - (model.vocabulary_size or padded),
            sum(leaf.size for leaf in jax.tree.leaves(shapes)) - num_parameters(model),
            _bytes(shapes),
            _bytes(slots),
            phases,
        )


def _bytes(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
