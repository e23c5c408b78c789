"""Trains unigram and BPE models by sentencepiece."""

import io
import re
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from sentencepiece import SentencePieceTrainer

from bert_jax.system.errors import UsageError
from bert_jax.text.sentencepiece import ModelProto, SentencePieceTokenizer, without_nul
from bert_jax.text.vocabulary import BOUNDARY, CLS, MASK, PAD, SEP, UNKNOWN

MOST_CHARACTERS = 1 << 25
"""Characters of text above which word counts are scaled down: sentencepiece takes about 20 bytes a character."""
_SHRINKING = 0.6
"""Share of a unigram model's pieces that a pruning round keeps. The default, 0.75, takes a third longer and saves 0.4%
of the tokens of English."""
_LONGEST_WORD = 1000
"""Maximum characters of a word, of at most 4 bytes each; sentencepiece skips lines over 4,192 bytes."""
_THREADS = 4
"""The same on all machines, since the order of sums, and so the model, depends on it."""
_CHARACTERS = (
    range(1, 0x3400),
    range(0xA000, 0xD800),
    range(0xF900, 0x17000),
    range(0x1AFF0, 0x20000),
    range(0x2F800, 0x2FA20),
    range(0xE0000, 0xE0200),
)
"""Code points that cleaning may change: all but ideographs, surrogates and private-use ones."""
_ERRORS_ALONE = 2
"""Log level of sentencepiece: errors only."""


def train_sentencepiece(
    texts: Iterable[str],
    size: int,
    *,
    kind: str,
    lowercase: bool,
    strip_accents: bool | None,
    character_coverage: float,
) -> SentencePieceTokenizer:
    """Trains a model of `size` pieces, special ones first, on `texts`; deterministic.

    `kind` is unigram or bpe. Text is cleaned as for WordPiece, by rules that become part of the model
    (`cleaning_rules`), so every reader of the model cleans text in the same way. Memory: the distinct words, and at
    most a GB for sentencepiece. Raises UsageError if `size` is less than the alphabet or more than the text can give.
    """
    trained = io.BytesIO()
    with tempfile.TemporaryDirectory() as directory:
        rules = Path(directory) / "rules.tsv"
        rules.write_text(cleaning_rules(lowercase, lowercase if strip_accents is None else strip_accents), "ascii")
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
            raise UsageError(_refusal(str(error), size)) from None
    model = ModelProto.FromString(trained.getvalue())
    model.normalizer_spec.name = "bert"
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


@cache
def cleaning_rules(lowercase: bool, strip_accents: bool) -> str:
    """BERT's cleaning of text as sentencepiece's rules; each line has code points, a tab, and their replacement.

    White space becomes a space, control and format characters are removed, case and accents are treated as set. Unlike
    BERT, the result is composed (NFC), so that a letter has one form however it was written, and Korean syllables stay
    whole.
    """
    rules = {}
    for point in (point for characters in _CHARACTERS for point in characters):
        character = chr(point)
        clean = _clean(character, lowercase, strip_accents)
        for written in {character, unicodedata.normalize("NFD", character), _one_step_decomposed(character)}:
            if written != clean:
                rules[written] = clean
    return "".join(f"{_hexadecimal(written)}\t{_hexadecimal(clean)}\n" for written, clean in sorted(rules.items()))


def _clean(character: str, lowercase: bool, strip_accents: bool) -> str:
    if character.isspace() or character == BOUNDARY:
        return " "
    if unicodedata.category(character) in ("Cc", "Cf") or character == "\ufffd":
        return ""
    text = character.lower() if lowercase else character
    if strip_accents:
        text = "".join(part for part in unicodedata.normalize("NFD", text) if unicodedata.category(part) != "Mn")
    return unicodedata.normalize("NFC", text)


def _one_step_decomposed(character: str) -> str:
    """The letter with only its last accent decomposed, as Vietnamese is often written."""
    parts = unicodedata.decomposition(character)
    return "".join(chr(int(part, 16)) for part in parts.split()) if parts and parts[0] != "<" else character


def _hexadecimal(text: str) -> str:
    return " ".join(f"{ord(character):x}" for character in text)


def _refusal(error: str, size: int) -> str:
    """sentencepiece's error message as one line with a remedy."""
    if few := re.search(r"value <= (\d+)", error):
        return (
            f"vocabulary.size={size:,} is more than the text can give; set --vocabulary.size {few[1]} or less, or give "
            "more text"
        )
    if needed := re.search(r"required_chars\. \d+ vs (\d+)", error):
        return (
            f"vocabulary.size={size:,} is less than the {int(needed[1]):,} pieces that the text's characters need; "
            "raise it or lower --vocabulary.character-coverage"
        )
    return f"sentencepiece can't train on this text ({' '.join(error.split())}); give more or other text"
