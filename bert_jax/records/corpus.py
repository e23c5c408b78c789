"""Corpora: the sources that documents are read from, and the mixture of all sources of a run."""

import io
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bert_jax.config.data import DataConfig
from bert_jax.records.decoded_lines import Pass, numbered_parts
from bert_jax.records.drops import Drops
from bert_jax.records.file_source import FileSource
from bert_jax.records.record import Record
from bert_jax.records.source import Source
from bert_jax.records.sources import open_source, resolved_source
from bert_jax.system.content import content_hash
from bert_jax.system.errors import Setting, UsageError, json_kind
from bert_jax.text.text_spans import with_spans

_DOCUMENTS_A_CHUNK = 8
"""Smallest number of documents in a chunk; a document that is too long for this is cut.

A random second segment comes from another document of the same chunk, so a chunk needs several. Without the cut, text
without blank lines would be a single document."""
Document = list[str]
"""One document: its paragraphs, or its sentences if the source has one sentence per line."""
PARAGRAPH_CHARACTERS = 64
"""Characters of the shortest paragraph that is compared between documents: shorter ones are often headings, which
recur."""


class TextSettings(NamedTuple):
    """How the text of a source is read."""

    undecodable: str
    """What happens to bytes that aren't UTF-8: "replace" or "refuse"."""
    chunk_bytes: int
    """Size of a chunk. A document that is longer than an eighth of it is cut between two lines."""
    language: str = "en"
    """Language code of the text, by which an error message suggests an encoding."""
    spans: str | None = None
    """Field with spans of the text. The documents then carry marks of these spans (bert_jax/text/text_spans.py)."""


class Corpus:
    """A source as text: documents of lines. Every pass yields the same documents in the same order.

    Records without text (null or only white space) are skipped.
    """

    def __init__(self, source: Source, settings: TextSettings, is_whole: bool = True):
        """`is_whole`: False for a portion or a sample of another corpus."""
        self.source, self._settings, self._is_whole = source, settings, is_whole
        self.begin_pass()

    @property
    def repairs(self) -> Counter[str]:
        """Kinds of damage that the current pass repaired, with their counts."""
        return self._pass.repairs

    @property
    def lines(self) -> int:
        """Lines with text that the current pass has read."""
        return self._pass.lines

    @property
    def position(self) -> float:
        """Amount that the current pass has read, in the unit of the source."""
        return self._pass.position

    def was_read(self, repairs: Counter[str], lines: int) -> None:
        """Ends a pass whose text, of `lines` lines, was read by other processes.

        Raises UsageError if too many of the lines weren't UTF-8.
        """
        self.begin_pass()
        self.repairs.update(repairs)
        self._pass.lines = lines
        self._end_pass()

    def portions(self) -> list["Corpus"]:
        """The portions of the corpus, in order, each a corpus that can be read alone."""
        portions = self.source.portions(self._settings.chunk_bytes)
        return [Corpus(portion, self._settings, is_whole=False) for portion in portions]

    def sampled(self, most_bytes: int) -> "Corpus":
        """A sample of about `most_bytes` if parts of this corpus can be read alone, otherwise the whole text.

        A pass over it counts undecodable lines without refusing them. If the sample consists of ranges of files,
        `position` is the amount of the source that was read.
        """
        return Corpus(self.source.sampled(most_bytes), self._settings, is_whole=False)

    def unmarked(self) -> "Corpus":
        """The same text without the marks of `data.spans`."""
        return Corpus(self.source, self._settings._replace(spans=None), self._is_whole)

    def documents(self) -> Iterator[Document]:
        """Starts a pass over the documents. No document is empty.

        Raises UsageError if the input is damaged, if a record lacks the field, if many lines aren't UTF-8, or, with
        `undecodable` "refuse", if any line isn't.
        """
        self.begin_pass()
        yield from self._documents(self.source)
        self._end_pass()

    def documents_of_portions(self) -> Iterator[tuple[int, Iterator[Document]]]:
        """Starts a pass; yields the number and the documents of each portion.

        The caller reads each portion to its end before taking the next. Raises UsageError as `documents` does.
        """
        self.begin_pass()
        for portion in self.source.portions(self._settings.chunk_bytes):
            yield portion.number, self._documents(portion)
        self._end_pass()

    def begin_pass(self) -> None:
        """Resets what the current pass has read and repaired."""
        replace, language = self._settings.undecodable == "replace", self._settings.language
        self._pass = Pass(None, replace, f"set {Setting('data.undecodable')} replace", language, self._is_whole)

    def _end_pass(self) -> None:
        self._pass.check("at the end of the source")
        if not self.source.has_ranges:
            self._pass.position = self.source.total

    def _documents(self, source: Source) -> Iterator[Document]:
        document: list[str] = []
        size = 0
        for line in source.document_lines(self._pass) or self._record_lines(source):
            if document and (not line or size >= self._settings.chunk_bytes // _DOCUMENTS_A_CHUNK):
                if line:
                    self.repairs["over-long documents cut"] += 1
                yield document
                document, size = [], 0
            if line:
                document.append(line)
                size += len(line.encode())
        if document:
            yield document

    def _record_lines(self, source: Source) -> Iterator[str]:
        """Yields the stripped lines of each record's text, and an empty line after it."""
        for record in source.records(self._pass):
            text = self._text(record)
            self._pass.text_bytes += len(text)
            parts = numbered_parts(io.BytesIO(text))
            lines = list(filter(None, self._pass.stripped(parts, f"{record.place}, {source.field!r}")))
            if not lines:
                self.repairs["records without text"] += 1
            self._pass.end_record()
            yield from lines
            yield ""

    def _text(self, record: Record) -> bytes:
        """The text of a record, with its spans; empty if the field is null."""
        text = record.value(self.source.field, "name another after #")
        if text is None:
            text = ""
        if self._settings.spans and isinstance(text, str):
            spans = record.value(self._settings.spans, f"name another by {Setting('data.spans')}")
            text = with_spans(text, spans, f"{record.place}: {self._settings.spans!r}", self.repairs)
        if isinstance(text, str):
            # A lone surrogate isn't valid UTF-8: pass it on, to be handled like other undecodable bytes.
            return text.encode(errors="surrogatepass")
        if not isinstance(text, bytes):
            raise UsageError(
                f"{record.place}: {self.source.field!r} is {json_kind(text)} and not a string; name another field "
                "after #"
            )
        return text


class Mixture:
    """The corpora of a run, read one after the other.

    `unit`, `total`, `position`, `repairs` and `content_hash` have the same meaning as in a single corpus.
    """

    def __init__(self, parts: Sequence[Corpus], resolved: Sequence[str] = ()):
        self.parts, self.resolved = list(parts), resolved
        """The sources, and the name of each as KIND:PLACE."""
        self.drops: Drops | None = None
        """What is dropped from the documents."""
        units = {part.source.unit for part in self.parts}
        if len(units) > 1 and all(unit.startswith("MB") for unit in units):
            units = {"MB compressed"}  # the unit of one source with files of both kinds
        self.unit = units.pop() if len(units) == 1 else "%"
        self._scales = [
            1.0 if self.unit != "%" else 100 / len(self.parts) / max(part.source.total, 1e-9) for part in self.parts
        ]

    @property
    def total(self) -> float:
        """Size of all parts. If the parts have different units, each counts as an equal share of 100%."""
        return sum(part.source.total * scale for part, scale in zip(self.parts, self._scales, strict=True))

    @property
    def position(self) -> float:
        """Amount that the current pass has read, in the unit of `total`."""
        return sum(part.position * scale for part, scale in zip(self.parts, self._scales, strict=True))

    @property
    def repairs(self) -> Counter[str]:
        """Kinds of damage that the current pass repaired in all parts, with their counts."""
        return sum((part.repairs for part in self.parts), Counter())

    @property
    def content_hash(self) -> str:
        """The hash of a single part, or of the hashes of several."""
        hashes = [part.source.content_hash for part in self.parts]
        return hashes[0] if len(hashes) == 1 else content_hash(hashes)

    def unmarked(self) -> "Mixture":
        """The same corpora without the marks of `data.spans`. Nothing is dropped."""
        return Mixture([part.unmarked() for part in self.parts], self.resolved)

    def whole_portions(self) -> Iterator[tuple[int, int, Iterator[Document]]]:
        """Yields each portion of all parts: the index of its source, its number, and all its documents.

        The caller reads each portion to its end before taking the next.
        """
        for part in self.parts:
            part.begin_pass()
        for source, part in enumerate(self.parts):
            for portion, documents in part.documents_of_portions():
                yield source, portion, documents

    def portions(self) -> Iterator[tuple[int, Iterator[Document]]]:
        """Yields the remaining documents of each portion, with the index of the portion's source.

        Dropped documents are left out. The caller reads each portion to its end before taking the next.
        """
        for source, portion, documents in self.whole_portions():
            if self.drops:
                documents = self.drops.remaining(documents, source, portion, self.parts[source])
            yield source, documents

    @property
    def has_portions(self) -> bool:
        """Whether all parts consist of files, so that other processes can read their portions."""
        return all(isinstance(part.source, FileSource) for part in self.parts)

    def files_portions(self) -> list[tuple[int, Corpus]]:
        """Each portion of all parts as a corpus, with the index of its source."""
        return [(source, portion) for source, part in enumerate(self.parts) for portion in part.portions()]

    def sourced_documents(self) -> Iterator[tuple[int, Document]]:
        """Yields all documents of all parts that aren't dropped, each with the index of its source."""
        for source, documents in self.portions():
            for document in documents:
                yield source, document

    def documents(self) -> Iterator[Document]:
        """Starts a pass over all documents of all parts."""
        return (document for _, document in self.sourced_documents())


def text_content(config: DataConfig) -> str | None:
    """The content hash of `config.source`, or None if a corpus is missing (only its prepared data was copied)."""
    try:
        return open_corpus(config).content_hash
    except UsageError:
        return None


def open_corpus(config: DataConfig) -> Mixture:
    """Opens the corpora in `config.source` and reads the first record of each.

    Raises UsageError if a source has an invalid name or is missing, if its first record lacks the field of the text, or
    if `config.spans` is set and no source is of the kind jsonl.
    """
    resolved = [*map(resolved_source, config.source)]
    parts = []
    for source, language in zip(resolved, config.languages, strict=True):
        spans = config.spans if source.startswith("jsonl:") else None
        settings = TextSettings(config.undecodable, config.chunk_bytes, language, spans)
        part = Corpus(open_source(source), settings)
        if not source.startswith(("text:", "python-docs")):
            next(part.documents(), None)  # raises if the first record lacks the field
        parts.append(part)
    if config.spans and not any(source.startswith("jsonl:") for source in resolved):
        raise UsageError(
            f"{Setting('data.spans', config.spans)} names a field of JSON lines, but {config.described} has no "
            "source of JSON lines; give text and spans as records, like jsonl:corpus/*.jsonl.zst#text, or leave "
            f"{Setting('data.spans')} out"
        )
    return Mixture(parts, resolved)
