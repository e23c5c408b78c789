"""What the model is asked."""

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from bert_jax.config.settings import Settings

Share = Annotated[float, Field(ge=0.0, le=1.0)]


class ObjectiveConfig(Settings):
    """Masked language modelling with next sentence prediction (Devlin et al. 2019, section 3.1), or alone; or the
    prediction of each next token, which that paper compares it with (section 5.1)."""

    predict: Literal["masked", "next"] = "masked"
    """Which tokens: masked ones, from both sides; or every one from those before it, as in GPT (Radford et al. 2018),
    with model.causal and pair=none. Then nothing is masked, and the settings of masking have no part in it."""
    pair: Literal["next_sentence", "none"] = "next_sentence"
    """What is asked about two segments: whether the second follows the first, or nothing. Then sequences are whole
    sentences up to the length, and the pooler and the next sentence head stay in the model without being trained."""
    masking_unit: Literal["piece", "word"] = "piece"
    """What is masked together: single pieces, or all pieces of a word (whole-word masking)."""
    masked_share: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.15
    """Share of a sequence's tokens to predict."""
    mask_probability: Share = 0.8
    """Share of the tokens to predict that is replaced by [MASK]."""
    random_probability: Share = 0.1
    """Share of the tokens to predict that is replaced by a random piece. The rest stays as it is."""

    @model_validator(mode="after")
    def _next_tokens_are_all_that_is_asked(self) -> "ObjectiveConfig":
        if self.predict == "next" and self.pair != "none":
            raise ValueError(
                f"objective.predict=next asks nothing about segments and objective.pair={self.pair} does; "
                "set objective.pair=none"
            )
        return self

    @model_validator(mode="after")
    def _shares_fit(self) -> "ObjectiveConfig":
        if self.mask_probability + self.random_probability > 1.0:
            raise ValueError(
                f"objective.mask_probability={self.mask_probability} and objective.random_probability="
                f"{self.random_probability} "
                "add up to more than 1; lower one of them"
            )
        return self

    def slots(self, length: int) -> int:
        """Prediction slots P of a sequence of `length` tokens: 20 at 128 and 77 at 512, as in the original; of next
        tokens one at each."""
        if self.predict == "next":
            return length
        return max(1, math.ceil(self.masked_share * length))

    def num_predictions(self, length: int) -> int:
        """Masked tokens of a sequence with `length` real tokens: the original's count, Python's rounding."""
        return max(1, round(self.masked_share * length))
