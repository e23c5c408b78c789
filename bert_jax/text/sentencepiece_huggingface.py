"""Converts a sentencepiece model to a Tokenizer of Hugging Face's library, which has both algorithms."""

from sentencepiece.sentencepiece_model_pb2 import ModelProto
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from bert_jax.system.errors import UsageError
from bert_jax.text.vocabulary import BOUNDARY

_Piece = ModelProto.SentencePiece
_NEVER = -1e6


def as_huggingface(model: ModelProto, unknown_id: int) -> Tokenizer:
    """A Tokenizer with the same ids, without special pieces, except in about one line in ten thousand.

    A unigram model may choose the other of two splits whose probabilities differ only by rounding, and Hugging Face's
    library cleans characters that are written as several code points, such as Korean letters, differently. Raises
    UsageError for a model that the library can't express.
    """
    if reason := _inexpressible(model):
        raise UsageError(
            f"the vocabulary can't be exported: {reason}, for which Hugging Face's library gives other pieces"
        )
    tokenizer = Tokenizer(_BUILDERS[model.trainer_spec.model_type](model, unknown_id))
    tokenizer.normalizer = normalizers.Sequence(_cleaning(model))
    scheme = "always" if model.normalizer_spec.add_dummy_prefix else "never"
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(BOUNDARY, scheme)
    tokenizer.decoder = decoders.Metaspace(BOUNDARY, scheme)
    return tokenizer


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


def _cleaning(model: ModelProto) -> list[normalizers.Normalizer]:
    spec, steps = model.normalizer_spec, [normalizers.Replace("\0", "\1")]  # as sentencepiece.without_nul does
    if spec.precompiled_charsmap:
        steps.append(normalizers.Precompiled(spec.precompiled_charsmap))
    return [*steps, normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()]


def _unigram(model: ModelProto, unknown_id: int) -> models.Unigram:
    # Special pieces have the best score, 0. With this low score no best path through a text has them.
    pieces = [(piece.piece, piece.score if piece.type == _Piece.NORMAL else _NEVER) for piece in model.pieces]
    return models.Unigram(pieces, unknown_id, False)


def _bpe(model: ModelProto, unknown_id: int) -> models.BPE:
    """A BPE model whose merges are all pairs that make up a piece, ranked by the score of that piece."""
    pieces = [piece.piece for piece in model.pieces]
    ids = {piece: number for number, piece in enumerate(pieces)}
    merges = []
    for piece in sorted(
        (piece for piece in model.pieces if piece.type == _Piece.NORMAL), key=lambda piece: -piece.score
    ):
        text = piece.piece
        merges += [(text[:at], text[at:]) for at in range(1, len(text)) if text[:at] in ids and text[at:] in ids]
    return models.BPE(ids, merges, unk_token=pieces[unknown_id], fuse_unk=True)


_BUILDERS = {1: _unigram, 2: _bpe}
"""Converters by the model_type of sentencepiece's trainer_spec."""
