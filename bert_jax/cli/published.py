"""Parameter counts printed in notes and a paper for two models, and why they differ from the counts of `params`."""

from typing import NamedTuple

from bert_jax.config.model import ModelConfig


class PublishedCount(NamedTuple):
    """A printed number of parameters, explained for the one model shape that it belongs to."""

    source: str
    terms: dict[str, int]
    """What the source counts; negative for parameters that it leaves out of our count."""

    @property
    def parameters(self) -> int:
        """The number as printed: the sum of the terms."""
        return sum(self.terms.values())


BASE = ModelConfig.base(vocabulary_size=30_522)
HE_AND_XU = ModelConfig.medium(vocabulary_size=30_522, max_positions=128)
_COUNTS = {
    BASE: [
        PublishedCount(
            "notes that list every array",
            {
                "three tables and LayerNorm": 23_837_184,
                "12 layers of 7,087,872": 12 * 7_087_872,
                "pooler: weights and biases": 590_592,
            },
        ),
        # They print 3062 for a feed-forward width of 3072, and for LayerNorm 768 + (768 + 768) x 12; their sum has
        # 3072, and 38,400 for LayerNorm: scale and shift.
        PublishedCount(
            "notes without biases and pooler",
            {
                "total without heads": 109_482_240,
                "biases of six matrices a block": -12 * (4 * 768 + 3072 + 768),
                "pooler: weights and biases": -590_592,
            },
        ),
    ],
    # Their formula is n8 (n2^2 + 3 n2 n6 + 2 n2 n7 + 4 n2 + 3 n6 + n7) + n1 n2 + 2 n2^2 + n2 n3 + 6 n2 + n1. It counts
    # query, key and value of one head, though their section 5.2 gives each of the n5 heads its own, and four of the six
    # vectors of width n2 in a block. Their model lacks two LayerNorms of ours, and its NSP head has no bias but eta.
    HE_AND_XU: [
        PublishedCount(
            "He and Xu (2020), section 7",
            {
                "total with heads": 41_471_804,
                "query, key, value of 7 of 8 heads: weights": -8 * 7 * 3 * 512 * 64,
                "query, key, value of 7 of 8 heads: biases": -8 * 7 * 3 * 64,
                "two output biases a block": -8 * 2 * 512,
                "LayerNorm of the embeddings": -2 * 512,
                "LayerNorm of the MLM head": -2 * 512,
                "bias of the NSP head": -2,
            },
        ),
    ],
}


def published_counts(config: ModelConfig) -> list[PublishedCount]:
    """The printed counts for a model of this shape; empty for most shapes."""
    return next((counts for known, counts in _COUNTS.items() if _shape(known) == _shape(config)), [])


def _shape(config: ModelConfig) -> tuple[int | str | None, ...]:
    """The settings that the number of parameters depends on."""
    blocks = config.num_layers, config.hidden_size, config.num_heads, config.inner_size
    others = config.embedding_size, config.shared_layers, config.discriminator
    return *blocks, *others, config.vocabulary_size, config.num_segments, config.positions, config.max_positions
