"""Settings of the pretraining objective."""

import functools
import math
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from bert_jax.config.settings import Settings
from bert_jax.config.units import Units
from bert_jax.system.errors import Setting

Share = Annotated[float, Field(ge=0.0, le=1.0)]
MaskedShare = Annotated[float, Field(gt=0.0, lt=1.0)]
_LEAST_TOKENS = 3
"""Tokens of the shortest sequence: [CLS], a piece, [SEP]."""
Weight = Annotated[float, Field(ge=0.0, le=1e6)]


class ObjectiveConfig(Settings):
    """Masked language modelling with or without next sentence prediction (Devlin et al. 2019, section 3.1), or the
    prediction of each next token, with which that paper compares it (section 5.1), or the detection of replaced tokens
    (Clark et al. 2020)."""

    predict: Literal["masked", "next", "replaced"] = "masked"
    """Tokens to predict: masked ones, from both sides; or each next token from those before it, as in GPT (Radford et
    al. 2018), which needs model.causal and pair=none and ignores the settings of masking; or, of every token, whether
    it was replaced, as in ELECTRA, which needs model.discriminator, model.generator_divisor and pair=none: a generator
    learns to predict masked tokens, and what is drawn from its predictions stands in their places."""
    generator_weight: Weight = 1.0
    """With predict=replaced: weight in the loss of the generator's masked tokens."""
    discriminator_weight: Weight = 50.0
    """With predict=replaced: weight in the loss of replaced tokens (Clark et al. 2020, section 2)."""
    pair: Literal["next_sentence", "sentence_order", "none"] = "next_sentence"
    """Question about two segments: whether the second follows the first or was drawn at random (BERT); in which
    order two that follow each other are (ALBERT, Lan et al. 2020, section 3.1); or none. With none, sequences are whole
    sentences up to the length, and the pooler and the head for pairs stay in the model untrained."""
    units: Units = ("piece",)
    """Unit of masking: piece, word, ngram (1 to 3 words), span (1 to 10 words), phrase, entity; or several
    with weights, of which each sequence draws one. A phase may have units of its own."""
    masked_share: MaskedShare = 0.15
    """Share of a sequence's tokens to predict."""
    masked_share_end: MaskedShare | None = None
    """Share of the tokens to predict at the end of each phase: from masked_share it goes there in a straight line over
    the phase's steps. None: the share stays as it is."""
    evaluated_share: MaskedShare = 0.15
    """Share of a held-out sequence's tokens to predict, whatever share is trained on."""
    mask_probability: Share = 0.8
    """Share of the tokens to predict that is replaced by [MASK]."""
    random_probability: Share = 0.1
    """Share of the tokens to predict that is replaced by a random piece. The rest stays as it is."""
    replaced_by: Literal["token", "unit"] = "token"
    """Whether each token to predict is replaced or kept by itself, as in BERT, or all tokens of a unit are replaced by
    [MASK], replaced by random pieces or kept together, as in SpanBERT."""

    def conflicts(self) -> Iterator[str]:
        """Yields a message for settings that don't fit each other."""
        if self.predict != "masked" and self.pair != "none":
            yield (
                f"{Setting('objective.predict', self.predict)} asks nothing about segments and "
                f"{Setting('objective.pair', self.pair)} does; set {Setting('objective.pair', 'none')}"
            )
        if self.mask_probability + self.random_probability > 1.0:
            yield (
                f"{Setting('objective.mask_probability', self.mask_probability)} and "
                f"{Setting('objective.random_probability', self.random_probability)} add up to more than 1; lower "
                "one of them"
            )

    def slots(self, length: int, sequences: int = 1, *, evaluated: bool = False) -> int:
        """Prediction slots P of a row of `length` tokens that holds up to so many sequences: for one sequence 20 at 128
        and 77 at 512, as in the original. For next tokens: one for each token.

        They hold the predictions of the largest share that is trained on or, if `evaluated`, of the evaluation's.
        """
        if self.predict == "next":
            return length
        share = self.evaluated_share if evaluated else max(self.masked_share, self.masked_share_end or 0.0)
        if sequences == 1:
            return max(1, math.ceil(share * length))
        return math.ceil(share * length + sequences * _most_added(share, length))


@functools.cache
def _most_added(share: float, length: int) -> float:
    """Most tokens that rounding adds to the share of a sequence of up to `length` tokens."""
    return max(num_predictions(share, size) - share * size for size in range(_LEAST_TOKENS, length + 1))


def num_predictions(share: float, length: int) -> int:
    """Number of masked tokens in a sequence of `length` real tokens: the original's formula and rounding."""
    return max(1, round(share * length))
