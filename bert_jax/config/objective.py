"""Settings of the pretraining objective, and of the units of masking: tokens that are chosen and masked together."""

import functools
import math
import re
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, NamedTuple, cast, get_args

from pydantic import AfterValidator, BeforeValidator, Field

from bert_jax.config.prediction import PAIR_QUESTIONS, PREDICTIONS
from bert_jax.config.settings import GIVEN, Requirement, Settings, one_or_several
from bert_jax.config.wording import OneOf, help_items
from bert_jax.system.errors import did_you_mean

Share = Annotated[float, Field(ge=0.0, le=1.0)]
MaskedShare = Annotated[float, Field(gt=0.0, lt=1.0)]
_LEAST_TOKENS = 3
"""Tokens of the shortest sequence: [CLS], a piece, [SEP]."""
Weight = Annotated[float, Field(ge=0.0, le=1e6)]
TAGGED_EVERY = 8
"""With objective.tags, one training row in this many is a sentence of the treebank."""

Predicted = Annotated[str, OneOf(PREDICTIONS)]
_PREDICT_HELP = f"""Tokens to predict.

{help_items({value: facts.help for value, facts in PREDICTIONS.items()})}

All but masked need pair=none; next and both ignore the settings of masking."""
UnitKind = Literal["piece", "word", "ngram", "span", "context", "phrase", "entity"]
"""A unit of masking.

- piece: a piece.
- word: the pieces of a word (whole-word masking).
- ngram: one to three words, n of them with a probability proportional to 1/n (ALBERT).
- span: one to ten words, their number geometric with p = 0.2 (SpanBERT).
- context: one to five words, n of them with a probability proportional to 1/n, each within a context of 6 n other
  tokens (XLNet), and single pieces once there are no such spans left.
- phrase, entity: a phrase or an entity that preparation has marked, and each word outside of these.
"""

ScoreMethod = Literal["token", "word"]
"""What is masked to predict a token for the score of a text: the token alone, or also the later pieces of its word."""
UNIT_KINDS: tuple[UnitKind, ...] = get_args(UnitKind)
_UNIT = re.compile(rf"({'|'.join(UNIT_KINDS)})(:\d{{1,6}}(\.\d{{1,6}})?)?")


def _checked(units: tuple[str, ...]) -> tuple[str, ...]:
    units = tuple(" ".join(units).split())  # several units may also be one text: "word:0.7 phrase:0.3"
    for unit in units:
        if not _UNIT.fullmatch(unit):
            meant = did_you_mean(unit.partition(":")[0], UNIT_KINDS)
            remedy = f"; {meant}" if meant else ""
            raise ValueError(f"={unit}: expected {', '.join(UNIT_KINDS)}, or these as word:0.7 phrase:0.3{remedy}")
    kinds, weights = {_parts(unit)[0] for unit in units}, [_parts(unit)[1] for unit in units]
    if len(kinds) < len(units):
        raise ValueError(f"={' '.join(units)} names a kind twice; give each once")
    if 0 < sum(weight is not None for weight in weights) < len(units):
        raise ValueError(f"={' '.join(units)} has weights for some kinds only; give all of them one, or none")
    if sum(weight or 0.0 for weight in weights) == 0 and None not in weights:
        raise ValueError(f"={' '.join(units)} gives every kind the weight 0; raise one")
    return units


def _parts(unit: str) -> tuple[UnitKind, float | None]:
    kind, _, weight = unit.partition(":")
    return cast(UnitKind, kind), float(weight) if weight else None


Units = Annotated[
    tuple[Annotated[str, Field(examples=["word or phrase:0.3"])], ...],
    Field(min_length=1),
    BeforeValidator(one_or_several),
    AfterValidator(_checked),
]
"""One kind of unit, or several with weights: ("piece:0.4", "phrase:0.3", "entity:0.3")."""


class MaskSetting(NamedTuple):
    """In an Annotated: marks a setting of masking."""

    replaces: bool = False
    """Whether it says what replaces the chosen tokens; otherwise it says which tokens are chosen."""
    in_training_only: bool = False
    """Whether it changes masks in training only."""


class ObjectiveConfig(Settings):
    """Masked language modelling with or without next sentence prediction (Devlin et al. 2019, section 3.1), or the
    prediction of each next token, with which that paper compares it (section 5.1), or the detection of replaced tokens
    (Clark et al. 2020)."""

    PREFIX: ClassVar[str] = "--objective."
    REQUIREMENTS: ClassVar[tuple[Requirement, ...]] = (
        Requirement("predict", GIVEN, "pair", "none", "only masked tokens go with a question about segments"),
        Requirement("tags", GIVEN, "predict", "masked", "tags are learned beside masked tokens"),
        Requirement("tags", GIVEN, "pair", "none", "the sentences of a treebank are no pairs"),
    )
    predict: Annotated[Predicted, Field(description=_PREDICT_HELP)] = "masked"
    """Tokens to predict: a name in PREDICTIONS, whose rows give the help."""
    class_name: str | None = None
    """Name of a class of a Python program; it replaces the objective that `predict` names.
    `bert_jax.pretrain(..., objective=...)` sets it, and a command can't train with it. None: no such class."""
    generator_weight: Weight = 1.0
    """With predict=replaced: weight in the loss of the generator's masked tokens."""
    discriminator_weight: Weight = 50.0
    """With predict=replaced: weight in the loss of replaced tokens (Clark et al. 2020, section 2)."""
    tags: str | None = None
    """File of a treebank whose words have universal parts of speech (UPOS), as a second question of the training
    (MicroBERT, Gessler and Zeldes 2022): CoNLL-U (.conllu), or columns with the word first and the tag last (.conll);
    plain, .gz or .zst. Every eighth row is one of its sentences, with no token masked; a linear layer predicts the tag
    of each word at its first piece. The share data.held_out of its sentences, chosen as documents are, is used for
    evaluation only. Needs predict=masked and pair=none."""
    tags_weight: Weight = 1.0
    """With `tags`: weight in the loss of the tags' mean cross-entropy."""
    tags_hash: str | None = None
    """Hash of the sentences of `tags`. Pretraining sets it, so that a run goes on with the same sentences alone."""
    pair: Annotated[str, OneOf(PAIR_QUESTIONS)] = "next_sentence"
    """Question about two segments.

    - next_sentence: whether the second follows the first or was drawn at random (BERT).
    - sentence_order: in which order two neighbouring segments are (ALBERT, Lan et al. 2020, section 3.1).
    - none: no question. data.whole_sentences says how sequences are filled, and the pooler and the head for pairs stay
      in the model untrained."""
    units: Annotated[Units, MaskSetting()] = ("piece",)
    """Unit of masking, or several with weights, of which each sequence draws one. A phase may have others.

    - piece: a piece of the vocabulary.
    - word: a whole word.
    - ngram: 1 to 3 words.
    - span: 1 to 10 words.
    - context: 1 to 5 words within a context of others.
    - phrase, entity: what data.phrases, data.entities or data.spans mark."""
    masked_share: Annotated[MaskedShare, MaskSetting(in_training_only=True)] = 0.15
    """Share of a sequence's tokens to predict."""
    masked_share_end: Annotated[MaskedShare | None, MaskSetting(in_training_only=True)] = None
    """Share of the tokens to predict at the end of each phase. The share changes linearly from masked_share over the
    phase's steps. None: it is constant."""
    evaluated_share: Annotated[MaskedShare, MaskSetting()] = 0.15
    """Share of a held-out sequence's tokens to predict, independent of the share in training."""
    mask_probability: Annotated[Share, MaskSetting(replaces=True)] = 0.8
    """Share of the tokens to predict that is replaced by [MASK]."""
    random_probability: Annotated[Share, MaskSetting(replaces=True)] = 0.1
    """Share of the tokens to predict that is replaced by a random piece. The rest stays unchanged."""
    replaced_by: Annotated[Literal["token", "unit"], MaskSetting(replaces=True)] = "token"
    """Whether each token to predict is replaced or kept independently, as in BERT, or all tokens of a unit alike, as in
    SpanBERT: replaced by [MASK], replaced by random pieces, or kept."""

    def _conflicts(self) -> Iterator[str]:
        if self.mask_probability + self.random_probability > 1.0:
            yield (
                f"{self._current('mask_probability')} and {self._current('random_probability')} add up to more than "
                "1; lower one of them"
            )

    @property
    def replacing(self) -> "ObjectiveConfig":
        """These settings as masking follows them: some predictions replace no token."""
        keeps = PREDICTIONS[self.predict].keeps_tokens
        return self.replace(mask_probability=0.0, random_probability=0.0) if keeps else self

    @property
    def chooses_units(self) -> bool:
        """Whether units are chosen for prediction; otherwise every token is predicted."""
        return not PREDICTIONS[self.predict].slots_a_token

    def slots(self, length: int, sequences: int = 1, *, evaluated: bool = False) -> int:
        """Prediction slots P of a row of `length` tokens that holds up to `sequences` sequences.

        One sequence has 20 at length 128 and 77 at 512, as in the original. For next tokens there is one for each
        token, and with predict=both there are two. The slots suffice for the largest share in training or, if
        `evaluated`, for the share of the evaluation.
        """
        if not self.chooses_units:
            return PREDICTIONS[self.predict].slots_a_token * length
        share = self.evaluated_share if evaluated else max(self.masked_share, self.masked_share_end or 0.0)
        if sequences == 1:
            return max(1, math.ceil(share * length))
        return math.ceil(share * length + sequences * _most_added(share, length))


MASK_SETTINGS = {
    name: mark
    for name, field in ObjectiveConfig.model_fields.items()
    for mark in field.metadata
    if isinstance(mark, MaskSetting)
}
"""The settings of masking, by name."""
HELD_OUT_MASKS = frozenset(name for name, mark in MASK_SETTINGS.items() if not mark.in_training_only)
"""The names of the settings that determine the masks of held-out sequences."""


@functools.cache
def _most_added(share: float, length: int) -> float:
    """Most tokens by which rounding exceeds the share, for a sequence of up to `length` tokens."""
    return max(num_predictions(share, size) - share * size for size in range(_LEAST_TOKENS, length + 1))


def num_predictions(share: float, length: int) -> int:
    """Number of masked tokens in a sequence of `length` real tokens, by the original's formula and rounding."""
    return max(1, round(share * length))


def unit_shares(units: Units) -> dict[UnitKind, float]:
    """The share of sequences that are masked by each kind of unit. The shares are equal if `units` has no weights.
    Kinds of weight 0 are left out."""
    weights = {kind: 1.0 if weight is None else weight for kind, weight in map(_parts, units)}
    total = math.fsum(weights.values())
    return {kind: weight / total for kind, weight in weights.items() if weight}
