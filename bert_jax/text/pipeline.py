"""The tokenizer: maps text to piece ids by the steps of a tokenizer.json, which Hugging Face's `tokenizers` runs."""

import copy
import itertools
import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Annotated, Self

import numpy as np
import tokenizers
from jaxtyping import Bool
from pydantic import Field

from bert_jax.config.model import ClassToken
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError
from bert_jax.system.files import write_json, write_text
from bert_jax.system.json_file import JsonObject, Shape
from bert_jax.text.library_calls import library_method
from bert_jax.text.scripts import TextCut, is_punctuation, visible
from bert_jax.text.spelling import ByteSpelling, PieceSpelling, WordPieceSpelling
from bert_jax.text.tokenizer_json import (
    PipelineKind,
    added_token,
    built,
    check_keys,
    finished,
    frame_of,
    frame_template,
    ordinary,
    patterns_of,
    pipeline_kind,
    with_unigram_pieces,
)
from bert_jax.text.vocabulary import MASK, Frame, PieceSpan, Vocabulary, special_names

TOKENIZER_CONFIG = "tokenizer_config.json"
"""Name of the settings file in a tokenizer directory. Other programs use the same name."""
TOKENIZER_FORMAT = 1
"""Version of the format of our tokenizer directories."""
_SPELLINGS: dict[PipelineKind, type[PieceSpelling]] = {"wordpiece": WordPieceSpelling, "byte_bpe": ByteSpelling}
"""The spellings of the kinds whose pieces don't begin a word with a BOUNDARY."""


class TokenizerSettings(Shape):
    """The contents of tokenizer_config.json in our tokenizer directories. Other programs' files have no `kind`."""

    format: Annotated[int, Field(ge=1)] = TOKENIZER_FORMAT
    kind: PipelineKind
    class_token: ClassToken = "first"
    """Place of [CLS] around texts. Only written if it is last."""


class Tokenizer:
    """Maps text to piece ids and back. V is the number of pieces.

    The ids are those of Hugging Face's library, and so of transformers, with one exception: special pieces in a text,
    such as [CLS], are ordinary characters, except for `encode_special`.
    """

    file_name = "tokenizer.json"
    """Name of the vocabulary's file in a tokenizer directory."""
    cuts: Sequence[TextCut] = ()
    """Cuts from coarse to fine; the first is at blanks. The ids of a text are the concatenated ids of its parts. BPE
    models have none: the library remembers the words that it has encoded, so cutting would save only 15%."""
    added: frozenset[int] = frozenset()
    """Ids of the added tokens without the special pieces. Added tokens are found in a text before it is split."""
    patterns: Sequence[str] = ()
    """The regular expressions of a tokenizer.json that are applied to texts."""

    def __init__(self, file: JsonObject, name: str = "tokenizer.json", pipeline: tokenizers.Tokenizer | None = None):
        """`file`: the contents of a tokenizer.json, read from `name`. `pipeline`: the library's, if it wrote `file`.

        Raises UsageError if its kind isn't read here, if the library refuses it, or if a special piece is missing.
        """
        self._contents, self.name = file, name
        self.kind: PipelineKind = pipeline_kind(file, name)
        """Kind in tokenizer_config.json: wordpiece; unigram or bpe, both of sentencepiece; byte_bpe; or metaspace."""
        if pipeline is None:
            pipeline = built(file, name)
            check_keys(file, pipeline, name)
        self._normalizer = pipeline.normalizer
        self.patterns = patterns_of([file.get("normalizer"), file.get("pre_tokenizer")])
        ids = pipeline.get_vocab(with_added_tokens=True)
        pieces = sorted(ids, key=ids.__getitem__)
        if [ids[piece] for piece in pieces] != list(range(len(pieces))):
            raise UsageError(f"{name}: its pieces aren't numbered from 0 to {len(pieces) - 1:,}, each number once")
        own, listed = len(file["model"]["vocab"]), file.get("added_tokens") or []
        marked = {one["content"]: one["id"] < own for one in listed if one.get("special")}
        special = special_names(ids, marked, of_bytes=self.kind == "byte_bpe")
        frame = frame_of(file.get("post_processor"), ids, name)
        self.vocabulary = Vocabulary(pieces, name, special, blanks="", frame=frame)
        added = {token["id"] for token in file.get("added_tokens") or []}
        self.added = frozenset(added - {*self.vocabulary.special_ids})

    @cached_property
    def sets_leading_blank(self) -> bool:
        """Whether the first word of a text is encoded as a word after a blank."""
        return self.encode("a") == self.encode(" a")

    @cached_property
    def spelling(self) -> PieceSpelling:
        """How the pieces are spelled."""
        return _SPELLINGS.get(self.kind, PieceSpelling)({self.vocabulary.pieces[number] for number in self.added})

    @cached_property
    def _encoder(self) -> tokenizers.Tokenizer:
        """The pipeline in which special pieces in a text are ordinary characters."""
        return ordinary(self.contents, self.name, self.vocabulary.special)

    @property
    def impossible_remark(self) -> str | None:
        """A remark on pieces that no cleaned text has; None if they are few, or if this kind of tokenizer isn't checked
        for them."""
        return None

    @property
    def contents(self) -> JsonObject:
        """The contents of a tokenizer.json."""
        return self._contents

    @library_method
    def encode(self, text: str) -> list[int]:
        """Ids of the pieces of `text`, without special pieces. "[CLS]" or "<s>" in a text is ordinary characters."""
        return self._encoder.encode(text, add_special_tokens=False).ids

    @library_method
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each text; uses several threads unless TOKENIZERS_PARALLELISM=false."""
        return [encoding.ids for encoding in self._encoder.encode_batch_fast(list(texts), add_special_tokens=False)]

    @library_method
    def encode_special(self, text: str) -> list[int]:
        """Encodes `text` with the special pieces in it as themselves, and [MASK] as this vocabulary's mask piece.

        If the tokenizer's file says so, as RoBERTa's does, the mask piece includes the space before it.
        """
        text = text.replace(MASK, self.vocabulary.special[-1])
        return self._special_encoder.encode(text, add_special_tokens=False).ids

    @cached_property
    def _special_encoder(self) -> tokenizers.Tokenizer:
        """The pipeline that recognizes the special pieces in a text."""
        return ordinary(self.contents, self.name, self.vocabulary.special, finds_special=True)

    @library_method
    def cleaned(self, text: str) -> str:
        """`text` as it is after cleaning and before it is split into words."""
        return self._normalizer.normalize_str(text) if self._normalizer else text

    @library_method
    def encode_spans(self, text: str) -> list[PieceSpan]:
        """The pieces of `text` with their positions in it.

        Pieces that share a character all cover its position. A piece that is only the mark of a word's beginning has an
        empty span.
        """
        spans = []
        for number, begin, end in self._offsets(text):
            if number in self.added:  # with the spaces around it, if the added token includes them
                begin, end = visible(text, begin, end)
            else:
                begin, end = self.spelling.span(self.vocabulary.pieces[number], text, begin, end)
            spans.append(PieceSpan(number, begin, end))
        return spans

    def unknown_characters(self, texts: Sequence[str], ids: Sequence[Sequence[int]]) -> list[int]:
        """The number of characters behind unknown pieces in each text. `ids` has the pieces of each text."""
        unknown, counts = self.vocabulary.unknown_id, [0] * len(texts)
        for number in (number for number, pieces in enumerate(ids) if unknown in pieces):
            spans = self.encode_spans(texts[number])
            counts[number] = sum(span.end - span.begin for span in spans if span.id == unknown)
        return counts

    def _offsets(self, text: str) -> Iterable[tuple[int, int, int]]:
        """Yields the id of each piece of `text`, with begin and end of its characters as the library counts them."""
        encoding = self._encoder.encode(text, add_special_tokens=False)
        return ((number, *offsets) for number, offsets in zip(encoding.ids, encoding.offsets, strict=True))

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the pieces: words, separated by spaces."""
        parts = list[str]()
        for special, run in itertools.groupby(ids, self.vocabulary.special_ids.__contains__):
            pieces = [self.vocabulary.pieces[number] for number in run]
            parts += pieces if special else [self.spelling.joined(pieces)]
        return self.spelling.with_special(parts)

    def text_bytes(self, number: int) -> bytes:
        """The UTF-8 bytes that piece `number` adds to a text, with a space where it begins a word; none if special.

        The bytes may be only a part of a character.
        """
        is_special = number in self.vocabulary.special_ids
        return b"" if is_special else self.spelling.text_bytes(self.vocabulary.pieces[number])

    @cached_property
    def starts_word(self) -> Bool[np.ndarray, " V"]:
        """For each piece, whether it starts a word.

        Special pieces and added tokens do. In a WordPiece all pieces but the ##pieces do. In other vocabularies three
        kinds do: pieces that begin with the boundary, punctuation, and pieces of scripts without spaces. In such
        scripts each piece counts as a word. A letter after punctuation without a space doesn't start a word, since its
        piece is the same as within a word.
        """
        starts = np.array([*map(self.spelling.starts_word, self.vocabulary.pieces)], bool)
        starts[[*self.vocabulary.special_ids, *self.added]] = True
        return starts

    def piece_text(self, number: int) -> str:
        """The characters of piece `number`, without the ## of a continuation or the boundary at its beginning.

        A boundary by itself is kept. Control characters, and bytes that don't make a character, are escaped.
        """
        return self.spelling.letters(self.vocabulary.pieces[number])

    def spelled(self, number: int) -> str:
        """Piece `number` for people to read.

        It is spelled as in the vocabulary, except in a byte-level BPE: there its bytes are decoded, and a space at the
        beginning becomes BOUNDARY.
        """
        return self.spelling.readable(self.vocabulary.pieces[number])

    @library_method
    def encode_piece(self, piece: str) -> list[int]:
        """Ids of the pieces that `piece`, written as in the vocabulary, is split into."""
        if self.kind == "wordpiece":
            return self.encode(self.spelling.letters(piece))
        return [token.id for token in self._encoder.model.tokenize(piece)]

    @library_method
    def piece_of_word(self, word: str) -> str | None:
        """The piece for the whole of `word`, whether the vocabulary has it or not.

        The piece includes the space before the word if the word's script uses spaces and this isn't a WordPiece. It is
        None if the cleaned word is empty, is several words, contains punctuation, or is too long.
        """
        text = self.spelling.in_text(word)
        if self._encoder.normalizer:
            text = self._encoder.normalizer.normalize_str(text)
        words = self._encoder.pre_tokenizer.pre_tokenize_str(text)
        if len(words) != 1 or not word.strip():
            return None
        if self.kind == "wordpiece":
            return words[0][0] if len(words[0][0]) <= self._encoder.model.max_input_chars_per_word else None
        return None if any(map(is_punctuation, word)) else words[0][0]

    def with_pieces(self, pieces: Sequence[str]) -> "Tokenizer":
        """A tokenizer with new `pieces` (from `piece_of_word`) after its own; each encodes its word as one piece.

        In a BPE, a word that is a piece is then encoded without merges. In a unigram model a new piece is slightly more
        probable than the pieces that it replaces (`with_unigram_pieces`). If a WordPiece has added tokens, new pieces
        become added tokens, too, which match single words only.
        """
        model, count = self.contents["model"], len(self.vocabulary)
        if self.kind == "wordpiece" and count > len(model["vocab"]):
            return self.with_added(
                added_token(piece, number, single_word=True, normalized=True)
                for number, piece in enumerate(pieces, count)
            )
        file = copy.deepcopy(self.contents)
        # Added tokens are numbered after the model's pieces, so all earlier pieces must belong to the model first.
        if model.get("type") == "Unigram":
            earlier = self.vocabulary.pieces[len(model["vocab"]) :]
            file["model"]["vocab"] = with_unigram_pieces(model["vocab"], earlier, pieces)
            return Tokenizer(file, self.name)
        file["model"]["vocab"] = {piece: number for number, piece in enumerate([*self.vocabulary.pieces, *pieces])}
        if self.kind != "wordpiece":
            file["model"]["ignore_merges"] = True
        return Tokenizer(file, self.name)

    def with_added(self, tokens: Iterable[JsonObject]) -> "Tokenizer":
        """A tokenizer.json with added `tokens` (from `tokenizer_json.added_token`), numbered after its last piece.

        New tokens replace added tokens with the same text.
        """
        file = self.as_pipeline().contents
        by_text = {token["content"]: token for token in (*(file.get("added_tokens") or []), *tokens)}
        added = sorted(by_text.values(), key=lambda token: token["id"])
        return Tokenizer(file | {"added_tokens": added}, self.name)

    def as_pipeline(self) -> "Tokenizer":
        """The same tokenizer as a tokenizer.json, which sets [CLS] and [SEP] around one text or two.

        Raises UsageError for a sentencepiece model that the library can't express.
        """
        if self.file_name == Tokenizer.file_name:
            return self
        special, class_token = self.vocabulary.special, self.vocabulary.class_token
        return Tokenizer(finished(self.as_huggingface(), special, self.name, class_token), self.file_name)

    def with_class_token(self, place: ClassToken) -> Self:
        """Returns this tokenizer with [CLS] at `place`. If [CLS] moves, one separator stands between the texts of a
        pair.

        Raises UsageError for special tokens around texts that are neither BERT's, RoBERTa's nor XLNet's.
        """
        vocabulary = self.vocabulary
        _ = vocabulary.separators
        return self if vocabulary.class_token == place else self._with_frame(place, 1)

    def with_separators(self, count: int) -> "Tokenizer":
        """Returns this tokenizer with `count` separators between the texts of a pair. With two, as in RoBERTa, both
        texts are in segment 0; only a tokenizer.json can say that.

        Raises UsageError for special tokens around texts that are neither BERT's, RoBERTa's nor XLNet's.
        """
        if self.vocabulary.separators == count:
            return self
        return self.as_pipeline()._with_frame(self.vocabulary.class_token, count)

    def _with_frame(self, place: ClassToken, separators: int) -> Self:
        vocabulary = self.vocabulary
        changed, cls, sep = copy.copy(self), vocabulary.cls_id, vocabulary.sep_id
        changed.vocabulary = copy.copy(vocabulary)
        changed.vocabulary.frame = Frame.of_separators(cls, sep, separators, place)
        if self.file_name == Tokenizer.file_name:  # whose file contains the frame
            pipeline, pieces = self.as_huggingface(), vocabulary.pieces
            pipeline.post_processor = frame_template((pieces[cls], cls), (pieces[sep], sep), place, separators)
            changed._contents = self.contents | {"post_processor": json.loads(pipeline.to_str())["post_processor"]}
        return changed

    def as_huggingface(self) -> tokenizers.Tokenizer:
        """A Tokenizer of Hugging Face's library that gives the same ids."""
        return built(self.contents, self.name)

    def write_vocabulary(self, path: Place) -> None:
        """Writes the vocabulary's file alone: a tokenizer.json, a vocab.txt or a sentencepiece model."""
        write_text(path, self.as_huggingface().to_str(pretty=True))

    def save(self, directory: Place) -> None:
        """Writes the vocabulary's file and then tokenizer_config.json.

        A directory with tokenizer_config.json is complete.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self.write_vocabulary(directory / self.file_name)
        usual = {"class_token"} if self.settings.class_token == "first" else None
        write_json(directory / TOKENIZER_CONFIG, self.settings.model_dump(exclude=usual))

    @property
    def settings(self) -> TokenizerSettings:
        """The contents of tokenizer_config.json."""
        return TokenizerSettings(kind=self.kind, class_token=self.vocabulary.class_token)
