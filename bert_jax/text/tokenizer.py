"""The interface of all tokenizers, and loading one from a path."""

import json
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import tokenizers
from jaxtyping import Bool
from tokenizers import AddedToken, processors

from bert_jax.system.bucket import Place, place_of
from bert_jax.system.copies import fetched
from bert_jax.system.errors import UsageError
from bert_jax.text.byte_level_bpe import read_pipeline
from bert_jax.text.pipeline import PipelineTokenizer
from bert_jax.text.sentencepiece import SentencePieceTokenizer
from bert_jax.text.tokenizer_settings import FILE_NAME, TokenizerSettings, read_settings
from bert_jax.text.vocabulary import PieceSpan, Vocabulary
from bert_jax.text.wordpiece import WordPieceTokenizer

_KINDS = {
    "wordpiece": WordPieceTokenizer,
    "unigram": SentencePieceTokenizer,
    "bpe": SentencePieceTokenizer,
    "byte_bpe": PipelineTokenizer,
    "metaspace": PipelineTokenizer,
}


@runtime_checkable
class Tokenizer(Protocol):
    """Text to piece ids and back; V pieces. One interface for WordPiece, sentencepiece's models, and
    pipelines of Hugging Face's library."""

    @property
    def kind(self) -> str:
        """Kind in tokenizer_config.json: wordpiece, unigram, bpe (both sentencepiece's), byte_bpe or metaspace."""

    file_name: str
    """Name of the vocabulary's file in a tokenizer directory."""
    vocabulary: Vocabulary

    @property
    def cuts(self) -> Sequence[Callable[[Iterable[str]], list[str]]]:
        """Functions that cut texts into parts, from coarse to fine, with "\\n" after the parts of each text: its ids
        are the concatenated ids of its parts."""

    def encode(self, text: str) -> list[int]:
        """Ids of the pieces of `text`, without special pieces. "[CLS]" in a text is ordinary characters."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each text; uses several threads unless TOKENIZERS_PARALLELISM=false."""

    def encode_masked(self, text: str) -> list[int]:
        """Encodes `text` with each [MASK] as the mask piece."""

    def encode_spans(self, text: str) -> list[PieceSpan]:
        """The pieces of `text` with their positions in it."""

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the pieces: words, separated by spaces."""

    @property
    def starts_word(self) -> Bool[np.ndarray, " V"]:
        """For each piece, whether it starts a word."""

    def piece_text(self, number: int) -> str:
        """The characters of piece `number`, without the mark of a word's start or continuation."""

    def spelled(self, number: int) -> str:
        """Piece `number` for people to read: as the vocabulary writes it, but where it writes bytes, their characters,
        with BOUNDARY for a space at their beginning."""

    def encode_piece(self, piece: str) -> list[int]:
        """Ids of the pieces that `piece`, written as in the vocabulary, is split into."""

    def piece_of_word(self, word: str) -> str | None:
        """The piece for the whole of `word`, whether the vocabulary has it or not; None if it isn't a single word."""

    def with_pieces(self, pieces: Sequence[str]) -> "Tokenizer":
        """A tokenizer with new `pieces` (from `piece_of_word`) after its own; each encodes its word as one piece."""

    def save(self, directory: Place) -> None:
        """Writes the vocabulary's file and, last, tokenizer_config.json."""

    def as_huggingface(self) -> tokenizers.Tokenizer:
        """A Tokenizer of Hugging Face's library that gives the same ids, without special pieces."""

    def write_vocabulary(self, path: Place) -> None:
        """Writes the vocabulary's file alone: a vocab.txt, a sentencepiece model or a tokenizer.json."""


def load_tokenizer(path: str | os.PathLike, lowercase: bool = True, strip_accents: bool | None = None) -> Tokenizer:
    """Loads a tokenizer from a run, a tokenizer directory, or a vocabulary's file, also in a bucket.

    Files are a vocab.txt, a sentencepiece .model, a tokenizer.json, or a vocab.json that its merges.txt is beside.
    `lowercase` and `strip_accents` apply to a vocab.txt; the others contain these settings. Raises UsageError if there
    is no tokenizer at `path`.
    """
    path = place_of(path)
    directory = tokenizer_directory(path)
    if directory:
        directory = fetched(directory)
        kind = _KINDS[read_settings(directory, TokenizerSettings).kind]
        return (PipelineTokenizer if (directory / PipelineTokenizer.file_name).is_file() else kind).load(directory)
    if path.is_dir():
        raise UsageError(f"{path} holds no tokenizer; give a run, its tokenizer directory, a vocab.txt or a .model")
    return read_vocabulary_file(path, lowercase, strip_accents)


def read_vocabulary_file(path: Place, lowercase: bool, strip_accents: bool | None) -> Tokenizer:
    """Loads a tokenizer by the suffix: a sentencepiece .model, a tokenizer.json or vocab.json, or else a vocab.txt.

    Raises UsageError.
    """
    if path.suffix == ".json":
        beside = path.with_name("merges.txt")
        if beside.is_file():
            fetched(beside)
        return read_pipeline(fetched(path))
    path = fetched(path)
    if path.suffix == ".model":
        return SentencePieceTokenizer.read(path)
    return WordPieceTokenizer(Vocabulary.read(path), lowercase, strip_accents)


def pipeline_of(tokenizer: Tokenizer) -> PipelineTokenizer:
    """The same tokenizer as a tokenizer.json, which sets [CLS] and [SEP] round one text or two.

    Raises UsageError for a sentencepiece model that the library can't express.
    """
    if isinstance(tokenizer, PipelineTokenizer):
        return tokenizer
    vocabulary, theirs = tokenizer.vocabulary, tokenizer.as_huggingface()
    names = [vocabulary.pieces[number] for number in vocabulary.special_ids]
    _, _, cls, sep, _ = names
    theirs.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B:1 {sep}:1",
        special_tokens=[(cls, vocabulary.cls_id), (sep, vocabulary.sep_id)],
    )
    theirs.add_special_tokens([AddedToken(name, normalized=False) for name in names])
    return PipelineTokenizer(json.loads(theirs.to_str()), tokenizer.file_name)


def tokenizer_directory(path: Place) -> Place | None:
    """The tokenizer directory: `path` itself or `path`/tokenizer; None if neither is one."""
    return next((folder for folder in (path, path / "tokenizer") if (folder / FILE_NAME).is_file()), None)
