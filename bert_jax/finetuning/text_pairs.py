"""Pairs of texts that belong together, from the documents of a corpus."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from bert_jax.config.data import DataConfig
from bert_jax.config.task import TaskConfig
from bert_jax.config.wording import counted
from bert_jax.instances.held_out import document_hash
from bert_jax.records.corpus import Document, Mixture, open_corpus
from bert_jax.records.corpus_reading import read_corpus
from bert_jax.records.record import Record
from bert_jax.records.signatures import word_counts
from bert_jax.system.errors import Setting, UsageError, renamed
from bert_jax.system.progress import say
from bert_jax.system.reading import show
from bert_jax.text.segmentation import split_sentences
from bert_jax.text.tokenizer import Tokenizer

_MOST_PAIRS, _MOST_CHARACTERS = 1_000_000, 1 << 29
"""Pairs, and characters of their texts, at which the reading of a corpus ends: they are in memory."""
_MOST_HELD_OUT, _HELD_OUT_SHARE = 1000, 0.1
"""Most pairs that are held out, and their highest share of all pairs."""
_LARGEST = 1.5
"""Most pairs of held-out documents, as a multiple of those that are wanted."""
_TITLE_WORDS = 20
"""Most words of a title; in scripts without spaces each character is a word."""
_SAMPLE_CHARACTERS = 200_000
"""Characters at the beginning of a corpus from which the length of a piece is estimated."""
_FILL = 0.75
"""Size of the usual passage as a share of task.max_length, so that four of five are not cut."""
_NO_PAIRS = {
    "neighbours": f"no document has two passages; give longer documents or {Setting('task.pairs')} dropout",
    "title": "no document begins with a title of its own, a line of at most 20 words; give others or "
    f"{Setting('task.pairs')} neighbours",
    "dropout": "there is no text; give another corpus",
}
"""What is wrong with a corpus without pairs, and the remedy."""
_Pair = tuple[str, str]


class _Passages(NamedTuple):
    """The passages of a document: consecutive sentences, or its title and the passage after it."""

    number: int
    """The number of the document in the corpus, from 1."""
    hash: int
    texts: list[str]

    def neighbours(self) -> list[_Pair]:
        """The first and the second passage, the third and the fourth, and so on, without equal ones.

        No passage is in two pairs, because two such pairs in one batch would be each other's negatives.
        """
        return [pair for pair in zip(self.texts[::2], self.texts[1::2], strict=False) if pair[0] != pair[1]]

    def copies(self) -> list[_Pair]:
        """Each passage with itself."""
        return [(text, text) for text in self.texts]


def pair_records(config: TaskConfig, tokenizer: Tokenizer, repairs: Counter[str]) -> tuple[list[Record], list[Record]]:
    """Training pairs and held-out pairs of the corpus task.source: records with columns `query` and `positive`.

    Passages have about three quarters of task.max_length pieces. Pairs are held out if task.dev names no rows: at most
    1,000 and about a tenth of all. They are those of the documents with the smallest hashes, which pretraining holds
    out of the same corpus, too, or at the ends of documents that are too large for that. With task.pairs=dropout they
    are neighbouring passages: without dropout equal texts have equal vectors. `repairs` counts what is left out.
    Raises UsageError for a corpus that can't be read or has no pairs.
    """
    documents = _read(config, tokenizer, repairs)
    if config.pairs == "title":
        documents = _with_own_titles(documents, repairs)
    training, held_out = (documents, []) if config.dev else _separated(documents)
    learned = _records(config, training, _Passages.copies if config.pairs == "dropout" else _Passages.neighbours)
    if not learned:
        raise UsageError(f"{config.source}: {_NO_PAIRS[config.pairs]}")
    dev = _records(config, held_out, _Passages.neighbours)[:_MOST_HELD_OUT]
    texts = {text for record in dev for text in record.values.values()}
    apart = [record for record in learned if texts.isdisjoint(record.values.values())]
    repairs["pairs with a text that is held out left out"] += len(learned) - len(apart)
    if not apart:  # the corpus repeats itself: there is nothing to measure on
        apart, dev = learned, []
    measured = f", and {counted(len(dev), 'pairs')} held out to measure on" if dev else ""
    if not dev and not config.dev:
        measured = "; too few to hold any out: name rows to measure on by --task.dev"
    say(f"{config.source}: {counted(len(apart), 'pairs')} to learn from{measured}")
    return apart, dev


def _read(config: TaskConfig, tokenizer: Tokenizer, repairs: Counter[str]) -> list[_Passages]:
    """The passages of the documents that have enough of them, without copies of documents."""
    corpus = _opened(config)
    stream = corpus.documents()
    first = list(_until(stream, _SAMPLE_CHARACTERS))
    most = _characters(first, tokenizer, config.max_length)
    documents: list[_Passages] = []
    hashes: set[int] = set()
    pairs = characters = number = 0
    for number, document in enumerate(itertools.chain(first, stream), 1):
        hashed = document_hash(document)
        if hashed in hashes:
            repairs["copies of documents left out"] += 1
        elif texts := _texts(config, document, most, repairs):
            hashes.add(hashed)
            documents.append(_Passages(number, hashed, texts))
            pairs += len(texts) if config.pairs == "dropout" else len(texts) // 2
            characters += sum(map(len, texts))
        if pairs >= _MOST_PAIRS or characters >= _MOST_CHARACTERS:
            say(f"{config.source}: the first {number:,} documents are used, which have {pairs:,} pairs")
            break
    repairs.update(corpus.repairs)
    return documents


def _opened(config: TaskConfig) -> Mixture:
    """The corpus, after what it is taken for is shown. Raises UsageError that names task.source."""
    try:
        source, language = config.source or "", config.source_language
        data = DataConfig(source=(source,), language=language, layout=config.source_layout)
        corpus = open_corpus(data)
        show([read_corpus(corpus, data)])
        return corpus
    except UsageError as error:
        names = {"data.source": "task.source", "data.language": "task.source_language"}
        raise UsageError(renamed(error.message, names)) from None


def _until(documents: Iterator[Document], characters: int) -> Iterator[Document]:
    """Yields the first documents, with so many characters in all or a few more."""
    while characters > 0 and (document := next(documents, None)):
        characters -= sum(map(len, document))
        yield document


def _characters(documents: Sequence[Document], tokenizer: Tokenizer, max_length: int) -> int:
    """The usual number of characters of a text that fills _FILL of `max_length` pieces, two special ones included."""
    lines = [line for document in documents for line in document]
    pieces = sum(map(len, tokenizer.encode_batch(lines)))
    return max(round((_FILL * max_length - 2) * sum(map(len, lines)) / max(pieces, 1)), 1)


def _texts(config: TaskConfig, document: Document, most: int, repairs: Counter[str]) -> list[str]:
    """The passages of a document for task.pairs; none if it has too few, which `repairs` counts."""
    if config.pairs == "title":
        if len(document) < 2 or word_counts(document[:1])[0] > _TITLE_WORDS:
            repairs["documents without a title left out"] += 1
            return []
        return [document[0], *itertools.islice(_passages(_sentences(config, document[1:]), most), 1)]
    if config.pairs == "dropout":
        return list(_passages(_sentences(config, document), most))
    sentences = list(_sentences(config, document))
    size = sum(map(len, sentences))
    texts = list(_passages(sentences, size / (2 * max(math.ceil(size / (2 * most)), 1))))
    if len(texts) < 2:
        repairs["documents without two passages left out"] += 1
        return []
    return texts


def _sentences(config: TaskConfig, lines: Sequence[str]) -> Iterator[str]:
    if config.source_layout == "sentences":
        return iter(lines)
    return (sentence for line in lines for sentence in split_sentences(line, config.source_language[0]))


def _passages(sentences: Iterable[str], size: float) -> Iterator[str]:
    """Yields consecutive sentences together, about `size` characters and at least half of that: a heading alone says
    little. The rest of the text, if it is shorter, is left out unless it is all."""
    passage: list[str] = []
    filled, is_first = 0, True
    for sentence in sentences:
        if 2 * filled >= size and filled + len(sentence) / 2 > size:
            yield " ".join(passage)
            passage, filled, is_first = [], 0, False
        passage.append(sentence)
        filled += len(sentence)
    if passage and (is_first or 2 * filled >= size):
        yield " ".join(passage)


def _with_own_titles(documents: list[_Passages], repairs: Counter[str]) -> list[_Passages]:
    """The documents whose title no other has: one like "Chapter 1" says nothing of the text."""
    titles = Counter(each.texts[0].casefold() for each in documents)
    own = [each for each in documents if titles[each.texts[0].casefold()] == 1]
    repairs["documents with the title of another left out"] += len(documents) - len(own)
    return own


def _separated(documents: list[_Passages]) -> tuple[list[_Passages], list[_Passages]]:
    """The documents to learn from and those that are held out: the ones with the smallest hashes that aren't too large.

    If all are too large, their beginnings and their ends.
    """
    counts = [len(each.neighbours()) for each in documents]
    most = min(_MOST_HELD_OUT, _HELD_OUT_SHARE * sum(counts))
    chosen: set[int] = set()
    pairs = 0
    for count, each in sorted(zip(counts, documents, strict=True), key=lambda pair: pair[1].hash):
        if pairs < most and count > 0 and pairs + count <= _LARGEST * most:
            chosen.add(each.number)
            pairs += count
    if chosen:
        learned = [each for each in documents if each.number not in chosen]
        return learned, [each for each in documents if each.number in chosen]
    ends = [2 * int(count * _HELD_OUT_SHARE) for count in counts]
    begun = [
        each._replace(texts=each.texts[: len(each.texts) - end]) for each, end in zip(documents, ends, strict=True)
    ]
    return begun, [
        each._replace(texts=each.texts[len(each.texts) - end :]) for each, end in zip(documents, ends, strict=True)
    ]


def _records(
    config: TaskConfig, documents: Sequence[_Passages], pairs: Callable[[_Passages], list[_Pair]]
) -> list[Record]:
    return [
        Record(f"{config.source}, document {each.number}", {"query": query, "positive": positive})
        for each in documents
        for query, positive in pairs(each)
    ]
