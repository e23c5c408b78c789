"""Units of masking: tokens that are chosen and masked together."""

import difflib
import math
import re
from typing import Annotated, Literal, cast, get_args

from pydantic import AfterValidator, BeforeValidator, Field

from bert_jax.config.settings import one_or_several

UnitKind = Literal["piece", "word", "ngram", "span", "phrase", "entity"]
"""A unit of masking: a piece; the pieces of a word (whole-word masking); one to three words, n of them with
a probability proportional to 1/n (ALBERT); one to ten words, their number geometric with p = 0.2 (SpanBERT); a phrase
or an entity that preparation has marked, and each word outside of them."""

UNIT_KINDS: tuple[UnitKind, ...] = get_args(UnitKind)
_UNIT = re.compile(rf"({'|'.join(UNIT_KINDS)})(:\d{{1,6}}(\.\d{{1,6}})?)?")


def _checked(units: tuple[str, ...]) -> tuple[str, ...]:
    units = tuple(" ".join(units).split())  # also of one text, "word:0.7 phrase:0.3"
    for unit in units:
        if not _UNIT.fullmatch(unit):
            near = difflib.get_close_matches(unit.partition(":")[0], UNIT_KINDS, 1)
            remedy = f"; did you mean {near[0]}?" if near else ""
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


def unit_shares(units: Units) -> dict[UnitKind, float]:
    """The share of sequences that are masked by each kind of unit; equal ones where `units` has no weights.

    Kinds of weight 0 are left out.
    """
    weights = {kind: 1.0 if weight is None else weight for kind, weight in map(_parts, units)}
    total = math.fsum(weights.values())
    return {kind: weight / total for kind, weight in weights.items() if weight}
