"""Trains unigram and BPE models by sentencepiece."""

import io
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from sentencepiece import SentencePieceTrainer

from bert_jax.system.errors import UsageError
from bert_jax.text.cleaning import Cleaning, sentencepiece_rules
from bert_jax.text.sentencepiece import OWN_RULES, ModelProto, SentencePieceTokenizer, without_nul
from bert_jax.text.vocabulary import CLS, MASK, PAD, SEP, UNKNOWN, VocabularySizeError

MOST_CHARACTERS = 1 << 25
"""Characters of text above which word counts are scaled down: sentencepiece takes about 20 bytes a character."""
_SHRINKING = 0.6
"""Share of a unigram model's pieces that a pruning round keeps. The default, 0.75, takes a third longer and saves 0.4%
of the tokens of English."""
_LONGEST_WORD = 1000
"""Maximum characters of a word, of at most 4 bytes each; sentencepiece skips lines over 4,192 bytes."""
_THREADS = 4
"""The same on all machines, since the order of sums, and so the model, depends on it."""
_ERRORS_ALONE = 2
"""Log level of sentencepiece: errors only."""


def train_sentencepiece(
    texts: Iterable[str],
    size: int,
    cleaning: Cleaning,
    character_coverage: float,
    kind: str,
) -> SentencePieceTokenizer:
    """Trains a model of `size` pieces, special ones first, on `texts`; deterministic.

    `kind` is unigram or bpe. The rules of `cleaning` become part of the model, so every reader of the model cleans text
    in the same way. Memory: the distinct words, and at most a GB for sentencepiece. Raises UsageError if `size` is less
    than the alphabet or more than the text can give.
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
                character_coverage=character_coverage,
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
    """Counts words, split at white space; words over _LONGEST_WORD are cut."""
    counts = Counter[str]()
    for text in texts:
        counts.update(text.split())
    for word in [word for word in counts if len(word) > _LONGEST_WORD]:
        count = counts.pop(word)
        for begin in range(0, len(word), _LONGEST_WORD):
            counts[word[begin : begin + _LONGEST_WORD]] += count
    return counts


def _word_lines(counts: Counter[str]) -> Iterator[str]:
    """Yields sentencepiece's input: one line with word and count for each word."""
    share = min(1.0, MOST_CHARACTERS / max(1, sum(len(word) * count for word, count in counts.items())))
    for word, count in counts.items():
        yield f"{without_nul(word)}\t{max(1, round(count * share))}"


def _refusal(error: str, size: int) -> UsageError:
    """sentencepiece's error as one line with a remedy."""
    if few := re.search(r"value <= (\d+)", error):
        return VocabularySizeError.too_large(size, int(few[1]))
    if needed := re.search(r"required_chars\. \d+ vs (\d+)", error):
        return VocabularySizeError.too_small(size, int(needed[1]))
    return UsageError(f"sentencepiece can't train on this text ({' '.join(error.split())}); give more or other text")
