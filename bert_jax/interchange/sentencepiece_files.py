"""Tokenizers of relatives that come as a sentencepiece model whose pieces their programs number and clean text for."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Pipeline

from bert_jax.system.errors import UsageError
from bert_jax.text.pipeline import Tokenizer
from bert_jax.text.sentencepiece import read_model
from bert_jax.text.tokenizer_json import finished
from bert_jax.text.vocabulary import BOUNDARY, special_names

_Scored = list[tuple[str, float]]


class _Way(NamedTuple):
    """What a kind of model makes of its sentencepiece model."""

    pieces: Callable[[_Scored], _Scored]
    """Its pieces with their scores in the order of its ids, from those of the file."""
    cleans: bool = False
    """Whether quotes, accents and case are treated before the file's own rules, as in ALBERT."""
    separators: int = 2
    """How many separators it has between two texts."""


def _fairseq(pieces: _Scored) -> _Scored:
    """fairseq's own first pieces, whatever the file's first three are, and the mask after all."""
    return [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *pieces[3:], ("<mask>", 0.0)]


def _camembert(pieces: _Scored) -> _Scored:
    """fairseq's own first pieces, which aren't used, then those of the file from its second on, and the mask."""
    unused = [("<s>NOTUSED", 0.0), ("<pad>", 0.0), ("</s>NOTUSED", 0.0), ("<unk>", 0.0), ("<unk>NOTUSED", -100.0)]
    return [*unused, *pieces[1:], ("<mask>", 0.0)]


_WAYS = {
    "xlm-roberta": _Way(_fairseq),
    "camembert": _Way(_camembert),
    "albert": _Way(lambda pieces: pieces, cleans=True, separators=1),
}
"""By model_type."""
NUMBERED_MODELS = ("sentencepiece.bpe.model", "spiece.model")
"""Names of such models' files."""


def read_numbered_model(path: Path, model_type: str, lowercase: bool, keep_accents: bool) -> Tokenizer:
    """The sentencepiece model at `path` as models of `model_type` use it in transformers.

    `lowercase` and `keep_accents` apply to ALBERT. Raises UsageError if the file isn't a unigram model, or for a
    model_type that has no such file.
    """
    way, model = _WAYS.get(model_type), read_model(path)
    if way is None:
        raise UsageError(f"{path}: models of model_type {model_type} have no such file; {', '.join(_WAYS)} have")
    if model.trainer_spec.model_type != 1:
        raise UsageError(f"{path} is no unigram model, as those of model_type {model_type} are; give its own")
    pieces = way.pieces([(piece.piece, piece.score) for piece in model.pieces])
    names = [piece for piece, _ in pieces]
    special = special_names(names)
    unknown = names.index(special[1]) if special[1] in names else None
    tokenizer = Pipeline(models.Unigram(pieces, unknown, False))
    steps = _cleaning(lowercase, keep_accents) if way.cleans else []
    if model.normalizer_spec.precompiled_charsmap:
        steps.append(normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap))
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(BOUNDARY, "always")]
    )
    tokenizer.decoder = decoders.Metaspace(BOUNDARY, "always")
    whole = [piece.piece for piece in model.pieces if piece.type == piece.USER_DEFINED]
    tokenizer.add_tokens([AddedToken(piece, normalized=False) for piece in whole if piece not in special])
    return Tokenizer(finished(tokenizer, special, str(path), way.separators), str(path))


def _cleaning(lowercase: bool, keep_accents: bool) -> list[normalizers.Normalizer]:
    steps: list[normalizers.Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not keep_accents:
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    return [*steps, normalizers.Lowercase()] if lowercase else steps
