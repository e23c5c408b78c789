"""What every tokenizer can do, and finding the one that a path holds."""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import tokenizers
from jaxtyping import Bool

from bert_jax.system.bucket import Place, place_of
from bert_jax.system.copies import fetched
from bert_jax.system.errors import UsageError
from bert_jax.text.sentencepiece import SentencePieceTokenizer
from bert_jax.text.tokenizer_settings import FILE_NAME, TokenizerSettings, read_settings
from bert_jax.text.vocabulary import PieceSpan, Vocabulary
from bert_jax.text.wordpiece import WordPieceTokenizer

_KINDS = {"wordpiece": WordPieceTokenizer, "unigram": SentencePieceTokenizer, "bpe": SentencePieceTokenizer}


@runtime_checkable
class Tokenizer(Protocol):
    """Text to piece ids and back; V pieces. One interface for WordPiece and for sentencepiece's models."""

    kind: str
    """wordpiece, unigram, bpe: what tokenizer_config.json calls it."""
    file_name: str
    """Of the vocabulary's file in a tokenizer directory."""
    vocabulary: Vocabulary
    cuts: Sequence[Callable[[str], list[str]]]
    """Ways to cut text, from coarse to fine, that change no piece: its ids are those of its parts in their order."""

    def encode(self, text: str) -> list[int]:
        """Ids of the pieces of `text`, without special pieces; such as occur in the text are ordinary characters."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each text; uses several threads unless TOKENIZERS_PARALLELISM=false."""

    def encode_masked(self, text: str) -> list[int]:
        """`encode`, but each [MASK] in `text` is the mask and stands for a piece there."""

    def encode_spans(self, text: str) -> list[PieceSpan]:
        """The pieces of `text`, each with where in it they stand."""

    def decode(self, ids: Iterable[int]) -> str:
        """Pieces put together to words, separated by spaces."""

    @property
    def starts_word(self) -> Bool[np.ndarray, " V"]:
        """For each piece whether a word begins with it."""

    def piece_text(self, number: int) -> str:
        """The characters of piece `number`, without what marks it as a word's beginning or continuation."""

    def encode_piece(self, piece: str) -> list[int]:
        """Ids of the pieces that make up `piece`, which is written as a vocabulary of this kind writes it."""

    def piece_of_word(self, word: str) -> str | None:
        """The piece that stands for all of `word`, whether the vocabulary has it or not; None for no single word."""

    def with_pieces(self, pieces: Sequence[str]) -> "Tokenizer":
        """A tokenizer with `pieces` (from `piece_of_word`, all new) after its own; each encodes its word whole."""

    def save(self, directory: Place) -> None:
        """Writes the vocabulary's file and, last, tokenizer_config.json."""

    def as_huggingface(self) -> tokenizers.Tokenizer:
        """A Tokenizer of Hugging Face's library that gives the same ids, without special pieces."""

    def write_vocabulary(self, path: Place) -> None:
        """Writes the vocabulary's file alone: a vocab.txt or a sentencepiece model."""


def load_tokenizer(path: str | os.PathLike, lowercase: bool = True, strip_accents: bool | None = None) -> Tokenizer:
    """The tokenizer of a run, of a tokenizer directory, or of a file: a vocab.txt or a sentencepiece .model.

    `lowercase` and `strip_accents` are for a vocab.txt; all others bring their own. Raises UsageError where there is
    none at `path`, which may be in a bucket.
    """
    path = place_of(path)
    directory = tokenizer_directory(path)
    if directory:
        directory = fetched(directory)
        return _KINDS[read_settings(directory, TokenizerSettings).kind].load(directory)
    if path.is_dir():
        raise UsageError(f"{path} holds no tokenizer; give a run, its tokenizer directory, a vocab.txt or a .model")
    return read_vocabulary_file(path, lowercase, strip_accents)


def read_vocabulary_file(path: Place, lowercase: bool, strip_accents: bool | None) -> Tokenizer:
    """The tokenizer over a vocab.txt, or of a sentencepiece model, known by its suffix `.model`. Raises UsageError."""
    path = fetched(path)
    if path.suffix == ".model":
        return SentencePieceTokenizer.read(path)
    return WordPieceTokenizer(Vocabulary.read(path), lowercase, strip_accents)


def tokenizer_directory(path: Place) -> Place | None:
    """The tokenizer directory that `path` is or has in it; None where there is none."""
    return next((folder for folder in (path, path / "tokenizer") if (folder / FILE_NAME).is_file()), None)
