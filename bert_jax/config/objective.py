"""Settings of the pretraining objective."""

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from bert_jax.config.settings import Settings

Share = Annotated[float, Field(ge=0.0, le=1.0)]


class ObjectiveConfig(Settings):
    """Masked language modelling with or without next sentence prediction (Devlin et al. 2019, section 3.1), or the
    prediction of each next token, with which that paper compares it (section 5.1)."""

    predict: Literal["masked", "next"] = "masked"
    """Tokens to predict: masked tokens, from both sides; or each next token from those before it, as in GPT (Radford et
    al. 2018), which needs model.causal and pair=none and ignores the settings of masking."""
    pair: Literal["next_sentence", "none"] = "next_sentence"
    """Next sentence prediction, whether the second segment follows the first; or none. With none, sequences are whole
    sentences up to the length, and the pooler and the next sentence head stay in the model untrained."""
    masking_unit: Literal["piece", "word"] = "piece"
    """Unit of masking: single pieces, or all pieces of a word together (whole-word masking)."""
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
        """Prediction slots P of a sequence of `length` tokens: 20 for 128 and 77 for 512, as in the original. For next
        tokens: one for each token."""
        if self.predict == "next":
            return length
        return max(1, math.ceil(self.masked_share * length))

    def num_predictions(self, length: int) -> int:
        """Number of masked tokens in a sequence of `length` real tokens: the original's formula and rounding."""
        return max(1, round(self.masked_share * length))
