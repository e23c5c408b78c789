"""Corpora: the sources that documents are read from, and the mixture of all sources of a run."""

import itertools
import json
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bert_jax.config.data import DataConfig
from bert_jax.records.compressed_files import opened, suffix
from bert_jax.records.decoded_lines import file_parts
from bert_jax.records.drops import Drops
from bert_jax.records.file_source import LINE_END, FileSource, RecordFiles, TextFiles
from bert_jax.records.hf_dataset import HF_PLACE, HfDataset
from bert_jax.records.jsonl_files import read_jsonl
from bert_jax.records.parquet_files import read_parquet
from bert_jax.records.python_docs import PythonDocs
from bert_jax.records.text_source import TextSettings, TextSource, short_hash
from bert_jax.records.tfds_dataset import TFDS_PLACE, TfdsDataset
from bert_jax.system.bucket import Place, place_of, scheme_of
from bert_jax.system.errors import Setting, UsageError
from bert_jax.system.files import matching_files

_FIELD = "text"
"""Default field of a file of records, if none is named after #."""
RECORD_SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_TABLES = (".csv", ".tsv")
"""Suffixes of tables. They are refused unless written text:FILE."""


class _Kind(NamedTuple):
    """A kind of source, KIND:PLACE."""

    open: Callable[..., TextSource]
    """Opens a corpus. Its arguments are the groups of `place`, then the TextSettings."""
    place: re.Pattern[str]
    """Regular expression that PLACE must match."""
    example: str


_FILES_AND_FIELD = re.compile("(.+)#([^#]+)")
"""A path or pattern of files, and a field."""
_KINDS = {
    "text": _Kind(TextFiles, re.compile("(.+)", re.DOTALL), "text:corpus/*.txt.gz"),
    "jsonl": _Kind(partial(RecordFiles, read_jsonl, LINE_END), _FILES_AND_FIELD, "jsonl:corpus/*.jsonl.zst#text"),
    "parquet": _Kind(partial(RecordFiles, read_parquet, None), _FILES_AND_FIELD, "parquet:corpus/*.parquet#text"),
    "tfds": _Kind(TfdsDataset, TFDS_PLACE, "tfds:imdb_reviews/plain_text:train"),
    "hf": _Kind(HfDataset, HF_PLACE, "hf:OWNER/SET:train#text"),
}
Document = list[str]
"""One document: its paragraphs, or its sentences if the source has one sentence per line."""


Corpus = TextSource | PythonDocs
"""One source of a run."""


class Mixture:
    """The corpora of a run, read one after the other.

    `unit`, `total`, `position`, `repairs`, `stamp` and `revision` have the same meaning as in a single corpus.
    """

    def __init__(self, parts: Sequence[Corpus], resolved: Sequence[str] = ()):
        self.parts, self.resolved = list(parts), resolved
        """The sources, and the name of each as KIND:PLACE."""
        self.drops: Drops | None = None
        """What is dropped from the documents."""
        self._begun = 0
        units = {part.unit for part in self.parts}
        if len(units) > 1 and all(unit.startswith("MB") for unit in units):
            units = {"MB compressed"}  # as of one source with files of both kinds
        self.unit = units.pop() if len(units) == 1 else "%"
        self._scales = [
            1.0 if self.unit != "%" else 100 / len(self.parts) / max(part.total, 1e-9) for part in self.parts
        ]

    @property
    def total(self) -> float:
        """Size of all parts. If the parts have different units, each counts as an equal share of 100%."""
        return sum(part.total * scale for part, scale in zip(self.parts, self._scales, strict=True))

    @property
    def position(self) -> float:
        """Amount that the current pass has read, in the unit of `total`."""
        return sum(part.position * scale for part, scale in zip(self.parts[: self._begun], self._scales, strict=False))

    @property
    def repairs(self) -> Counter[str]:
        """Kinds of damage that the current pass repaired in all parts, with their counts."""
        return sum((part.repairs for part in self.parts[: self._begun]), Counter())

    @property
    def stamp(self) -> str:
        """The stamp of a single part, or the hash of the stamps of several."""
        return _combined_hash([part.stamp for part in self.parts])

    @property
    def revision(self) -> str:
        """The revision of a single part, or the hash of the revisions of several."""
        return _combined_hash([part.revision for part in self.parts])

    def begin_elsewhere(self) -> None:
        """Begins a pass in which other processes read all parts."""
        self._begun = len(self.parts)

    def whole_portions(self) -> Iterator[tuple[int, int, Iterator[Document]]]:
        """Yields the index of the source, the number of the portion and all its documents, for each portion of all
        parts. The caller reads each portion to its end before taking the next."""
        for source, part in enumerate(self.parts):
            self._begun = source + 1
            numbered = ((part.portion, document) for document in part.documents())
            for portion, documents in itertools.groupby(numbered, key=operator.itemgetter(0)):
                yield source, portion, (document for _, document in documents)

    def portions(self) -> Iterator[tuple[int, Iterator[Document]]]:
        """Yields the documents of each portion that aren't dropped, with the index of their source, like
        `whole_portions`."""
        for source, portion, documents in self.whole_portions():
            if self.drops:
                documents = self.drops.remaining(documents, source, portion, self.parts[source])
            yield source, documents

    def files_portions(self) -> list[tuple[int, FileSource]]:
        """Each portion of the parts that consist of files, with the index of its source, as a source of its own."""
        sources = ((source, part) for source, part in enumerate(self.parts) if isinstance(part, FileSource))
        return [(source, portion) for source, part in sources for portion in part.portions()]

    def sourced_documents(self) -> Iterator[tuple[int, Document]]:
        """Yields all documents of all parts that aren't dropped, each with the index of its source."""
        for source, documents in self.portions():
            for document in documents:
                yield source, document

    def documents(self) -> Iterator[Document]:
        """Starts a pass over all documents of all parts."""
        return (document for _, document in self.sourced_documents())


def _combined_hash(stamps: list[str]) -> str:
    return stamps[0] if len(stamps) == 1 else short_hash(stamps)


def corpus_stamp(config: DataConfig) -> str | None:
    """The stamp of the corpora in `config.source`, or None if one is missing (only its prepared data was copied)."""
    try:
        return open_corpus(config).stamp
    except UsageError:
        return None


def open_corpus(config: DataConfig) -> Mixture:
    """Opens the corpora in `config.source` and reads the first record of each.

    Raises UsageError if a source has an invalid name or is missing, if its first record lacks the field of the text, or
    if `config.spans` is set and no source is of the kind jsonl.
    """
    parts: list[Corpus] = []
    sources = [*map(resolved_source, config.source)]
    has_spans = False
    for source, resolved, language in zip(config.source, sources, config.languages, strict=True):
        spans = config.spans if resolved.startswith("jsonl:") else None
        has_spans |= spans is not None
        parts.append(_open(source, resolved, TextSettings(config.undecodable, config.chunk_bytes, language, spans)))
    if config.spans and not has_spans:
        raise UsageError(
            f"{Setting('data.spans', config.spans)} names a field of JSON lines, but {config.described} has no "
            f"source of JSON lines; give text and spans as records, like {_KINDS['jsonl'].example}, or leave "
            f"{Setting('data.spans')} out"
        )
    return Mixture(parts, sources)


def resolved_source(text: str) -> str:
    """Resolves `text`, as a user typed it: a source is returned as it is, a path or pattern of files as KIND:PLACE.

    The suffix of a file decides the kind: .jsonl and .parquet files hold records, and #FIELD may follow; all others
    hold plain text. Raises UsageError if no file matches.
    """
    if text == "python-docs" or text.partition(":")[0] in _KINDS:
        return text
    files, _, field = text.rpartition("#")
    if not files or matching_files(text):
        files, field = text, ""
    if not scheme_of(files) and place_of(files).is_dir():
        raise UsageError(f"{text!r} is a folder; name its files by a pattern like {Path(files) / '*.txt'}")
    if not matching_files(files):
        examples = " or ".join([*(kind.example for kind in _KINDS.values()), "python-docs"])
        raise UsageError(f"no file matches {text!r}; expected a path or pattern, or {examples}")
    end = suffix(files)
    if end in _TABLES:
        raise UsageError(
            f"{text!r} is a table and not read as text; write its column of text as plain text, JSON lines or Parquet"
        )
    if end in RECORD_SUFFIXES:
        return f"{RECORD_SUFFIXES[end]}:{files}#{field or _FIELD}"
    if _begins_with_record(next(iter(matching_files(files)))):
        if end != ".json":
            raise UsageError(f"{text!r} has JSON on its lines; name the field of the text: jsonl:{files}#{_FIELD}")
        return f"jsonl:{files}#{field or _FIELD}"
    if end == ".json":
        raise UsageError(f"{text!r} has no JSON object on each line; write it so: jq -c '.[]' OLD > NEW.jsonl")
    return f"text:{text}"


def _begins_with_record(path: Place) -> bool:
    """Whether the first line of a file is a JSON object. Raises UsageError for a file that holds no text."""
    with opened(path) as raw:
        _, line = next(iter(file_parts(path, raw, Counter())), (1, b""))
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _open(source: str, resolved: str, settings: TextSettings) -> Corpus:
    if resolved == "python-docs":
        return PythonDocs()
    name, _, place = resolved.partition(":")
    kind = _KINDS[name]
    if parts := kind.place.fullmatch(place):
        corpus = kind.open(*parts.groups(), settings)
        if name != "text":
            next(corpus.documents(), None)  # raises if the first record lacks the field
        return corpus
    if kind.place is _FILES_AND_FIELD and (path := place.rstrip("#")) and path[0] != "#":
        raise UsageError(
            f"{Setting('data.source')}={source!r} lacks #FIELD, the field that holds the text; write it like "
            f"{name}:{path}#{_FIELD}"
        )
    raise UsageError(f"{Setting('data.source')}={source!r} names no corpus; expected one like {kind.example}")
