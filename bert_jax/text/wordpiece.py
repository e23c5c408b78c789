"""WordPiece: the original's tokenizer (tokenization.py), and its training."""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Bool
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError
from bert_jax.text.tokenizer_settings import WordPieceSettings, read_settings, write_settings
from bert_jax.text.vocabulary import CONTINUATION, MASK, SPECIAL_PIECES, UNKNOWN, PieceSpan, Vocabulary

MAX_WORD_CHARACTERS = 200
"""A longer word is [UNK] whole."""
_LONG_WORD = re.compile(rf"\S{{{MAX_WORD_CHARACTERS + 1},}}")
_ALONE = r"!-/:-@\[-`{-~\u4e00-\u9fff"
_CUT = re.compile(rf"[{_ALONE}]|[^{_ALONE}]+")
"""Cuts at some of what always stands alone, ASCII punctuation and the ideographs; not at white space other than
spaces: what is a control character to the tokenizer joins its neighbours."""
_HISTOGRAM_CHARACTERS = 1 << 20
MANY_CAPITALS = 0.02
"""A vocabulary with a larger share of pieces with capitals keeps case. Published cased ones have 0.16 and 0.29; the
Chinese one and the uncased have none but two of their special pieces."""
_FEW_PIECES = 1000
"""Nothing is concluded from the letters of a smaller vocabulary."""


class WordPieceTokenizer:
    """Text to piece ids: clean, split at white space, punctuation and ideographs, then greedy longest match."""

    kind = "wordpiece"
    file_name = "vocab.txt"
    cuts = (lambda text: text.split(" "), _CUT.findall)
    """Ways to cut text, from coarse to fine, that change no piece: its ids are those of its parts in their order."""

    def __init__(self, vocabulary: Vocabulary, lowercase: bool = True, strip_accents: bool | None = None):
        """`strip_accents` follows `lowercase` where None, as in the original.

        Raises UsageError where the vocabulary was plainly made with the other casing.
        """
        if contradiction := _contradiction(vocabulary, lowercase):
            raise UsageError(contradiction)
        self.vocabulary = vocabulary
        self.lowercase = lowercase
        self.strip_accents = lowercase if strip_accents is None else strip_accents
        self._tokenizer = _pipeline(
            models.WordPiece(vocabulary.ids, unk_token=UNKNOWN, max_input_chars_per_word=MAX_WORD_CHARACTERS),
            self.lowercase,
            self.strip_accents,
        )

    def encode(self, text: str) -> list[int]:
        """Ids of the pieces of `text`, without special pieces; such as occur in the text are ordinary characters."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each text; uses several threads unless TOKENIZERS_PARALLELISM=false."""
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def encode_masked(self, text: str) -> list[int]:
        """`encode`, but each [MASK] in `text` is the mask and stands for a piece there."""
        first, *others = text.split(MASK)
        return self.encode(first) + [
            number for part in others for number in (self.vocabulary.mask_id, *self.encode(part))
        ]

    def encode_spans(self, text: str) -> list[PieceSpan]:
        """The pieces of `text`, each with where in it they stand."""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return [PieceSpan(number, *offsets) for number, offsets in zip(encoding.ids, encoding.offsets)]

    def decode(self, ids: Iterable[int]) -> str:
        """Pieces put together to words, separated by spaces."""
        return " ".join(self.vocabulary.pieces[number] for number in ids).replace(" " + CONTINUATION, "")

    @cached_property
    def starts_word(self) -> Bool[np.ndarray, " V"]:
        """For each piece whether a word begins with it: all but the ##pieces."""
        return np.array([not piece.startswith(CONTINUATION) for piece in self.vocabulary.pieces])

    def piece_text(self, number: int) -> str:
        """The characters of piece `number`, without the ## of a continuation."""
        return self.vocabulary.pieces[number].removeprefix(CONTINUATION)

    def encode_piece(self, piece: str) -> list[int]:
        """Ids of the pieces that make up `piece`; a ##piece is taken for a word by itself."""
        return self.encode(piece.removeprefix(CONTINUATION))

    def piece_of_word(self, word: str) -> str | None:
        """`word` as it is cleaned; None where that is no single word: empty, split, or longer than words may be."""
        words = self._tokenizer.pre_tokenizer.pre_tokenize_str(self._tokenizer.normalizer.normalize_str(word))
        return words[0][0] if len(words) == 1 and len(words[0][0]) <= MAX_WORD_CHARACTERS else None

    def with_pieces(self, pieces: Sequence[str]) -> "WordPieceTokenizer":
        """A tokenizer with `pieces` after its own: the longest match finds them."""
        return WordPieceTokenizer(Vocabulary([*self.vocabulary.pieces, *pieces]), self.lowercase, self.strip_accents)

    def save(self, directory: Place) -> None:
        """Writes vocab.txt and, last, tokenizer_config.json."""
        directory.mkdir(parents=True, exist_ok=True)
        self.write_vocabulary(directory / self.file_name)
        settings = WordPieceSettings(kind="wordpiece", lowercase=self.lowercase, strip_accents=self.strip_accents)
        write_settings(directory, settings)

    def as_huggingface(self) -> Tokenizer:
        """A Tokenizer of Hugging Face's library that gives the same ids, without special pieces."""
        return Tokenizer.from_str(self._tokenizer.to_str())

    def write_vocabulary(self, path: Place) -> None:
        """Writes a vocab.txt."""
        self.vocabulary.write(path)

    @classmethod
    def load(cls, directory: Path) -> "WordPieceTokenizer":
        """Reads what `save` wrote. Raises UsageError where it is damaged."""
        settings = read_settings(directory, WordPieceSettings)
        return cls(Vocabulary.read(directory / cls.file_name), settings.lowercase, settings.strip_accents)


def train_wordpiece(
    texts: Sequence[str],
    size: int,
    *,
    lowercase: bool,
    strip_accents: bool | None,
    character_coverage: float,
) -> Vocabulary:
    """A vocabulary of `size` pieces learned from `texts`, which work in parallel; the same for the same texts.

    Raises UsageError where the alphabet alone is larger than `size` or the text can't give so many pieces.
    """
    tokenizer = _pipeline(
        models.WordPiece(unk_token=UNKNOWN), lowercase, lowercase if strip_accents is None else strip_accents
    )
    alphabet = _alphabet(texts, tokenizer, character_coverage)
    # The trainer numbers ##characters in the order of a hash map and breaks ties by number, so two trainings on one
    # text differ. Given as special pieces they are numbered first, in this order.
    fixed = [
        *SPECIAL_PIECES,
        *alphabet,
        *(CONTINUATION + character for character in alphabet if _joins(character, tokenizer)),
    ]
    if len(fixed) > size:
        raise UsageError(
            f"vocabulary.size={size:,} is less than the {len(fixed):,} pieces that the text's characters need; "
            "raise it or lower --vocabulary.character-coverage"
        )
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=fixed,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        continuing_subword_prefix=CONTINUATION,
        show_progress=False,
    )
    tokenizer.train_from_iterator(map(_without_long_words, texts), trainer, length=len(texts))
    ids = tokenizer.get_vocab(with_added_tokens=False)
    if len(ids) < size:
        raise UsageError(
            f"vocabulary.size={size:,} is more than the text can give: {len(ids):,} pieces occur at least twice; "
            f"set --vocabulary.size {len(ids)} or less, or give more text"
        )
    return Vocabulary(sorted(ids, key=ids.get))


def _contradiction(vocabulary: Vocabulary, lowercase: bool) -> str | None:
    """Why the vocabulary can't be one of this casing; None where it may be. The pieces would never be found."""
    if len(vocabulary) < _FEW_PIECES:
        return None
    if lowercase and vocabulary.share_of_capitals > MANY_CAPITALS:
        return (
            f"{vocabulary.share_of_capitals:.0%} of the vocabulary's pieces have capitals, which lower-casing takes "
            "from text; set lowercase to false"
        )
    if not lowercase and not vocabulary.share_of_capitals and vocabulary.share_of_cased > 0.5:
        return "no piece of the vocabulary has a capital, which text has; set lowercase to true"
    return None


def _pipeline(model: models.Model, lowercase: bool, strip_accents: bool) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=strip_accents, lowercase=lowercase
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def _alphabet(texts: Sequence[str], tokenizer: Tokenizer, coverage: float) -> list[str]:
    """The commonest characters of the normalised text that make up a `coverage` share of it, in code order."""
    written = np.zeros(sys.maxunicode + 1, np.int64)
    for block in _blocks(texts, _HISTOGRAM_CHARACTERS):
        points = np.frombuffer(block.encode("utf-32-le"), np.uint32)
        written[: points.max(initial=0) + 1] += np.bincount(points)
    counts = np.zeros_like(written)
    for point in np.flatnonzero(written):  # each character is normalised by itself, whatever stands round it
        for character in tokenizer.normalizer.normalize_str(chr(point)):
            counts[ord(character)] += written[point]
    seen = [point for point in np.flatnonzero(counts) if not chr(point).isspace()]
    seen.sort(key=lambda point: -counts[point])
    covered = np.cumsum(counts[seen])
    enough = np.searchsorted(covered, coverage * covered[-1]) + 1 if seen else 0
    return [chr(point) for point in sorted(seen[:enough])]


def _without_long_words(text: str) -> str:
    """Over-long words are [UNK] anyway, and the trainer's time grows with the square of a word's length."""
    return _LONG_WORD.sub(" ", text)


def _blocks(texts: Sequence[str], characters: int) -> Iterator[str]:
    """`texts` joined to blocks of at least so many characters, so that each costs one histogram."""
    block, size = [], 0
    for text in texts:
        block.append(text)
        size += len(text)
        if size >= characters:
            yield "\n".join(block)
            block, size = [], 0
    yield "\n".join(block)


def _joins(character: str, tokenizer: Tokenizer) -> bool:
    """Whether `character` can continue a word: punctuation and ideographs always stand alone."""
    return len(tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str("a" + character))) == 1
