"""What text the model learns from."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_serializer, field_validator, model_validator

from bert_jax.config.language import language_code
from bert_jax.config.settings import Settings

SMALLEST_SHARE = 0.0001
"""Of the training sequences, that a source may be given."""


class DataConfig(Settings):
    """The corpus and how it is cut into instances (the original's create_pretraining_data.py)."""

    source: Annotated[tuple[str, ...], Field(min_length=1)] = ("python-docs",)
    """Where the text comes from, one source or several: `python-docs` (the docstrings of the installed Python and its
    packages), `text:GLOB` or `jsonl:GLOB#FIELD` (plain, .gz or .zst), `parquet:GLOB#FIELD`,
    `tfds:NAME/CONFIG:SPLIT#FEATURE`, `hf:NAME/CONFIG:SPLIT#FIELD`, or a path or pattern, whose files are taken by the
    end of their names (FIELD is then `text` unless it is named)."""
    weights: tuple[Annotated[float, Field(gt=0.0)], ...] | None = None
    """Share of the training sequences that is drawn from each source, as numbers in proportion; a small source is then
    repeated more often than a large one. None: every sequence of every source once an epoch."""
    layout: Literal["paragraphs", "sentences"] = "paragraphs"
    """What a line is. Either way a blank line of a text file ends a document, as does the end of a record."""
    language: Annotated[tuple[str, ...], Field(min_length=1)] = ("en",)
    """Language for splitting paragraphs into sentences, by its code (en, zh, pt-BR) or English name: one for all
    sources, or one for each."""
    undecodable: Literal["replace", "refuse"] = "replace"
    """Bytes that are not UTF-8: replaced by U+FFFD and counted, or refused with file and line."""
    held_out: Annotated[float, Field(ge=0.0, le=0.5)] = 0.01
    """Share of the documents (chosen by a hash of their text) that is kept for evaluation; where there are too few
    documents to keep one, the end of each."""
    short_sequence_probability: Annotated[float, Field(ge=0.0, le=1.0)] = 0.1
    """Share of documents (of sequences where objective.pair is none) cut for a random shorter length, so that short
    input is seen in training."""
    dupe_factor: Annotated[int, Field(gt=0)] = 1
    """Times that each training document is cut into sequences, each time with other pairs and other random segments.
    Masks don't need it: they are drawn anew every epoch."""
    chunk_megabytes: Annotated[float, Field(gt=0.0, le=256.0)] = 8.0
    """Text that one unit of preparation takes. Random second segments come from the same chunk."""

    @field_validator("source", "language", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("language")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        try:
            return tuple(map(language_code, value))
        except ValueError as error:
            raise ValueError(f"data.language: {error}") from None

    @field_serializer("source", "language")
    def _one_as_itself(self, value: tuple[str, ...]) -> str | tuple[str, ...]:
        """One alone is written as releases that knew only one write it, and means the same in a fingerprint."""
        return value[0] if len(value) == 1 else value

    @model_validator(mode="after")
    def _sources_fit(self) -> "DataConfig":
        count = len(self.source)
        if len(set(self.source)) < count:
            raise ValueError(
                f"data.source={' '.join(self.source)} names a source twice; use data.weights to see it more"
            )
        if self.weights is not None and len(self.weights) != count:
            raise ValueError(f"data.weights has {len(self.weights)} numbers for {count} sources; give one for each")
        if len(self.language) not in (1, count):
            raise ValueError(
                f"data.language has {len(self.language)} codes for {count} sources; give one for all or one for each"
            )
        if self.weights is not None and (least := min(self.shares)) < SMALLEST_SHARE:
            raise ValueError(
                f"data.weights gives a source {least:.2g} of the sequences; give each {SMALLEST_SHARE} or more"
            )
        return self

    @property
    def shares(self) -> tuple[float, ...] | None:
        """`weights`, made to add up to 1."""
        return self.weights and tuple(weight / sum(self.weights) for weight in self.weights)

    @property
    def languages(self) -> tuple[str, ...]:
        """The language of each source."""
        return self.language if len(self.language) > 1 else self.language * len(self.source)

    @property
    def described(self) -> str:
        """The sources as they are given on a command line, for messages."""
        return f"data.source={' '.join(map(repr, self.source))}"
