"""Unigram and BPE models of sentencepiece: reading, encoding and adding pieces."""

import math
import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from google.protobuf.message import DecodeError
from jaxtyping import Bool
from sentencepiece import SentencePieceProcessor
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from tokenizers import Tokenizer

from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError, shown
from bert_jax.system.files import open_regular, replacing
from bert_jax.text.charsmap import charsmap_fault
from bert_jax.text.scripts import is_punctuation, sets_no_spaces
from bert_jax.text.sentencepiece_huggingface import as_huggingface
from bert_jax.text.tokenizer_settings import FILE_NAME, TokenizerSettings, read_settings, write_settings
from bert_jax.text.vocabulary import MASK, MOST_BYTES, PieceSpan, Vocabulary, special_names

BOUNDARY = "\u2581"
"""First character of pieces that begin a word."""
_KINDS = {1: "unigram", 2: "bpe"}
_PLACEHOLDER = "\U0010fffd"
"""Replaces [MASK] while text is encoded. No vocabulary has it, so it becomes an unknown piece."""
_SCORE_STEP = 0.1
"""Log-probability of a new piece of a unigram model minus that of the pieces that it replaces."""
_ROUNDS = 20
"""Attempts to raise the scores of new pieces until each encodes its word whole."""
_Piece = ModelProto.SentencePiece


class SentencePieceTokenizer:
    """A tokenizer over a sentencepiece model, which contains its own rules for cleaning text."""

    file_name = "tokenizer.model"
    cuts = ()  # a given model may have pieces that hold spaces

    def __init__(self, model: ModelProto, name: str = "model"):
        """Finds the special pieces by name: those of BERT, or <pad> <unk> <s> </s> <mask>.

        Raises UsageError, with `name`, if one is missing or the model isn't a unigram or BPE model.
        """
        self._model = model
        pieces = [piece.piece for piece in model.pieces]
        self.vocabulary = Vocabulary(
            pieces, name, special_names(set(pieces)), blanks=""
        )  # it may have pieces for line breaks
        if model.trainer_spec.model_type not in _KINDS:
            raise UsageError(
                f"{name} is a sentencepiece model of words or characters; give one of {', '.join(_KINDS.values())}"
            )
        self.kind = _KINDS[model.trainer_spec.model_type]
        try:
            self._processor = SentencePieceProcessor(model_proto=_with_control_pieces(model, self.vocabulary))
        except Exception as error:  # the library's status codes are RuntimeError, OSError, SyntaxError and others
            raise UsageError(f"{name} is no good sentencepiece model ({shown(str(error))}); give another") from None

    def encode(self, text: str) -> list[int]:
        """Ids of the pieces of `text`, without special pieces. "[CLS]" in a text is ordinary characters."""
        return self._processor.encode(without_nul(text))

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each text; uses several threads unless TOKENIZERS_PARALLELISM=false."""
        threads = 1 if os.environ.get("TOKENIZERS_PARALLELISM") == "false" else -1
        return self._processor.encode([without_nul(text) for text in texts], num_threads=threads)

    def encode_masked(self, text: str) -> list[int]:
        """Encodes `text` with each [MASK] as the mask piece.

        The text is encoded as a whole, so that a [MASK] within a word doesn't start a new word after it.
        """
        marked, mask = text.replace(MASK, _PLACEHOLDER), self.vocabulary.mask_id
        ids: list[int] = []
        for number, begin, end in self.encode_spans(marked):
            # Adjacent unknown characters, and so several [MASK], are one unknown piece.
            parts = re.findall(f"{_PLACEHOLDER}|[^{_PLACEHOLDER}]+", marked[begin:end])
            if _PLACEHOLDER not in parts:
                ids.append(number)
                continue
            if ids and self.vocabulary.pieces[ids[-1]] == BOUNDARY and parts[0] == _PLACEHOLDER:
                ids.pop()  # the mask stands for a piece that includes the boundary
            ids += [mask if part == _PLACEHOLDER else number for part in parts]
        return ids

    def encode_spans(self, text: str) -> list[PieceSpan]:
        """The pieces of `text` with their positions in it. The span of a boundary by itself is empty."""
        encoded = self._processor.encode(without_nul(text), return_type="offset_mapping")
        spans = []
        for number, piece, (begin, end) in zip(encoded["ids"], encoded["pieces"], encoded["offsets"]):
            if piece == BOUNDARY:
                end = begin
            begin, end = visible(text, begin, end)
            spans.append(PieceSpan(number, begin, end))
        return spans

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the pieces: words, separated by spaces."""
        special, pieces = set(self.vocabulary.special_ids), self.vocabulary.pieces
        return "".join(
            f" {pieces[number]}" if number in special else pieces[number].replace(BOUNDARY, " ") for number in ids
        ).strip()

    @cached_property
    def starts_word(self) -> Bool[np.ndarray, " V"]:
        """For each piece, whether it starts a word.

        These are special pieces, pieces that begin with the boundary, punctuation, as in WordPiece, and pieces of
        scripts without spaces, where each piece counts as a word. A letter after punctuation without a space doesn't
        start a word, since its piece is the same as within a word.
        """
        starts = np.array([starts_word(piece) for piece in self.vocabulary.pieces])
        starts[list(self.vocabulary.special_ids)] = True
        return starts

    def piece_text(self, number: int) -> str:
        """The characters of piece `number` without the boundary. A boundary by itself is kept."""
        return self.vocabulary.pieces[number].removeprefix(BOUNDARY) or BOUNDARY

    def spelled(self, number: int) -> str:
        """Piece `number` as the vocabulary writes it."""
        return self.vocabulary.pieces[number]

    def encode_piece(self, piece: str) -> list[int]:
        """Ids of the pieces that `piece`, written as in the vocabulary, is split into."""
        return _encode_piece(self._piece_processor, piece)

    @cached_property
    def _piece_processor(self) -> SentencePieceProcessor:
        return _piece_processor(self._model)

    def piece_of_word(self, word: str) -> str | None:
        """The piece for the whole of `word`: cleaned by the model, with the boundary if its script uses spaces. None if
        that is empty, several words, or contains punctuation."""
        piece = self._processor.normalize(word)
        text = piece.removeprefix(BOUNDARY)
        if not text or any(part == BOUNDARY or is_punctuation(part) for part in text):
            return None
        return text if sets_no_spaces(text[0]) else piece

    def with_pieces(self, pieces: Sequence[str]) -> "SentencePieceTokenizer":
        """A tokenizer with `pieces` added after its own; each encodes its word as a single piece.

        In a unigram model a new piece is slightly more probable than the pieces that it replaces, so that other words
        are encoded as before. In a BPE model a new piece that consists of two pieces is the last merge; a piece of
        more than two is used for every word that begins with it.
        """
        lengthen = _lengthened_bpe if self.kind == "bpe" else _lengthened_unigram
        return SentencePieceTokenizer(lengthen(self._model, pieces))

    def save(self, directory: Place) -> None:
        """Writes tokenizer.model and, last, tokenizer_config.json."""
        directory.mkdir(parents=True, exist_ok=True)
        self.write_vocabulary(directory / self.file_name)
        write_settings(directory, TokenizerSettings(kind=self.kind))

    def as_huggingface(self) -> Tokenizer:
        """A Tokenizer of Hugging Face's library that gives the same ids, without special pieces."""
        return as_huggingface(self._model, BOUNDARY, self.vocabulary.unknown_id)

    def write_vocabulary(self, path: Place) -> None:
        """Writes the sentencepiece model."""
        with replacing(path) as temporary:
            temporary.write_bytes(self._model.SerializeToString(deterministic=True))

    @classmethod
    def load(cls, directory: Path) -> "SentencePieceTokenizer":
        """Reads the files of `save`. Raises UsageError if they are damaged or contradict each other."""
        tokenizer, told = cls.read(directory / cls.file_name), read_settings(directory, TokenizerSettings).kind
        if told != tokenizer.kind:
            raise UsageError(
                f"{directory / cls.file_name} is a {tokenizer.kind} model and {FILE_NAME} beside it says {told}; put "
                "the files back that were made together"
            )
        return tokenizer

    @classmethod
    def read(cls, path: Path) -> "SentencePieceTokenizer":
        """Reads a sentencepiece model. Raises UsageError if the file isn't one."""
        return cls(read_model(path), str(path))


def read_model(path: Path) -> ModelProto:
    """The sentencepiece model at `path`. Raises UsageError if the file isn't one."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UsageError(f"{path} has {path.stat().st_size:,} bytes; no vocabulary needs over {MOST_BYTES:,}")
        with open_regular(path) as file:
            model = ModelProto.FromString(file.read())
    except OSError as error:
        raise UsageError(f"{path} can't be read ({error.strerror}); give the path of a sentencepiece .model") from None
    except DecodeError:
        raise UsageError(f"{path} is no sentencepiece model; give one, or a vocab.txt") from None
    if not all(isinstance(piece.piece, str) for piece in model.pieces):  # bytes: not UTF-8
        raise UsageError(f"{path} has pieces that are not UTF-8; it is damaged, fetch it again")
    charsmap = model.normalizer_spec.precompiled_charsmap
    if fault := charsmap and charsmap_fault(charsmap):
        raise UsageError(f"{path}: its precompiled_charsmap is damaged ({fault}); fetch the file again")
    return model


def without_nul(text: str) -> str:
    """Replaces U+0000, for which sentencepiece has no rules, by another control character."""
    return text.replace("\0", "\1")


def _with_control_pieces(model: ModelProto, vocabulary: Vocabulary) -> bytes:
    """The serialised model with its special pieces as control pieces, which text is never encoded to."""
    copy = ModelProto.FromString(model.SerializeToString())
    for number in vocabulary.special_ids:
        if number != vocabulary.unknown_id:
            copy.pieces[number].type = _Piece.CONTROL
    return copy.SerializeToString()


def visible(text: str, begin: int, end: int) -> tuple[int, int]:
    """The span without spaces, control and format characters at its ends."""
    while end > begin and _unseen(text[end - 1]):
        end -= 1
    while begin < end and _unseen(text[begin]):
        begin += 1
    return begin, end


def _unseen(character: str) -> bool:
    return character.isspace() or unicodedata.category(character) in ("Cc", "Cf")


def starts_word(piece: str) -> bool:
    """Whether a piece begins a word: after a space, as punctuation, or in a script without spaces."""
    first = piece[:1]
    return first == BOUNDARY or (first != "" and (is_punctuation(first) or sets_no_spaces(first)))


def _lowest_score(model: ModelProto) -> float:
    return min((piece.score for piece in model.pieces if piece.type == _Piece.NORMAL), default=0.0)


def _piece_processor(model: ModelProto) -> SentencePieceProcessor:
    """A processor for single pieces, which doesn't add or remove boundaries."""
    copy = ModelProto.FromString(model.SerializeToString())
    copy.normalizer_spec.add_dummy_prefix = copy.normalizer_spec.remove_extra_whitespaces = False
    return SentencePieceProcessor(model_proto=copy.SerializeToString())


def _encode_piece(processor: SentencePieceProcessor, piece: str) -> list[int]:
    return processor.encode(piece.replace(BOUNDARY, " "))


def _lengthened_bpe(model: ModelProto, pieces: Sequence[str]) -> ModelProto:
    lowest, processor = _lowest_score(model), _piece_processor(model)
    longer = ModelProto.FromString(model.SerializeToString())
    for place, piece in enumerate(pieces, 1):
        parts = _encode_piece(processor, piece)
        merged = len(parts) == 2 and not any(map(processor.is_unknown, parts))
        kind = _Piece.NORMAL if merged else _Piece.USER_DEFINED
        longer.pieces.add(piece=piece, score=lowest - place, type=kind)
    return longer


def _lengthened_unigram(model: ModelProto, pieces: Sequence[str]) -> ModelProto:
    lowest, processor = _lowest_score(model), _piece_processor(model)
    longer = ModelProto.FromString(model.SerializeToString())
    for piece in pieces:
        longer.pieces.add(piece=piece, score=-math.inf, type=_Piece.NORMAL)
    split = list(longer.pieces)[len(model.pieces) :]
    # A new word may begin with another new one, so the scores of words that are still split are raised again.
    for _ in range(_ROUNDS):
        for piece in split:
            parts = _encode_piece(processor, piece.piece)
            score = sum(lowest if processor.is_unknown(part) else processor.get_score(part) for part in parts)
            piece.score = max(score + _SCORE_STEP, piece.score)
        processor = _piece_processor(longer)
        split = [piece for piece in split if len(_encode_piece(processor, piece.piece)) > 1]
        if not split:
            return longer
    raise UsageError(f"the model splits {split[0].piece.strip(BOUNDARY)!r} whatever its pieces; leave the word out")
