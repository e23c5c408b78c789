"""Where documents come from."""

from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path, PurePath
from typing import Protocol, runtime_checkable

from bert_jax.config.data import DataConfig
from bert_jax.corpora.hf_dataset import HfDataset, hf_place
from bert_jax.corpora.jsonl_files import JsonlFiles
from bert_jax.corpora.parquet_files import ParquetFiles
from bert_jax.corpora.python_docs import PythonDocs
from bert_jax.corpora.text_files import TextFiles
from bert_jax.corpora.tfds_dataset import TfdsDataset, tfds_place
from bert_jax.system.errors import UsageError
from bert_jax.system.files import matching_files

_DOCUMENTS_A_CHUNK = 8
"""At least: a random second segment comes from another document of the chunk, so text without blank lines is cut."""
_FIELD = "text"
"""What is read of a file of records where no field is named after #."""
_RECORDS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_ROWS = (".csv", ".tsv", ".json", ".xlsx", ".pdf", ".docx")
"""Files that hold text, and are no text."""
_EXAMPLES = {
    "text": "text:corpus/*.txt.gz",
    "jsonl": "jsonl:corpus/*.jsonl.zst#text",
    "parquet": "parquet:corpus/*.parquet#text",
    "tfds": "tfds:imdb_reviews/plain_text:train",
    "hf": "hf:OWNER/SET:train#text",
    "python-docs": "python-docs",
}
"""A source of each kind."""
KINDS = _EXAMPLES.keys() - {"python-docs"}
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
    """Tells most other text from the same, on any machine, without reading all of it."""
    revision: str
    """Another one whenever a file was written since, here or on the way here, whatever text it has."""

    def documents(self) -> Iterator[Document]:
        """A pass over the documents, none of them empty."""


class Mixture:
    """The corpora of a run, one after the other. Itself a Corpus."""

    def __init__(self, parts: Sequence[Corpus]):
        self.parts = list(parts)
        self._begun = 0
        units = {part.unit for part in self.parts}
        self.unit = units.pop() if len(units) == 1 else "%"
        self._scales = [
            1.0 if self.unit != "%" else 100 / len(self.parts) / max(part.total, 1e-9) for part in self.parts
        ]

    @property
    def total(self) -> float:
        """Size of all parts. Where these count in different units, each is an equal part of 100%."""
        return sum(part.total * scale for part, scale in zip(self.parts, self._scales))

    @property
    def position(self) -> float:
        """How much of `total` the current pass has read."""
        return sum(part.position * scale for part, scale in zip(self.parts[: self._begun], self._scales))

    @property
    def repairs(self) -> Counter[str]:
        """What the current pass had to mend in all parts, and how often."""
        return sum((part.repairs for part in self.parts[: self._begun]), Counter())

    @property
    def stamp(self) -> str:
        """The stamp of the only part, or a hash of all parts' stamps."""
        return _one_of([part.stamp for part in self.parts])

    @property
    def revision(self) -> str:
        """The revision of the only part, or a hash of all parts' revisions."""
        return _one_of([part.revision for part in self.parts])

    def passes(self) -> Iterator[Iterator[Document]]:
        """A pass over each part, to be read to its end before the next."""
        for self._begun, part in enumerate(self.parts, 1):
            yield part.documents()

    def sourced_documents(self) -> Iterator[tuple[int, Document]]:
        """A pass over all documents, each with the number of its source."""
        for source, documents in enumerate(self.passes()):
            for document in documents:
                yield source, document

    def documents(self) -> Iterator[Document]:
        """A pass over all documents of all parts."""
        return (document for _, document in self.sourced_documents())


def _one_of(stamps: list[str]) -> str:
    return stamps[0] if len(stamps) == 1 else blake2b(repr(stamps).encode(), digest_size=8).hexdigest()


def corpus_stamp(config: DataConfig) -> str | None:
    """The stamp of the corpora that `config.source` names; None where one isn't here (its data came without it)."""
    try:
        return open_corpus(config).stamp
    except UsageError:
        return None


def open_corpus(config: DataConfig) -> Mixture:
    """The corpora that `config.source` names. Raises UsageError where a name is none or one isn't there."""
    document_bytes = int(config.chunk_megabytes * 1e6 / _DOCUMENTS_A_CHUNK)
    parts = [_open(source, config.undecodable, document_bytes) for source in config.source]
    for part, language in zip(parts, config.languages):
        part.language = language
    return Mixture(parts)


def source_of(text: str) -> str:
    """The source that a user means by `text`: itself where it is one, otherwise the files of that path or pattern.

    Files are taken by the end of their names: .jsonl and .parquet, which may have #FIELD after it, as records; others
    as text. Raises UsageError where no file matches.
    """
    if text == "python-docs" or text.partition(":")[0] in KINDS:
        return text
    files, _, field = text.rpartition("#")
    if not files or matching_files(text):
        files, field = text, ""
    if Path(files).is_dir():
        raise UsageError(f"{text!r} is a folder; name its files by a pattern like {Path(files) / '*.txt'}")
    if not matching_files(files):
        raise UsageError(f"no file matches {text!r}; expected a path or pattern, or {' or '.join(_EXAMPLES.values())}")
    end = next((end for end in reversed(PurePath(files).suffixes) if end not in (".gz", ".zst")), "")
    if end in _ROWS:
        raise UsageError(
            f"{text!r} is not read as text; give plain text, JSON lines or Parquet, or name it text:{text}"
        )
    if end in _RECORDS:
        return f"{_RECORDS[end]}:{files}#{field or _FIELD}"
    return f"text:{text}"


def _open(source: str, *limits: str | int) -> Corpus:
    named = source_of(source)
    kind, _, place = named.partition(":")
    files, _, field = place.rpartition("#")
    if named == "python-docs":
        return PythonDocs()
    if kind == "text" and place:
        return TextFiles(place, *limits)
    if kind in (records := {"jsonl": JsonlFiles, "parquet": ParquetFiles}) and files and field:
        return records[kind](files, field, *limits)
    if kind == "tfds" and (parts := tfds_place(place)):
        return TfdsDataset(*parts, *limits)
    if kind == "hf" and (parts := hf_place(place)):
        return HfDataset(*parts, *limits)
    if kind in records and (path := place.rstrip("#")) and not (files and field) and path[0] != "#":
        raise UsageError(
            f"data.source={source!r} lacks #FIELD, the field that holds the text; write it like {kind}:{path}#{_FIELD}"
        )
    raise UsageError(f"data.source={source!r} names no corpus; expected one like {_EXAMPLES[kind]}")
