"""What text the model learns from."""

from typing import Annotated, Literal

from pydantic import Field

from bert_jax.config.settings import Settings


class DataConfig(Settings):
    """The corpus and how it is cut into instances (the original's create_pretraining_data.py)."""

    source: str = "python-docs"
    """`python-docs` (the docstrings of the installed Python and its packages), `text:GLOB` or `jsonl:GLOB#FIELD`
    (plain, .gz or .zst), `parquet:GLOB#FIELD`, or `tfds:NAME/CONFIG:SPLIT#FEATURE`."""
    layout: Literal["paragraphs", "sentences"] = "paragraphs"
    """What a line is. Either way a blank line of a text file ends a document, as does the end of a record."""
    language: str = "en"
    """Language code for splitting paragraphs into sentences."""
    undecodable: Literal["replace", "refuse"] = "replace"
    """Bytes that are not UTF-8: replaced by U+FFFD and counted, or refused with file and line."""
    held_out: Annotated[float, Field(ge=0.0, le=0.5)] = 0.01
    """Share of the documents (chosen by a hash of their text) that is kept for evaluation."""
    short_sequence_probability: Annotated[float, Field(ge=0.0, le=1.0)] = 0.1
    """Share of documents cut for a random shorter length, so that short input is seen in training."""
    chunk_megabytes: Annotated[float, Field(gt=0.0, le=256.0)] = 8.0
    """Text that one unit of preparation takes. Random second segments come from the same chunk."""
