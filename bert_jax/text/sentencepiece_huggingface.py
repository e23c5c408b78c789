"""A sentencepiece model as a Tokenizer of Hugging Face's library, which knows both of its algorithms."""

from sentencepiece.sentencepiece_model_pb2 import ModelProto
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from bert_jax.system.errors import UsageError

_Piece = ModelProto.SentencePiece
_NEVER = -1e6


def as_huggingface(model: ModelProto, boundary: str, unknown_id: int) -> Tokenizer:
    """The same ids for the same text, without special pieces; but for two rare cases, about one line in ten thousand.

    Of two ways to split that are equally likely but for rounding, a unigram model may take the other one. And Hugging
    Face's library cleans what is drawn as one character (Korean letters written apart) otherwise. Raises UsageError
    for models of words or of characters.
    """
    builders = {1: _unigram, 2: _bpe}
    if model.trainer_spec.model_type not in builders:
        raise UsageError("Hugging Face's library has sentencepiece's unigram and BPE models only; this one is another")
    tokenizer = Tokenizer(builders[model.trainer_spec.model_type](model, unknown_id))
    tokenizer.normalizer = normalizers.Sequence(_cleaning(model))
    scheme = "always" if model.normalizer_spec.add_dummy_prefix else "never"
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(boundary, scheme)
    tokenizer.decoder = decoders.Metaspace(boundary, scheme)
    given = [piece.piece for piece in model.pieces if piece.type == _Piece.USER_DEFINED]
    tokenizer.add_tokens(
        [AddedToken(piece.replace(boundary, " "), normalized=True) for piece in given if boundary not in piece]
    )
    return tokenizer


def _cleaning(model: ModelProto) -> list[normalizers.Normalizer]:
    spec, steps = model.normalizer_spec, [normalizers.Replace("\0", "\1")]  # see sentencepiece.without_nul
    if spec.precompiled_charsmap:
        steps.append(normalizers.Precompiled(spec.precompiled_charsmap))
    if spec.remove_extra_whitespaces:
        steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()]
    return steps


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
