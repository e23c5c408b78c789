"""Settings of a fine-tuning to vectors of texts."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from bert_jax.config.settings import Settings

Pooling = Literal["mean", "cls", "max"]
"""How a text's vector is made of those of its tokens, [CLS] and [SEP] included: their mean; the vector of [CLS], or of
the last token in a causal model; the maximum of each component."""
PairSource = Literal["neighbours", "title", "dropout"]
"""The two texts of a pair from a document: neighbouring passages; its first line and the passage after it; the same
passage twice, which differs by dropout alone (Gao et al. 2021, SimCSE, arXiv:2104.08821)."""
HELD_OUT_PAIRS = "pairs held out from the corpus"
"""What a run of task.source without task.dev is measured on, in words."""


class VectorsConfig(Settings):
    """How vectors of texts are learned, for kind `vectors`."""

    source: str | None = None
    """A corpus to make pairs of texts from, in place of task.train; named as data.source is."""
    pairs: PairSource = "neighbours"
    """The pairs that are made from the documents of task.source. `neighbours`: neighbouring passages; `title`: the
    first line and the passage after it; `dropout`: the same passage twice, which differs by dropout alone and teaches
    a model that was pretrained, not one from random parameters (SimCSE)."""
    negatives: str = "negatives"
    """Column with a list of texts that don't match the first one; a row may lack it."""
    most_negatives: Annotated[int, Field(ge=0)] | None = None
    """Most negatives of a row that are learned from. None: all. The memory of a step grows with the largest number."""
    scored: bool = False
    """Whether the training pairs have scores. It follows from the first training row, not from this setting."""
    pool: Pooling | None = None
    """How the vectors of a text's tokens become one: their mean, the vector of [CLS] or the maximum of each component.
    [CLS] and [SEP] count as tokens. None: as in the model to start from if it has vectors of texts, else the mean."""
    temperature: Annotated[float, Field(gt=0)] = 0.05
    """Divisor of the cosines in the loss. Smaller values weigh the most similar texts of a batch more."""
    directions: Literal["both", "query"] = "both"
    """Whether the loss compares each second text with all first ones too, or only each first text with all others."""
    widths: tuple[Annotated[int, Field(gt=0)], ...] = ()
    """Widths that a vector can be cut to, such as 128 64: the loss is the mean over these and the whole vector
    (Kusupati et al. 2022, Matryoshka, arXiv:2205.13147)."""
    score_range: tuple[float, float] | None = None
    """Lowest and highest score of a scored pair; others are refused. None: any number."""

    @property
    def pooling(self) -> Pooling:
        """The pooling of a task whose model to start from is known."""
        return self.pool or "mean"

    def conflicts(self) -> Iterator[str]:
        """Yields a message for settings that don't fit each other."""
        if self.score_range and self.score_range[0] >= self.score_range[1]:
            low, high = self.score_range
            yield f"task.score_range={low:g} {high:g} is empty; give the lowest and then the highest score"
        if len(set(self.widths)) < len(self.widths):
            yield f"task.widths={' '.join(map(str, self.widths))} has a width twice; give each once"
        if self.pairs != "neighbours" and not self.source:
            yield f"task.pairs={self.pairs} makes pairs of task.source, which names no corpus; leave it out"
