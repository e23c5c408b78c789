"""Settings of a fine-tuning to vectors of texts."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field, field_validator

from bert_jax.config.language import Languages
from bert_jax.config.settings import GIVEN, Requirement, Settings
from bert_jax.config.wording import value_text

MANY_CUT = 0.4
"""If a larger share of the texts is cut, messages name their length as the first thing to change. Of the passages made
from a corpus, a fifth are cut."""
Pooling = Literal["mean", "cls", "max"]
"""How a text's vector is made from the vectors of its tokens, [CLS] and [SEP] included: their mean; the vector of
[CLS], or of the last token in a causal model; the maximum of each component."""
PairSource = Literal["neighbours", "title", "dropout"]
"""The two texts of a pair from a document: neighbouring passages; its first line and the passage after it; the same
passage twice, which differs by dropout alone (Gao et al. 2021, SimCSE, arXiv:2104.08821)."""
HELD_OUT_PAIRS = "pairs held out from the corpus"
"""Name, in reports, of the pairs that a run of task.source without task.dev is measured on."""
PASSAGE_ROLES = ("document", "passage", "corpus")
"""Names of the prompt for texts that are searched, in the order in which sentence-transformers looks for one."""
Join = Literal["concat", "sum", "mean", "none"]
"""How a token's vectors from several layers are joined: concatenated, added, averaged, or kept separate."""
Pool = Literal["none", "cls", "mean", "max"]
"""How a text's vectors are pooled: not at all, the vector of [CLS], or the mean or maximum over all tokens.

In a causal model the last token replaces [CLS], since the first token can't attend to others."""
Precision = Literal["float32", "float16"]
"""Type of the returned or written numbers."""


class Prompt(NamedTuple):
    """A text that is put before another text whose vector is computed."""

    text: str = ""
    pooled: bool = True
    """Whether the prompt's tokens, and the [CLS] before them, are pooled with the text's tokens."""


NO_PROMPT = Prompt()


class VectorsConfig(Settings):
    """How vectors of texts are learned, for kind `vectors`."""

    PREFIX: ClassVar[str] = "--task."
    REQUIREMENTS: ClassVar[tuple[Requirement, ...]] = tuple(
        Requirement(name, GIVEN, "source", GIVEN, "it is for pairs made of a corpus")
        for name in ("source_language", "source_layout", "pairs")
    )
    source: str | None = None
    """A corpus to make pairs of texts from, in place of task.train; given in the form of data.source."""
    pairs: PairSource = "neighbours"
    """The pairs that are made from the documents of task.source. `neighbours`: neighbouring passages; `title`: the
    first line and the passage after it; `dropout`: the same passage twice, which differs by dropout alone and teaches
    a model that was pretrained, not one from random parameters (SimCSE)."""
    source_language: Languages = ("en",)
    """Language of task.source, as data.language is that of data.source."""
    source_layout: Literal["paragraphs", "sentences"] = "paragraphs"
    """Meaning of a line of task.source, as of data.layout."""
    prompts: tuple[str, ...] = ()
    """Texts that are put before those whose vectors are computed, each NAME=TEXT: `query` before queries and the first
    texts of pairs, `document` (or `passage`, `corpus`) before the texts that are searched, second ones and negatives.
    Empty: as in the model to start from."""
    default_prompt: str | None = None
    """Name of the prompt of texts without a role, such as those of pairs with scores. None: they have no prompt."""
    include_prompt: bool = True
    """Whether the tokens of a prompt, and the [CLS] before them, are pooled, too."""
    negatives: str = "negatives"
    """Column with a list of texts that don't match the first one; a row may lack it."""
    most_negatives: Annotated[int, Field(ge=0)] | None = None
    """Maximum number of negatives of a row that training uses. None: all. The memory of a step grows with the largest
    number."""
    scored: bool = False
    """Whether the training pairs have scores. It follows from the first training row, not from this setting."""
    pool: Pooling | None = None
    """How the vectors of a text's tokens become one: their mean, the vector of [CLS] or the maximum of each component.
    [CLS] and [SEP] count as tokens. None: as in the model to start from if it has vectors of texts, else the mean."""
    temperature: Annotated[float, Field(gt=0)] = 0.05
    """Divisor of the cosines in the loss. Smaller values weigh the most similar texts of a batch more."""
    directions: Literal["both", "query"] = "both"
    """Whether the loss also compares each second text with all first texts, or only each first text with all others."""
    widths: tuple[Annotated[int, Field(gt=0)], ...] = ()
    """Widths that a vector can be cut to, such as 128 64: the loss is the mean over these and the whole vector
    (Kusupati et al. 2022, Matryoshka, arXiv:2205.13147)."""
    score_range: tuple[float, float] | None = None
    """Lowest and highest score of a scored pair. Other scores are refused. None: any number."""

    @property
    def texts_a_group(self) -> int:
        """Most texts of a group: two, and `most_negatives`, which is known once the rows have been read."""
        return 2 + (self.most_negatives or 0)

    @property
    def pooling(self) -> Pooling:
        """`pool`, or the mean if it is None. A fine-tuning sets `pool` once it knows the model to start from."""
        return self.pool or "mean"

    @property
    def prompt_texts(self) -> dict[str, str]:
        """The texts of `prompts`, by their names."""
        return {name: text for name, _, text in (each.partition("=") for each in self.prompts)}

    def prompt(self, role: str | None) -> Prompt:
        """The prompt of texts of a role: "query", "passage" or a name in `prompts`. None: the default prompt. A role
        without a prompt has no prompt, not the default one, as in sentence-transformers."""
        names = (role, *PASSAGE_ROLES) if role in PASSAGE_ROLES else (role or self.default_prompt,)
        texts = (self.prompt_texts.get(name or "") for name in names)
        return Prompt(next(filter(None, texts), ""), self.include_prompt)

    @field_validator("prompts")
    @classmethod
    def _named_prompts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        names = [each.partition("=")[0].strip() if "=" in each else "" for each in value]
        if "" in names or len(set(names)) < len(names):
            raise ValueError(f"={value_text(' '.join(value))}: expected NAME=TEXT with each name once")
        return value

    def _conflicts(self) -> Iterator[str]:
        if self.default_prompt is not None and self.default_prompt not in self.prompt_texts:
            names = ", ".join(self.prompt_texts) or "none"
            yield f"{self._current('default_prompt')} names no prompt of {self._flag('prompts')}, which has {names}"
        if self.score_range and self.score_range[0] >= self.score_range[1]:
            yield f"{self._current('score_range')} is empty; give the lowest and then the highest score"
        if len(set(self.widths)) < len(self.widths):
            yield f"{self._current('widths')} has a width twice; give each once"
