"""Sentencepiece's unigram and BPE models: reading, encoding, adding pieces, and export to Hugging Face's library."""

import copy
import itertools
import math
import os
from collections.abc import Iterable, Sequence
from functools import cached_property

from google.protobuf.message import DecodeError
from sentencepiece import SentencePieceProcessor
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]  # made at its import
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Pipeline

from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError, quoted
from bert_jax.system.files import replacing
from bert_jax.text.charsmap import charsmap_fault
from bert_jax.text.library_calls import library_method
from bert_jax.text.pipeline import Tokenizer
from bert_jax.text.scripts import is_punctuation, sets_no_spaces
from bert_jax.text.tokenizer_json import PipelineKind
from bert_jax.text.vocabulary import BOUNDARY, MASK, Content, Vocabulary, content_of, read_file, special_names

_KINDS: dict[int, PipelineKind] = {1: "unigram", 2: "bpe"}
"""Kinds of models, by the model_type in sentencepiece's trainer_spec."""
_SCORE_STEP = 0.1
"""Log-probability of a new piece of a unigram model, minus that of the pieces that it replaces."""
_ROUNDS = 20
"""Most rounds that raise the scores of new pieces until each encodes its word whole."""
_NEVER = -1e6
"""A score so low that a piece is on no best path through a text. Special pieces have the best score, 0."""
_Piece = ModelProto.SentencePiece
_SPACES = rf"[\s\x1c-\x1f\x85{BOUNDARY}]"
"""Characters that the models' own rules turn into a space."""
OWN_RULES = "bert"
"""Name of the cleaning rules in models that are trained here."""


class SentencePieceTokenizer(Tokenizer):
    """A tokenizer over a sentencepiece model, which contains its own rules for cleaning text.

    Sentencepiece itself encodes, since Hugging Face's library gives other ids in about one line in ten thousand.
    """

    file_name = "tokenizer.model"

    def __init__(self, model: ModelProto, name: str = "model"):
        """Finds the special pieces by name: those of BERT, or <pad> <unk> <s> </s> <mask>.

        Raises UsageError, with `name`, if a special piece is missing or the model isn't a unigram or BPE model.
        """
        self._model, self.name = model, name
        pieces = [piece.piece for piece in model.pieces]
        # The model may have pieces for line breaks, so no blank is forbidden.
        self.vocabulary = Vocabulary(pieces, name, special_names(set(pieces)), blanks="")
        if model.trainer_spec.model_type not in _KINDS:
            raise UsageError(
                f"{name} is a sentencepiece model of words or characters; give one of {', '.join(_KINDS.values())}"
            )
        self.kind = _KINDS[model.trainer_spec.model_type]
        self._processor = self._opened({})

    def _opened(self, types: dict[int, int]) -> SentencePieceProcessor:
        """A processor in which special pieces are control pieces, so that no text is encoded to them.

        `types` gives other types to some pieces.
        """
        special = dict.fromkeys({*self.vocabulary.special_ids} - {self.vocabulary.unknown_id}, _Piece.CONTROL)
        model = copy.deepcopy(self._model)
        for number, kind in (special | types).items():
            model.pieces[number].type = kind
        try:
            return SentencePieceProcessor(model_proto=model.SerializeToString())
        except Exception as error:  # the library's status codes are RuntimeError, OSError, SyntaxError and others
            reason = quoted(str(error))
            raise UsageError(f"{self.name} is no good sentencepiece model ({reason}); give another") from None

    @library_method
    def encode(self, text: str) -> list[int]:
        return self._processor.encode(without_nul(text))

    @library_method
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        threads = 1 if os.environ.get("TOKENIZERS_PARALLELISM") == "false" else -1
        return self._processor.encode([without_nul(text) for text in texts], num_threads=threads)

    @library_method
    def encode_special(self, text: str) -> list[int]:
        """Encodes `text` with the special pieces in it as themselves, and [MASK] as this vocabulary's mask piece.

        The text is encoded as a whole, so that no new word starts after a [MASK] within a word.
        """
        mask, pieces = self.vocabulary.mask_id, self.vocabulary.pieces
        ids = self._special_processor.encode(without_nul(text.replace(MASK, pieces[mask])))
        # The mask stands for a piece together with the boundary before it.
        followed = itertools.pairwise([*ids, None])
        return [number for number, following in followed if following != mask or pieces[number] != BOUNDARY]

    @cached_property
    def _special_processor(self) -> SentencePieceProcessor:
        """The processor that recognizes the special pieces in a text, except the unknown one."""
        found = {*self.vocabulary.special_ids} - {self.vocabulary.unknown_id}
        return self._opened(dict.fromkeys(found, _Piece.USER_DEFINED))

    @library_method
    def cleaned(self, text: str) -> str:
        return self._processor.normalize(text)

    def _offsets(self, text: str) -> Iterable[tuple[int, int, int]]:
        encoded = self._processor.encode(without_nul(text), return_type="offset_mapping")
        return ((number, *offsets) for number, offsets in zip(encoded["ids"], encoded["offsets"], strict=True))

    @library_method
    def encode_piece(self, piece: str) -> list[int]:
        return _encode_piece(self._piece_processor, piece)

    @cached_property
    def _piece_processor(self) -> SentencePieceProcessor:
        return _piece_processor(self._model)

    @library_method
    def piece_of_word(self, word: str) -> str | None:
        """The piece for the whole of `word`.

        The model cleans the word, and the boundary is put before it if its script uses spaces. None if the cleaned word
        is empty, is several words, or contains punctuation.
        """
        piece = self._processor.normalize(word)
        text = piece.removeprefix(BOUNDARY)
        if not text or any(part == BOUNDARY or is_punctuation(part) for part in text):
            return None
        return text if sets_no_spaces(text[0]) else piece

    def with_pieces(self, pieces: Sequence[str]) -> "SentencePieceTokenizer":
        """A tokenizer with `pieces` added after its own; each encodes its word as a single piece.

        In a unigram model a new piece is slightly more probable than the pieces that it replaces, so that other words
        are encoded as before. In a BPE model, a new piece that consists of two pieces is the last merge. A new piece of
        more than two is used for every word that begins with it.
        """
        lowest = min((piece.score for piece in self._model.pieces if piece.type == _Piece.NORMAL), default=0.0)
        lengthen = _lengthened_bpe if self.kind == "bpe" else _lengthened_unigram
        longer = SentencePieceTokenizer(lengthen(self._model, pieces, lowest))
        return longer.with_class_token(self.vocabulary.class_token)

    def as_huggingface(self) -> Pipeline:
        """A Tokenizer of Hugging Face's library without special pieces, whose ids are the same with rare exceptions.

        About one line in ten thousand differs. A unigram model may choose the other of two splits whose probabilities
        differ only by rounding. The library also cleans characters of several code points, such as Korean letters,
        differently. Raises UsageError for a model that the library can't express.
        """
        if reason := _inexpressible(self._model):
            raise UsageError(
                f"the vocabulary can't be exported: {reason}, for which Hugging Face's library gives other pieces"
            )
        tokenizer = Pipeline(self._huggingface_model())
        spec = self._model.normalizer_spec
        charsmap: list[normalizers.Normalizer] = []
        if spec.precompiled_charsmap:
            charsmap = [normalizers.Precompiled(spec.precompiled_charsmap)]
        if spec.name == OWN_RULES:  # our rules compose characters, and the library applies them to single code points
            # After a space other than " ", a mark would be cleaned away together with the space.
            charsmap = [normalizers.NFC(), normalizers.Replace(Regex(_SPACES), " "), *charsmap]
        prefix = spec.add_dummy_prefix
        # A space at the text's beginning is the first word's boundary. A space after a mask is the next word's
        # boundary.
        spaces = [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip(left=not prefix)]
        tokenizer.normalizer = normalizers.Sequence([normalizers.Replace("\0", "\1"), *charsmap, *spaces])
        scheme = "first" if prefix else "never"  # "always" would also begin a word after each mask
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(BOUNDARY, scheme)
        tokenizer.decoder = decoders.Metaspace(BOUNDARY, scheme)
        return tokenizer

    def _huggingface_model(self) -> models.Model:
        """Pieces with scores; for a BPE, the merges of all pairs that make up a piece, ranked by the piece's score."""
        if self.kind == "unigram":
            pieces = self._model.pieces
            scored = [(piece.piece, piece.score if piece.type == _Piece.NORMAL else _NEVER) for piece in pieces]
            return models.Unigram(scored, self.vocabulary.unknown_id, False)
        ids, merges = self.vocabulary.ids, []
        ranked = sorted(self._model.pieces, key=lambda piece: -piece.score)
        for text in (piece.piece for piece in ranked if piece.type == _Piece.NORMAL):
            merges += [(text[:at], text[at:]) for at in range(1, len(text)) if text[:at] in ids and text[at:] in ids]
        return models.BPE(ids, merges, unk_token=self.vocabulary.special[1], fuse_unk=True)

    def write_vocabulary(self, path: Place) -> None:
        with replacing(path) as temporary:
            temporary.write_bytes(self._model.SerializeToString(deterministic=True))


def read_model(path: Place, content: Content = content_of) -> ModelProto:
    """The sentencepiece model at `path`. Raises UsageError if the file isn't one."""
    try:
        model = ModelProto.FromString(read_file(path, "a sentencepiece .model", content))
    except DecodeError:
        raise UsageError(f"{path} is no sentencepiece model; give one, or a vocab.txt") from None
    if not all(isinstance(piece.piece, str) for piece in model.pieces):  # bytes if it isn't UTF-8
        raise UsageError(f"{path} has pieces that are not UTF-8; it is damaged, fetch it again")
    charsmap = model.normalizer_spec.precompiled_charsmap
    if fault := charsmap and charsmap_fault(charsmap):
        raise UsageError(f"{path}: its precompiled_charsmap is damaged ({fault}); fetch the file again")
    return model


def without_nul(text: str) -> str:
    """Replaces U+0000 by another control character, since sentencepiece has no rules for it."""
    return text.replace("\0", "\1")


def _piece_processor(model: ModelProto) -> SentencePieceProcessor:
    """A processor for single pieces. It neither adds nor removes boundaries."""
    model = copy.deepcopy(model)
    model.normalizer_spec.add_dummy_prefix = model.normalizer_spec.remove_extra_whitespaces = False
    return SentencePieceProcessor(model_proto=model.SerializeToString())


def _encode_piece(processor: SentencePieceProcessor, piece: str) -> list[int]:
    return processor.encode(piece.replace(BOUNDARY, " "))


def _lengthened_bpe(model: ModelProto, pieces: Sequence[str], lowest: float) -> ModelProto:
    """`model` with `pieces`, whose scores are below `lowest`, the lowest score of the model's own pieces."""
    longer, processor = copy.deepcopy(model), _piece_processor(model)
    for place, piece in enumerate(pieces, 1):
        parts = _encode_piece(processor, piece)
        merged = len(parts) == 2 and not any(map(processor.is_unknown, parts))
        kind = _Piece.NORMAL if merged else _Piece.USER_DEFINED
        longer.pieces.add(piece=piece, score=lowest - place, type=kind)
    return longer


def _lengthened_unigram(model: ModelProto, pieces: Sequence[str], lowest: float) -> ModelProto:
    """`model` with `pieces`, scored by the pieces that they replace. An unknown piece counts as `lowest`."""
    longer, processor = copy.deepcopy(model), _piece_processor(model)
    for piece in pieces:
        longer.pieces.add(piece=piece, score=-math.inf, type=_Piece.NORMAL)
    split = list(longer.pieces)[len(model.pieces) :]
    # A new word may begin with another new word, so the scores of words that are still split are raised again.
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


def _inexpressible(model: ModelProto) -> str | None:
    """Why Hugging Face's library would encode differently with this model; None if it wouldn't."""
    forced = [piece.piece for piece in model.pieces if piece.type == _Piece.USER_DEFINED]
    if forced:
        return f"it has {len(forced):,} pieces that are taken before all others ({forced[0]!r}, ...)"
    if model.trainer_spec.byte_fallback:
        return "it splits unknown characters into bytes (byte_fallback)"
    if model.trainer_spec.treat_whitespace_as_suffix:
        return "it marks the ends of words (treat_whitespace_as_suffix)"
    if not model.normalizer_spec.remove_extra_whitespaces:
        return "it keeps several spaces (remove_extra_whitespaces is false)"
    return None
