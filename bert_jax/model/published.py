"""Parameter counts that notes and papers print of two models, and what makes them differ from the code's."""

from typing import NamedTuple

from bert_jax.config.model import ModelConfig
from bert_jax.model.size import num_parameters

BASE = ModelConfig.base(vocabulary_size=30_522)
HE_AND_XU = ModelConfig.medium(vocabulary_size=30_522, max_positions=128)


class Term(NamedTuple):
    """Parameters that a figure counts, or less than 0: that it leaves out."""

    name: str
    parameters: int


class PublishedFigure(NamedTuple):
    """A printed number of parameters."""

    source: str
    terms: tuple[Term, ...]
    """Our count or its parts, then what the source counts otherwise."""

    @property
    def parameters(self) -> int:
        """The number as printed: the sum of the terms."""
        return sum(term.parameters for term in self.terms)


def published_figures(config: ModelConfig) -> list[PublishedFigure]:
    """Those of a model of this shape, term by term; none for most shapes."""
    if _shape(config) == _shape(BASE):
        return [_every_array(config), _without_biases(config)]
    return [_he_and_xu(config)] if _shape(config) == _shape(HE_AND_XU) else []


def _shape(config: ModelConfig) -> tuple[int | str, ...]:
    """What a count depends on."""
    blocks = config.num_layers, config.hidden_size, config.num_heads, config.inner_size
    return *blocks, config.vocabulary_size, config.num_segments, config.positions, config.max_positions


def _every_array(config: ModelConfig) -> PublishedFigure:
    """109,482,240, in notes that list the arrays of BERT-base: the code's count without heads."""
    width, inner = config.hidden_size, config.inner_size
    dense = width * width + width
    rows = config.vocabulary_size + config.num_segments + config.max_positions
    block = 4 * dense + (width * inner + inner) + (inner * width + width) + 2 * 2 * width
    terms = (
        Term("three tables and LayerNorm", rows * width + 2 * width),
        Term(f"{config.num_layers} layers of {block:,}", config.num_layers * block),
        Term("pooler: weights and biases", dense),
    )
    return PublishedFigure("notes that list every array", terms)


def _without_biases(config: ModelConfig) -> PublishedFigure:
    """108,808,704, in notes that count matrices and LayerNorm alone.

    They print 3062 for a feed-forward width of 3072, and for LayerNorm 768 + (768 + 768) x 12; their sum has 3072, and
    for LayerNorm 38,400: scale and shift.
    """
    width, inner = config.hidden_size, config.inner_size
    terms = (
        Term("total without heads", num_parameters(config, heads=False)),
        Term("biases of six matrices a block", -config.num_layers * (4 * width + inner + width)),
        Term("pooler: weights and biases", -(width * width + width)),
    )
    return PublishedFigure("notes without biases and pooler", terms)


def _he_and_xu(config: ModelConfig) -> PublishedFigure:
    """35,945,786, by He and Xu's formula n8 (n2^2 + 3 n2 n6 + 2 n2 n7 + 4 n2 + 3 n6 + n7) + n1 n2 + 2 n2^2 + n2 n3 +
    6 n2 + n1 (2020, section 7).

    Its 3 n2 n6 + 3 n6 are query, key and value of one head, though section 5.2 gives each of the n5 heads its own; of
    the six vectors of width n2 in a block it counts four. The two LayerNorms are those that its model lacks, and the
    last two parameters are eta, which section 6.1 has.
    """
    width, layers, head = config.hidden_size, config.num_layers, config.head_size
    others = config.num_heads - 1
    projections = f"query, key, value of {others} of {config.num_heads} heads"
    terms = (
        Term("total with heads", num_parameters(config)),
        Term(f"{projections}: weights", -layers * others * 3 * width * head),
        Term(f"{projections}: biases", -layers * others * 3 * head),
        Term("two output biases a block", -layers * 2 * width),
        Term("LayerNorm of the embeddings", -2 * width),
        Term("LayerNorm of the MLM head", -2 * width),
        Term("bias of the NSP head", -2),
    )
    return PublishedFigure("He and Xu (2020), section 7", terms)
