"""Where documents come from."""

from collections import Counter
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from bert_jax.config.data import DataConfig
from bert_jax.data.jsonl_files import JsonlFiles
from bert_jax.data.parquet_files import ParquetFiles
from bert_jax.data.python_docs import PythonDocs
from bert_jax.data.text_files import TextFiles
from bert_jax.data.tfds_dataset import TfdsDataset, tfds_place
from bert_jax.system.errors import UsageError

_DOCUMENTS_A_CHUNK = 8
"""At least: a random second segment comes from another document of the chunk, so text without blank lines is cut."""
_EXAMPLES = (
    "python-docs",
    "text:corpus/*.txt.gz",
    "jsonl:corpus/*.jsonl.zst#text",
    "parquet:corpus/*.parquet#text",
    "tfds:imdb_reviews/plain_text:train",
)
Document = list[str]
"""The paragraphs of one document, or its sentences where the source has one sentence a line."""


@runtime_checkable
class Corpus(Protocol):
    """A stream of documents that knows how far it is. Every pass gives the same documents in the same order."""

    unit: str
    """What `position` and `total` count."""
    total: float
    """Size of the whole corpus."""
    position: float
    """How much of it the current pass has read."""
    repairs: Counter[str]
    """What the current pass had to mend, and how often."""
    stamp: str
    """Tells other text from the same without reading all of it."""

    def documents(self) -> Iterator[Document]:
        """A pass over the documents, none of them empty."""


def corpus_stamp(config: DataConfig) -> str | None:
    """The stamp of the corpus that `config.source` names; None where it isn't here (its data came without it)."""
    try:
        return open_corpus(config).stamp
    except UsageError:
        return None


def open_corpus(config: DataConfig) -> Corpus:
    """The corpus that `config.source` names. Raises UsageError where it names none or one that isn't there."""
    kind, _, place = config.source.partition(":")
    limits = (config.undecodable, int(config.chunk_megabytes * 1e6 / _DOCUMENTS_A_CHUNK))
    files, _, field = place.rpartition("#")
    if config.source == "python-docs":
        return PythonDocs()
    if kind == "text" and place:
        return TextFiles(place, *limits)
    if kind in (records := {"jsonl": JsonlFiles, "parquet": ParquetFiles}) and files and field:
        return records[kind](files, field, *limits)
    if kind == "tfds" and (parts := tfds_place(place)):
        return TfdsDataset(*parts, *limits)
    raise UsageError(f"data.source={config.source!r} names no corpus; expected one like {', '.join(_EXAMPLES)}")
