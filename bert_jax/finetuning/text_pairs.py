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
from bert_jax.system.errors import Setting, UsageError
from bert_jax.system.progress import say
from bert_jax.system.reading import show
from bert_jax.text.segmentation import split_sentences
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.word_pieces import joined_words

_MOST_PAIRS, _MOST_CHARACTERS = 1_000_000, 1 << 29
"""A corpus is read up to this number of pairs or of characters in them, because all pairs are kept in memory."""
_MOST_HELD_OUT, _HELD_OUT_SHARE = 1000, 0.1
"""Most pairs that are held out; their highest share of all pairs."""
_LARGEST = 1.5
"""Most held-out pairs, as a multiple of the wanted number, which whole documents may exceed."""
_TITLE_WORDS = 20
"""Most words of a title. In scripts without spaces each character is a word."""
_SAMPLE_CHARACTERS = 200_000
"""Characters at the beginning of a corpus from which the mean length of a piece is estimated."""
_FILL = 0.75
"""Size of a usual passage as a share of task.max_length. Four of five passages then aren't cut."""
_NO_PAIRS = {
    "neighbours": f"no document has two passages; give longer documents or {Setting('task.pairs')} dropout",
    "title": "no document begins with a title of its own, a line of at most 20 words; give others or "
    f"{Setting('task.pairs')} neighbours",
    "dropout": "there is no text; give another corpus",
}
"""What is wrong with a corpus that gives no pairs, and the remedy."""
_Pair = tuple[str, str]


class _Passages(NamedTuple):
    """The passages of a document: runs of sentences, or the title and the passage after it."""

    number: int
    """The number of the document in the corpus, from 1."""
    hash: int
    texts: list[str]

    def neighbours(self) -> list[_Pair]:
        """Pairs of neighbours: the first and second passage, the third and fourth, and so on.

        Equal passages make no pair. No passage is in two pairs, because two such pairs in one batch would be each
        other's negatives.
        """
        return [pair for pair in zip(self.texts[::2], self.texts[1::2], strict=False) if pair[0] != pair[1]]

    def copies(self) -> list[_Pair]:
        """Pairs of each passage with itself."""
        return [(text, text) for text in self.texts]


def pair_records(config: TaskConfig, tokenizer: Tokenizer, repairs: Counter[str]) -> tuple[list[Record], list[Record]]:
    """Training pairs and held-out pairs of the corpus task.source: records with columns `query` and `positive`.

    Passages have about three quarters of task.max_length pieces. If task.dev names no rows, pairs are held out: at most
    1,000, and about a tenth of all. They come from the documents with the smallest hashes; pretraining on the same
    corpus holds out such documents, too. If all documents are too large, the pairs at their ends are held out. With
    task.pairs=dropout the held-out pairs are neighbouring passages, since equal texts have equal vectors without
    dropout. `repairs` counts what is left out. Raises UsageError for a corpus that can't be read or has no pairs.
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
    if not apart:  # the corpus repeats itself, so there is nothing to measure on
        apart, dev = learned, []
    measured = f", and {counted(len(dev), 'pairs')} held out to measure on" if dev else ""
    if not dev and not config.dev:
        measured = "; too few to hold any out: name rows to measure on by --task.dev"
    say(f"{config.source}: {counted(len(apart), 'pairs')} to learn from{measured}")
    return apart, dev


def _read(config: TaskConfig, tokenizer: Tokenizer, repairs: Counter[str]) -> list[_Passages]:
    """The passages of the documents that have enough for a pair. Copies of documents are left out."""
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
    """Opens the corpus, and prints how its text was understood. A UsageError names task.source, not data.source."""
    try:
        source, language = config.source or "", config.source_language
        data = DataConfig(source=(source,), language=language, layout=config.source_layout)
        corpus = open_corpus(data)
        show([read_corpus(corpus, data)])
        return corpus
    except UsageError as error:
        message = str(error).replace(Setting("data.source"), Setting("task.source"))
        raise UsageError(message.replace(Setting("data.language"), Setting("task.source_language"))) from None


def _until(documents: Iterator[Document], characters: int) -> Iterator[Document]:
    """Yields the first documents, until they have `characters` characters in all."""
    while characters > 0 and (document := next(documents, None)):
        characters -= sum(map(len, document))
        yield document


def _characters(documents: Sequence[Document], tokenizer: Tokenizer, max_length: int) -> int:
    """Number of characters of a usual text with _FILL times `max_length` pieces, two special ones included."""
    lines = [line for document in documents for line in document]
    pieces = sum(map(len, tokenizer.encode_batch(lines)))
    return max(round((_FILL * max_length - 2) * sum(map(len, lines)) / max(pieces, 1)), 1)


def _texts(config: TaskConfig, document: Document, most: int, repairs: Counter[str]) -> list[str]:
    """The passages of a document for task.pairs.

    If there are too few, the list is empty, and `repairs` counts the document.
    """
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
    """Yields passages of consecutive sentences, each of about `size` characters and at least half of that.

    A shorter passage, such as a heading alone, would say little. So a shorter rest is left out, unless it is the whole
    text.
    """
    passage: list[str] = []
    filled, is_first = 0, True
    for sentence in sentences:
        if 2 * filled >= size and filled + len(sentence) / 2 > size:
            yield joined_words(passage)[0]
            passage, filled, is_first = [], 0, False
        passage.append(sentence)
        filled += len(sentence)
    if passage and (is_first or 2 * filled >= size):
        yield joined_words(passage)[0]


def _with_own_titles(documents: list[_Passages], repairs: Counter[str]) -> list[_Passages]:
    """The documents whose title no other has, since one like "Chapter 1" says nothing about the text."""
    titles = Counter(each.texts[0].casefold() for each in documents)
    own = [each for each in documents if titles[each.texts[0].casefold()] == 1]
    repairs["documents with the title of another left out"] += len(documents) - len(own)
    return own


def _separated(documents: list[_Passages]) -> tuple[list[_Passages], list[_Passages]]:
    """The documents to learn from, and the held-out documents.

    The documents with the smallest hashes that aren't too large are held out. If all are too large, each document is
    divided: training takes its beginning, and its end is held out.
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
    ends = [len(each.texts) - 2 * int(count * _HELD_OUT_SHARE) for count, each in zip(counts, documents, strict=True)]
    learned = [each._replace(texts=each.texts[:end]) for each, end in zip(documents, ends, strict=True)]
    return learned, [each._replace(texts=each.texts[end:]) for each, end in zip(documents, ends, strict=True)]


def _records(
    config: TaskConfig, documents: Sequence[_Passages], pairs: Callable[[_Passages], list[_Pair]]
) -> list[Record]:
    return [
        Record(f"{config.source}, document {each.number}", {"query": query, "positive": positive})
        for each in documents
        for query, positive in pairs(each)
    ]
