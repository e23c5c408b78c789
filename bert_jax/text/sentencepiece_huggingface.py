"""A sentencepiece model as a Tokenizer of Hugging Face's library, which knows both of its algorithms."""

from sentencepiece.sentencepiece_model_pb2 import ModelProto
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from bert_jax.system.errors import UsageError

_Piece = ModelProto.SentencePiece
_NEVER = -1e6


def as_huggingface(model: ModelProto, boundary: str, unknown_id: int) -> Tokenizer:
    """The same ids for the same text, without special pieces; but for two rare cases, about one line in ten thousand.

    Of two ways to split that are equally likely but for rounding, a unigram model may take the other one. And Hugging
    Face's library cleans what is drawn as one character (Korean letters written apart) otherwise. Raises UsageError
    for a model of which the library would make other pieces.
    """
    if reason := _inexpressible(model):
        raise UsageError(
            f"the vocabulary can't be exported: {reason}, for which Hugging Face's library gives other pieces"
        )
    tokenizer = Tokenizer(_BUILDERS[model.trainer_spec.model_type](model, unknown_id))
    tokenizer.normalizer = normalizers.Sequence(_cleaning(model))
    scheme = "always" if model.normalizer_spec.add_dummy_prefix else "never"
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(boundary, scheme)
    tokenizer.decoder = decoders.Metaspace(boundary, scheme)
    return tokenizer


def _inexpressible(model: ModelProto) -> str | None:
    """What of the model Hugging Face's library does otherwise; None where all is alike."""
    given = [piece.piece for piece in model.pieces if piece.type == _Piece.USER_DEFINED]
    if given:
        return f"it has {len(given):,} pieces that are taken before all others ({given[0]!r}, ...)"
    if model.trainer_spec.byte_fallback:
        return "it splits unknown characters into bytes (byte_fallback)"
    if model.trainer_spec.treat_whitespace_as_suffix:
        return "it marks the ends of words (treat_whitespace_as_suffix)"
    if not model.normalizer_spec.remove_extra_whitespaces:
        return "it keeps several spaces (remove_extra_whitespaces is false)"
    return None


def _cleaning(model: ModelProto) -> list[normalizers.Normalizer]:
    spec, steps = model.normalizer_spec, [normalizers.Replace("\0", "\1")]  # see sentencepiece.without_nul
    if spec.precompiled_charsmap:
        steps.append(normalizers.Precompiled(spec.precompiled_charsmap))
    return [*steps, normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()]


def _unigram(model: ModelProto, unknown_id: int) -> models.Unigram:
    # Special pieces have the score 0, the best; one that is so much worse is on no best path through a text.
    pieces = [(piece.piece, piece.score if piece.type == _Piece.NORMAL else _NEVER) for piece in model.pieces]
    return models.Unigram(pieces, unknown_id, False)


def _bpe(model: ModelProto, unknown_id: int) -> models.BPE:
    """Every pair that makes up a piece is a merge; they are ranked by the score of the piece."""
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
"""By the model_type of sentencepiece's trainer_spec."""
