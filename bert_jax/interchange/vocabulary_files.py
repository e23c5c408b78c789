"""The vocabulary files of other programs: BERT's tokenizer.json, and sentencepiece models that relatives renumber."""

from pathlib import Path
from typing import Any

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Pipeline

from bert_jax.interchange.json_file import read_object
from bert_jax.system.errors import UsageError, quoted
from bert_jax.system.json_file import Shape
from bert_jax.text.byte_level_bpe import pipeline_of_merges
from bert_jax.text.cleaning import Cleaning
from bert_jax.text.sentencepiece import SentencePieceTokenizer, read_model
from bert_jax.text.tokenizer import Tokenizer, read_vocabulary_file
from bert_jax.text.tokenizer_json import finished
from bert_jax.text.vocabulary import BOUNDARY, Vocabulary, check_numbers, special_names
from bert_jax.text.wordpiece import MANY_CAPITALS, MAX_WORD_CHARACTERS, WordPieceTokenizer

TOKENIZER, SETTINGS = Tokenizer.file_name, "tokenizer_config.json"
_PIECES = "vocab.json"
_NUMBERED_MODELS = ("sentencepiece.bpe.model", "spiece.model")
"""Names of sentencepiece models whose pieces their programs number and clean text for."""
_VOCABULARIES = (SentencePieceTokenizer.file_name, TOKENIZER, _PIECES, *_NUMBERED_MODELS, WordPieceTokenizer.file_name)
"""Files that a vocabulary is read from, the first that is there."""
_MODEL: dict[str, Any] = {
    "type": "WordPiece",
    "unk_token": "[UNK]",
    "continuing_subword_prefix": "##",
    "max_input_chars_per_word": 100,
}
_SPLITTING = {"type": "BertPreTokenizer"}
_CLEANING = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
_CASING = {"strip_accents": None, "lowercase": True}
"""Settings of BERT's model and normalizer that old files leave out."""
_FAIRSEQ = {
    "xlm-roberta": (dict.fromkeys(("<s>", "<pad>", "</s>", "<unk>"), 0.0), 3),
    "camembert": (dict.fromkeys(("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>"), 0.0) | {"<unk>NOTUSED": -100.0}, 1),
}
"""fairseq's own first pieces with their scores, and how many of the file's pieces they replace, by model_type."""


class CleaningSettings(Shape):
    """What tokenizer_config.json says of the treatment of text."""

    do_lower_case: bool | None = None
    strip_accents: bool | None = None
    keep_accents: bool | None = None
    add_prefix_space: bool | None = None


def read_vocabulary(directory: Path, model_type: str, settings: CleaningSettings, lowercase: bool | None) -> Tokenizer:
    """The tokenizer of the first vocabulary in `directory`, as models of `model_type` use it.

    `lowercase` is what the user asks for. Raises UsageError if there is none, or if it is invalid.
    """
    path = next((directory / name for name in _VOCABULARIES if (directory / name).is_file()), None)
    if path is None:
        raise UsageError(
            f"{directory} has no vocabulary; put the model's beside it: vocab.txt, tokenizer.json, tokenizer.model, "
            f"{', '.join(_NUMBERED_MODELS)}, or vocab.json with merges.txt"
        )
    if path.name == SentencePieceTokenizer.file_name:
        tokenizer = read_vocabulary_file(path)
        if settings.do_lower_case and tokenizer.piece_of_word("A") not in (None, tokenizer.piece_of_word("a")):
            raise UsageError(f"{directory / SETTINGS}: do_lower_case is true, and the sentencepiece model keeps case")
        return tokenizer
    if path.name == TOKENIZER:
        value = read_object(path)
        model = value.get("model")
        if isinstance(model, dict) and model.get("type", "WordPiece") == "WordPiece":  # old files have no type
            return _wordpiece(path, value, settings.do_lower_case, lowercase)
        return Tokenizer(value, str(path))
    if path.name == _PIECES:
        value = pipeline_of_merges(read_object(path), path, leading_space=bool(settings.add_prefix_space))
        return Tokenizer(value, str(path))
    if path.name in _NUMBERED_MODELS:
        lowercases = settings.do_lower_case is not False
        return _numbered_model(path, model_type, lowercases, bool(settings.keep_accents))
    vocabulary = Vocabulary.read(path)
    cased = vocabulary.share_of_capitals >= MANY_CAPITALS
    lowercase = next((value for value in (lowercase, settings.do_lower_case) if value is not None), not cased)
    return WordPieceTokenizer(vocabulary, Cleaning.of_file(lowercase, settings.strip_accents))


def _wordpiece(path: Path, value: dict[str, Any], do_lower_case: bool | None, lowercase: bool | None) -> Tokenizer:
    """The tokenizer in `value`, the contents of the tokenizer.json at `path`, with a model of type WordPiece.

    It is a WordPieceTokenizer if its steps are BERT's and it adds no tokens; the longest word that has pieces is then
    that of the original BERT, 200 characters, though most files say 100. `do_lower_case` is that of
    tokenizer_config.json, and `lowercase` what the user asks for. Raises UsageError if the file is invalid or
    contradicts them.
    """
    vocab, cleaning = value["model"].get("vocab"), value.get("normalizer")
    if not isinstance(vocab, dict):
        raise UsageError(f"{path}: model.vocab is {quoted(vocab)}; an object with a number for each piece was expected")
    check_numbers(vocab, path)
    if isinstance(cleaning, dict) and cleaning.get("type") == _CLEANING["type"]:
        cleaning = _CLEANING | _CASING | cleaning
        if lowercase is None and do_lower_case not in (None, cleaning["lowercase"]):
            raise UsageError(
                f"{path.parent}: lowercase in {path.name} is {cleaning['lowercase']} and do_lower_case in "
                f"tokenizer_config.json is {do_lower_case}; say which by --lowercase True or False"
            )
        cleaning["lowercase"] = cleaning["lowercase"] if lowercase is None else lowercase
    elif lowercase is not None:
        raise UsageError(f"{path}: its normalizer isn't BERT's, so --lowercase can't be applied; leave the option out")
    model = _MODEL | value["model"]
    tokenizer = Tokenizer(value | {"model": model, "normalizer": cleaning}, str(path))
    if tokenizer.added or cleaning is None:
        return tokenizer
    has_berts_steps = (
        {**cleaning, **_CLEANING} == cleaning
        and value["pre_tokenizer"] == _SPLITTING
        and _MODEL["max_input_chars_per_word"] <= model["max_input_chars_per_word"] <= MAX_WORD_CHARACTERS
    )
    if not has_berts_steps:
        return tokenizer
    vocabulary = Vocabulary(tokenizer.vocabulary.pieces, str(path))
    return WordPieceTokenizer(vocabulary, Cleaning.of_file(cleaning["lowercase"], cleaning["strip_accents"]))


def _numbered_model(path: Path, model_type: str, lowercase: bool, keep_accents: bool) -> Tokenizer:
    """The sentencepiece model at `path` as models of `model_type` use it in transformers.

    `lowercase` and `keep_accents` apply to ALBERT. Raises UsageError if the file isn't a unigram model, or for a
    model_type that has no such file.
    """
    if model_type not in (*_FAIRSEQ, "albert"):
        raise UsageError(
            f"{path}: models of model_type {model_type} have no such file; {', '.join(_FAIRSEQ)}, albert have"
        )
    model, of_fairseq = read_model(path), model_type in _FAIRSEQ
    if model.trainer_spec.model_type != 1:
        raise UsageError(f"{path} is no unigram model, as those of model_type {model_type} are; give its own")
    pieces = [(piece.piece, piece.score) for piece in model.pieces]
    if of_fairseq:
        first, replaced = _FAIRSEQ[model_type]
        pieces = [*first.items(), *pieces[replaced:], ("<mask>", 0.0)]
    names = [piece for piece, _ in pieces]
    special = special_names(names)
    unknown = names.index(special[1]) if special[1] in names else None
    tokenizer = Pipeline(models.Unigram(pieces, unknown, False))
    steps = [] if of_fairseq else _cleaning(lowercase, keep_accents)
    if model.normalizer_spec.precompiled_charsmap:
        steps.append(normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap))
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(BOUNDARY, "always")]
    )
    tokenizer.decoder = decoders.Metaspace(BOUNDARY, "always")
    unsplit = [piece.piece for piece in model.pieces if piece.type == piece.USER_DEFINED]
    tokenizer.add_tokens([AddedToken(piece, normalized=False) for piece in unsplit if piece not in special])
    return Tokenizer(finished(tokenizer, special, str(path), 2 if of_fairseq else 1), str(path))


def _cleaning(lowercase: bool, keep_accents: bool) -> list[normalizers.Normalizer]:
    """ALBERT's steps before those of the file."""
    steps: list[normalizers.Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not keep_accents:
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    return [*steps, normalizers.Lowercase()] if lowercase else steps
