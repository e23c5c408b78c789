"""Trains vocabularies: WordPiece and byte-level BPE by Hugging Face's library, unigram and BPE by sentencepiece.

Training is deterministic.
"""

import io
import re
import sys
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from sentencepiece import SentencePieceTrainer
from tokenizers import Tokenizer as Pipeline
from tokenizers import models, normalizers, trainers

from bert_jax.config.data import MIN_BYTE_BPE_SIZE
from bert_jax.system.errors import Setting, UsageError
from bert_jax.text.cleaning import ZERO_WIDTH_SPACE, Cleaning, sentencepiece_rules
from bert_jax.text.pipeline import Tokenizer
from bert_jax.text.scripts import sets_no_spaces
from bert_jax.text.sentencepiece import OWN_RULES, ModelProto, SentencePieceTokenizer, without_nul
from bert_jax.text.spelling import BYTES
from bert_jax.text.tokenizer_json import PipelineKind, byte_level, finished
from bert_jax.text.vocabulary import (
    CLS,
    CONTINUATION,
    MASK,
    PAD,
    SEP,
    SPECIAL_PIECES,
    UNKNOWN,
    Vocabulary,
    VocabularySizeError,
    special_names,
)
from bert_jax.text.wordpiece import ALONE, MAX_WORD_CHARACTERS, WordPieceTokenizer, wordpiece_pipeline

FAIRSEQ_PIECES = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
"""The first pieces of a trained byte-level BPE. The first four have RoBERTa's numbers."""
_LEAST_COUNT = 2
"""In Hugging Face's trainers, the fewest occurrences of a pair of pieces that is merged."""
_UNSPACED = re.compile(rf"[^\s{ZERO_WIDTH_SPACE}]{{{MAX_WORD_CHARACTERS + 1},}}")
_LONG_WORD = re.compile(rf"[^\s{ZERO_WIDTH_SPACE}{ALONE}]{{{MAX_WORD_CHARACTERS + 1},}}")
_HISTOGRAM_TEXTS = 10_000
"""Number of texts whose characters are counted at once."""
_MOST_CHARACTERS = 1 << 25
"""Characters of text above which word counts are scaled down: sentencepiece takes about 20 bytes a character."""
_SHRINKING = 0.6
"""Share of a unigram model's pieces that a pruning round keeps. The library's default, 0.75, takes a third longer and
saves 0.4% of the tokens of English text."""
_LONGEST_WORD = 1000
"""Most characters of a word, each of at most 4 bytes: sentencepiece skips lines over 4,192 bytes."""
_THREADS = 4
"""Number of threads. It is equal on all machines, since the order of sums, and so the model, depends on it."""
_ERRORS_ALONE = 2
"""Log level of sentencepiece: errors only."""


def train_tokenizer(
    texts: Sequence[str], kind: PipelineKind, size: int, cleaning: Cleaning, character_coverage: float = 1.0
) -> Tokenizer:
    """Trains a vocabulary of `size` pieces on `texts`. Special pieces come first.

    `character_coverage`: share of the text's characters that are pieces. A byte-level BPE, of kind byte_bpe, covers
    all. Raises UsageError if `size` is less than the alphabet or more than the text can give.
    """
    if kind == "byte_bpe":
        return _byte_level_bpe(texts, size, cleaning)
    if kind == "wordpiece":
        return _wordpiece(texts, size, cleaning, character_coverage)
    return _sentencepiece(texts, kind, size, cleaning, character_coverage)


def share_of_long_words(texts: Sequence[str]) -> float:
    """Share of the characters in words over MAX_WORD_CHARACTERS, in a sample of `texts`."""
    sample = "\n".join(texts[:: len(texts) // _HISTOGRAM_TEXTS + 1])
    return sum(map(len, _LONG_WORD.findall(sample))) / max(len(sample), 1)


def _wordpiece(texts: Sequence[str], size: int, cleaning: Cleaning, coverage: float) -> WordPieceTokenizer:
    pipeline = wordpiece_pipeline({}, cleaning)
    alphabet = _alphabet(texts, pipeline, cleaning, coverage)
    # The trainer numbers ##characters in the order of a hash map and breaks ties by number, so two trainings on one
    # text differ. The trainer numbers special pieces first, in the given order.
    continuing = (CONTINUATION + character for character in alphabet if _joins(character, pipeline))
    fixed = [*SPECIAL_PIECES, *alphabet, *continuing]
    if len(fixed) > size:
        raise VocabularySizeError.too_small(size, len(fixed))
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=_LEAST_COUNT,
        special_tokens=fixed,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        continuing_subword_prefix=CONTINUATION,
        show_progress=False,
    )
    without_long_words = (_UNSPACED.sub(_stretches, text) for text in texts)
    pipeline.train_from_iterator(without_long_words, trainer, length=len(texts))
    ids = pipeline.get_vocab(with_added_tokens=False)
    if len(ids) < size:
        raise VocabularySizeError.too_large(size, len(ids))
    return WordPieceTokenizer(Vocabulary(sorted(ids, key=ids.__getitem__)), cleaning)


def _stretches(unspaced: re.Match[str]) -> str:
    """The replacement of a long stretch without spaces: its parts in a script that sets no spaces, otherwise " ".

    In a script with spaces such a stretch is an address or data. Long stretches would be slow: the time of training is
    quadratic in the length of a word.
    """
    text, most = unspaced[0], MAX_WORD_CHARACTERS
    parts = (text[at : at + most] for at in range(0, len(text), most))
    return " ".join(parts) if any(map(sets_no_spaces, text)) else " "


def _alphabet(texts: Sequence[str], pipeline: Pipeline, cleaning: Cleaning, coverage: float) -> list[str]:
    """The most frequent characters that make up a share `coverage` of the normalised text, in code point order."""
    written = np.zeros(sys.maxunicode + 1, np.int64)
    for begin in range(0, len(texts), _HISTOGRAM_TEXTS):
        block = "\n".join(texts[begin : begin + _HISTOGRAM_TEXTS])
        if cleaning.form:
            block = unicodedata.normalize(cleaning.form, block)
        points = np.frombuffer(block.encode("utf-32-le"), np.uint32)
        written[: points.max(initial=0) + 1] += np.bincount(points)
    counts = np.zeros_like(written)
    for point in np.flatnonzero(written):  # composed text is cleaned character by character
        for character in pipeline.normalizer.normalize_str(chr(point)):
            counts[ord(character)] += written[point]
    ordered = [point for point in np.flatnonzero(counts) if not chr(point).isspace()]
    ordered.sort(key=lambda point: -counts[point])
    covered = np.cumsum(counts[ordered])
    enough = np.searchsorted(covered, coverage * covered[-1]) + 1 if ordered else 0
    return [chr(point) for point in sorted(ordered[:enough])]


def _joins(character: str, pipeline: Pipeline) -> bool:
    """Whether `character` can continue a word. Punctuation and ideographs always stand alone."""
    return len(pipeline.pre_tokenizer.pre_tokenize_str(pipeline.normalizer.normalize_str("a" + character))) == 1


def _byte_level_bpe(texts: Sequence[str], size: int, cleaning: Cleaning) -> Tokenizer:
    """Trains a byte-level BPE. Its first pieces are FAIRSEQ_PIECES and the 256 bytes, so no text has an unknown piece.

    A text's first word is written as if a space were before it. Sentences are encoded one by one, so a word has the
    same piece at the beginning of a sentence as elsewhere.
    """
    if size < MIN_BYTE_BPE_SIZE:
        raise UsageError(
            f"{Setting('vocabulary.size')}={size:,} is less than the {MIN_BYTE_BPE_SIZE} special pieces and bytes; "
            "raise it"
        )
    steps = cleaning.composing() if cleaning.strip_accents or cleaning.form == "NFKC" or cleaning.turkish else []
    steps += [normalizers.Lowercase()] if cleaning.lowercase else []
    normalizer = normalizers.Sequence(steps) if steps else None
    pipeline = byte_level(models.BPE(), leading_space=True, normalizer=normalizer)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=_LEAST_COUNT,
        special_tokens=list(FAIRSEQ_PIECES),
        initial_alphabet=sorted(BYTES),
        show_progress=False,
    )
    pipeline.train_from_iterator(texts, trainer, length=len(texts))
    count = pipeline.get_vocab_size()
    if count < size:
        raise VocabularySizeError.too_large(size, count)
    without_added = byte_level(pipeline.model, leading_space=True, normalizer=normalizer)
    return Tokenizer(finished(without_added, special_names(FAIRSEQ_PIECES), "the vocabulary"))


def _sentencepiece(
    texts: Iterable[str], kind: PipelineKind, size: int, cleaning: Cleaning, coverage: float
) -> SentencePieceTokenizer:
    """Trains a sentencepiece model. It contains the rules of `cleaning`, so all its readers clean text alike.

    Memory holds the distinct words, and at most one GB for sentencepiece.
    """
    trained = io.BytesIO()
    with tempfile.TemporaryDirectory() as directory:
        rules = Path(directory) / "rules.tsv"
        rules.write_text(sentencepiece_rules(cleaning), "ascii")
        try:
            SentencePieceTrainer.train(
                sentence_iterator=_word_lines(count_words(texts)),
                input_format="tsv",
                model_writer=trained,
                model_type=kind,
                vocab_size=size,
                character_coverage=coverage,
                normalization_rule_tsv=str(rules),
                shrinking_factor=_SHRINKING,
                num_threads=_THREADS,
                minloglevel=_ERRORS_ALONE,
                pad_id=0,
                unk_id=1,
                bos_id=2,
                eos_id=3,
                pad_piece=PAD,
                unk_piece=UNKNOWN,
                bos_piece=CLS,
                eos_piece=SEP,
                control_symbols=[MASK],
            )
        except RuntimeError as error:
            raise _refusal(str(error), size) from None
    model = ModelProto.FromString(trained.getvalue())
    model.normalizer_spec.name = OWN_RULES
    model.normalizer_spec.normalization_rule_tsv = ""  # the name of a temporary file
    return SentencePieceTokenizer(model)


def count_words(texts: Iterable[str]) -> Counter[str]:
    """Counts words, split at white space. Words over _LONGEST_WORD characters are cut."""
    counts = Counter[str]()
    for text in texts:
        counts.update(text.split())
    for word in [word for word in counts if len(word) > _LONGEST_WORD]:
        count = counts.pop(word)
        for begin in range(0, len(word), _LONGEST_WORD):
            counts[word[begin : begin + _LONGEST_WORD]] += count
    return counts


def _word_lines(counts: Counter[str]) -> Iterator[str]:
    """Yields sentencepiece's input: one line for each word, with the word and its count."""
    share = min(1.0, _MOST_CHARACTERS / max(1, sum(len(word) * count for word, count in counts.items())))
    for word, count in counts.items():
        yield f"{without_nul(word)}\t{max(1, round(count * share))}"


def _refusal(error: str, size: int) -> UsageError:
    """Sentencepiece's error as one line with a remedy."""
    if few := re.search(r"value <= (\d+)", error):
        return VocabularySizeError.too_large(size, int(few[1]))
    if needed := re.search(r"required_chars\. \d+ vs (\d+)", error):
        return VocabularySizeError.too_small(size, int(needed[1]))
    return UsageError(f"sentencepiece can't train on this text ({' '.join(error.split())}); give more or other text")
