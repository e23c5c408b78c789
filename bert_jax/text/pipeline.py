"""Tokenizers that are pipelines of Hugging Face's library, as a tokenizer.json describes them: byte-level BPE as
RoBERTa has it, models whose pieces mark spaces, as XLM-R and ALBERT have them, and WordPiece with added tokens."""

import copy
import itertools
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool
from tokenizers import Tokenizer

from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError
from bert_jax.system.files import write_text
from bert_jax.text.byte_alphabet import BYTES
from bert_jax.text.scripts import is_punctuation, sets_no_spaces
from bert_jax.text.sentencepiece import BOUNDARY, starts_word, visible
from bert_jax.text.tokenizer_json import (
    added_token,
    built,
    check,
    kind_of,
    ordinary,
    read_json,
    separators,
    with_added,
)
from bert_jax.text.tokenizer_settings import TokenizerSettings, write_settings
from bert_jax.text.vocabulary import CONTINUATION, MASK, PieceSpan, Vocabulary, special_names


class PipelineTokenizer:
    """Text to piece ids by the steps that a tokenizer.json names.

    Ids are those of Hugging Face's library, and so of transformers, except that special pieces in a text are ordinary
    characters.
    """

    file_name = "tokenizer.json"
    cuts = ()  # the library remembers words itself: encoding each one once is 15% faster, not ten times as elsewhere

    def __init__(self, file: dict[str, Any], name: str = "tokenizer.json"):
        """`file`: the contents of a tokenizer.json, read from `name`.

        Raises UsageError if it isn't of a kind that is read here, if the library refuses it, or if a special piece is
        missing.
        """
        self._file, self._name = file, name
        self.kind = kind_of(file, name)
        whole = built(file, name)
        check(file, whole, name)
        ids = whole.get_vocab(with_added_tokens=True)
        pieces = sorted(ids, key=ids.__getitem__)
        if [ids[piece] for piece in pieces] != list(range(len(pieces))):
            raise UsageError(f"{name}: its pieces aren't numbered from 0 to {len(pieces) - 1:,}, each number once")
        special = special_names(ids)
        self.vocabulary = Vocabulary(pieces, name, special, blanks="", separators=separators(file, special[3]))
        self._tokenizer = ordinary(file, name, special)
        added = {one["id"] for one in file.get("added_tokens") or []}
        self.added = frozenset(added - set(self.vocabulary.special_ids))
        """Ids of the added tokens, which are found in a text, without the special pieces, which are not."""

    def encode(self, text: str) -> list[int]:
        """Ids of the pieces of `text`, without special pieces. "<s>" in a text is ordinary characters."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each text; uses several threads unless TOKENIZERS_PARALLELISM=false."""
        return [one.ids for one in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    def encode_masked(self, text: str) -> list[int]:
        """Encodes `text` with each [MASK], or the mask piece as this vocabulary writes it, as the mask piece.

        Where the tokenizer's file says so, as RoBERTa's does, the piece takes the space before it in.
        """
        own = self.vocabulary.pieces[self.vocabulary.mask_id]
        return self._masking.encode(text.replace(MASK, own), add_special_tokens=False).ids

    @cached_property
    def _masking(self) -> Tokenizer:
        """The pipeline that finds the mask piece in a text, and no other special piece."""
        special = [self.vocabulary.pieces[number] for number in self.vocabulary.special_ids]
        return ordinary(self._file, self._name, special, found=special[-1])

    def encode_spans(self, text: str) -> list[PieceSpan]:
        """The pieces of `text` with their positions in it. Pieces of one character have the whole character's."""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        spans = []
        for number, (begin, end) in zip(encoding.ids, encoding.offsets):
            if number in self.added:  # with the spaces around it, if it takes those in
                begin, end = visible(text, begin, end)
            elif self.kind == "metaspace":
                begin, end = visible(text, begin, begin if self._spellings[number] == BOUNDARY else end)
            elif self.kind == "byte_bpe":  # it has pieces for control characters too
                space = end - begin - len(text[begin:end].lstrip())
                begin = min(begin + space, end)
            spans.append(PieceSpan(number, begin, end))
        return spans

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the pieces: words, separated by spaces."""
        special, parts = set(self.vocabulary.special_ids), list[str]()
        for apart, run in itertools.groupby(ids, special.__contains__):
            numbers = list(run)
            pieces = [self.vocabulary.pieces[number] for number in numbers]
            if apart or self.kind == "wordpiece":
                parts.append(" ".join(pieces).replace(f" {CONTINUATION}", ""))
            elif self.kind == "byte_bpe":
                text = b"".join(map(self._bytes, numbers)).decode("utf-8", "replace")
                parts.append(text.removeprefix(" "))
            else:
                parts.append("".join(pieces).replace(BOUNDARY, " ").removeprefix(" "))
        return " ".join(parts)

    def _bytes(self, number: int) -> bytes:
        piece = self.vocabulary.pieces[number]
        return piece.encode() if number in self.added else _bytes(piece)

    @cached_property
    def _spellings(self) -> tuple[str, ...]:
        """Each piece as text, with a space at its beginning as BOUNDARY; of WordPiece as the vocabulary writes it."""
        pieces = self.vocabulary.pieces
        if self.kind != "byte_bpe":
            return pieces
        return tuple(piece if number in self.added else _spelled(piece) for number, piece in enumerate(pieces))

    @cached_property
    def starts_word(self) -> Bool[np.ndarray, " V"]:
        """For each piece, whether it starts a word: as in sentencepiece's models or WordPiece. Added tokens do."""
        if self.kind == "wordpiece":
            starts = np.array([not piece.startswith(CONTINUATION) for piece in self.vocabulary.pieces])
        else:
            starts = np.array([*map(starts_word, self._spellings)])
        starts[[*self.vocabulary.special_ids, *self.added]] = True
        return starts

    def piece_text(self, number: int) -> str:
        """The characters of piece `number` without the ## of a continuation or the space at its beginning, which is
        kept where it is alone. Bytes that are no whole character, and control characters, are escaped."""
        if self.kind == "wordpiece":
            return self.vocabulary.pieces[number].removeprefix(CONTINUATION)
        return self._spellings[number].removeprefix(BOUNDARY) or BOUNDARY

    def spelled(self, number: int) -> str:
        """Piece `number` for people to read: as the vocabulary writes it, but with the characters that its bytes are,
        and BOUNDARY for a space at their beginning."""
        return self._spellings[number]

    def encode_piece(self, piece: str) -> list[int]:
        """Ids of the pieces that `piece`, written as in the vocabulary, is split into."""
        if self.kind == "wordpiece":
            return self.encode(piece.removeprefix(CONTINUATION))
        return [token.id for token in self._tokenizer.model.tokenize(piece)]

    def piece_of_word(self, word: str) -> str | None:
        """The piece for the whole of `word`, with the space before it if its script uses spaces and this isn't a
        WordPiece; None if that is empty, several words, or contains punctuation."""
        text = word if self.kind == "wordpiece" or sets_no_spaces(word[:1] or " ") else f" {word}"
        if self._tokenizer.normalizer:
            text = self._tokenizer.normalizer.normalize_str(text)
        words = self._tokenizer.pre_tokenizer.pre_tokenize_str(text)
        if len(words) != 1 or any(map(is_punctuation, word)) or not word.strip():
            return None
        return words[0][0]

    def with_pieces(self, pieces: Sequence[str]) -> "PipelineTokenizer":
        """A tokenizer with `pieces` added after its own; each encodes its word as a single piece.

        In a BPE a word that is a piece is then looked up before merges are tried. After added tokens, a WordPiece's
        are added tokens too, which are single words. Raises UsageError for a model with scores.
        """
        model, count = self._file["model"], len(self.vocabulary)
        if self.kind == "wordpiece" and count > len(model["vocab"]):
            added = [
                added_token(piece, number, single_word=True, normalized=True)
                for number, piece in enumerate(pieces, count)
            ]
            return self.with_added(added)
        if self.kind != "wordpiece" and model["type"] != "BPE":
            raise UsageError(
                f"{self._name} can't be given more pieces, since its pieces have scores; extend the sentencepiece "
                ".model that they come from"
            )
        file = copy.deepcopy(self._file)
        # Added tokens get the numbers after the model's, so those have to be the model's own first.
        all_pieces = [*self.vocabulary.pieces, *pieces]
        file["model"]["vocab"] = {piece: number for number, piece in enumerate(all_pieces)}
        if self.kind == "byte_bpe" or self.kind == "metaspace":
            file["model"]["ignore_merges"] = True
        return PipelineTokenizer(file, self._name)

    def with_added(self, tokens: Sequence[dict[str, Any]]) -> "PipelineTokenizer":
        """A tokenizer with the added tokens of `tokenizer_json.added_token`, numbered on from its last piece."""
        return PipelineTokenizer(with_added(self._file, tokens), self._name)

    def save(self, directory: Place) -> None:
        """Writes tokenizer.json and, last, tokenizer_config.json."""
        directory.mkdir(parents=True, exist_ok=True)
        self.write_vocabulary(directory / self.file_name)
        write_settings(directory, TokenizerSettings(kind=self.kind))

    def as_huggingface(self) -> Tokenizer:
        """The Tokenizer of Hugging Face's library, with its special pieces and where it adds them."""
        return built(self._file, self._name)

    def write_vocabulary(self, path: Place) -> None:
        """Writes a tokenizer.json."""
        write_text(path, self.as_huggingface().to_str(pretty=True))

    @classmethod
    def load(cls, directory: Path) -> "PipelineTokenizer":
        """Reads the files of `save`. Raises UsageError if they are damaged."""
        return cls.read(directory / cls.file_name)

    @classmethod
    def read(cls, path: Path) -> "PipelineTokenizer":
        """Reads a tokenizer.json. Raises UsageError if it is damaged or of a kind that isn't read here."""
        return cls(read_json(path), str(path))


def _bytes(piece: str) -> bytes:
    """The bytes that a piece stands for; an added piece with other characters stands for itself."""
    numbers = [BYTES.get(character, -1) for character in piece]
    return piece.encode() if -1 in numbers else bytes(numbers)


def _spelled(piece: str) -> str:
    text = _bytes(piece).decode("utf-8", "backslashreplace")
    space, text = (BOUNDARY, text[1:]) if text[:1] == " " else ("", text)
    return space + "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
