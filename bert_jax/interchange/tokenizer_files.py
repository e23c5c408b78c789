"""Tokenizers as Hugging Face and Google publish them, read and written."""

from pathlib import Path
from typing import Any

from tokenizers import AddedToken, processors

from bert_jax.config.model import ModelConfig
from bert_jax.interchange.settings_file import read_settings
from bert_jax.system.errors import UsageError
from bert_jax.system.files import write_json, write_text
from bert_jax.text.sentencepiece import SentencePieceTokenizer
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.vocabulary import CONTINUATION, Vocabulary
from bert_jax.text.wordpiece import MANY_CAPITALS, WordPieceTokenizer

TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"
_SPECIAL_NAMES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
"""What the settings call the special pieces, in the order of Vocabulary.special_ids."""
_UNLIMITED = 1_000_000
"""A model_max_length above this means that none was set."""


def read_tokenizer(directory: Path, config: ModelConfig, lowercase: bool | None = None) -> Tokenizer:
    """A sentencepiece tokenizer.model, the WordPiece of a tokenizer.json, or a vocab.txt, whichever is there first.

    `lowercase` is for a vocab.txt alone, without settings beside it: None goes by the vocabulary's own letters.
    Raises UsageError where there is none, or where the files contradict each other or the model.
    """
    settings = read_settings(directory / SETTINGS) if (directory / SETTINGS).is_file() else {}
    if (directory / SentencePieceTokenizer.file_name).is_file():
        tokenizer = SentencePieceTokenizer.read(directory / SentencePieceTokenizer.file_name)
    elif (directory / TOKENIZER).is_file():
        tokenizer = _wordpiece_of(read_settings(directory / TOKENIZER), settings, directory)
    elif (directory / WordPieceTokenizer.file_name).is_file():
        tokenizer = _wordpiece_over(directory / WordPieceTokenizer.file_name, settings, lowercase)
    else:
        raise UsageError(
            f"{directory} has no vocabulary; put its vocab.txt, tokenizer.json or tokenizer.model beside the model"
        )
    if contradiction := _contradiction(settings, tokenizer.vocabulary, config):
        raise UsageError(f"{directory}: {contradiction}; tokenizer and model don't belong together")
    return tokenizer


def write_tokenizer(tokenizer: Tokenizer, directory: Path, max_positions: int) -> None:
    """Writes tokenizer.json, its settings and the vocabulary's own file, for AutoTokenizer and for `read_tokenizer`.

    AutoTokenizer then gives our ids, and takes a special piece that is written in a text for that piece. It is to use
    tokenizer.json as it is: its class for BERT would make words of over 100 characters unknown, not of over 200.
    """
    vocabulary = tokenizer.vocabulary
    cls, sep = vocabulary.pieces[vocabulary.cls_id], vocabulary.pieces[vocabulary.sep_id]
    theirs = tokenizer.as_huggingface()
    theirs.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B:1 {sep}:1",
        special_tokens=[(cls, vocabulary.cls_id), (sep, vocabulary.sep_id)],
    )
    special = {name: vocabulary.pieces[number] for name, number in zip(_SPECIAL_NAMES, vocabulary.special_ids)}
    theirs.add_special_tokens([AddedToken(piece, normalized=False) for piece in special.values()])
    write_text(directory / TOKENIZER, theirs.to_str(pretty=True))
    tokenizer.write_vocabulary(directory / tokenizer.file_name)
    casing = {}
    if isinstance(tokenizer, WordPieceTokenizer):
        casing = {"do_lower_case": tokenizer.lowercase, "strip_accents": tokenizer.strip_accents}
    write_json(
        directory / SETTINGS,
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
            "model_max_length": max_positions,
            **casing,
            **special,
        },
    )


def _contradiction(settings: dict[str, Any], vocabulary: Vocabulary, config: ModelConfig) -> str | None:
    """What of the vocabulary doesn't fit its settings or the model; None where all does."""
    if len(vocabulary) != config.vocabulary_size:
        return f"the vocabulary has {len(vocabulary):,} pieces and the model's table {config.vocabulary_size:,} rows"
    for number, entry in (settings.get("added_tokens_decoder") or {}).items():
        piece, found = entry.get("content"), vocabulary.pieces[int(number) : int(number) + 1]
        if found != (piece,):
            return (
                f"{SETTINGS} calls {piece!r} piece {number}, where the vocabulary has {found[0] if found else None!r}"
            )
    longest = settings.get("model_max_length")
    if isinstance(longest, (int, float)) and config.max_positions < longest < _UNLIMITED:
        return (
            f"model_max_length in {SETTINGS} is {longest:,} pieces and the model has {config.max_positions:,} positions"
        )
    return None


def _wordpiece_over(path: Path, settings: dict[str, Any], lowercase: bool | None) -> WordPieceTokenizer:
    vocabulary = Vocabulary.read(path)
    if settings.get("do_lower_case") is not None:
        lowercase = settings["do_lower_case"]
    elif lowercase is None:
        lowercase = vocabulary.share_of_capitals < MANY_CAPITALS
    _check_ideographs(settings.get("tokenize_chinese_chars", True), path)
    return WordPieceTokenizer(vocabulary, lowercase, settings.get("strip_accents"))


def _wordpiece_of(values: dict[str, Any], settings: dict[str, Any], directory: Path) -> WordPieceTokenizer:
    path = directory / TOKENIZER
    model, normalizer = values.get("model") or {}, values.get("normalizer") or {}
    kind = model.get("type", "WordPiece" if CONTINUATION == model.get("continuing_subword_prefix") else None)
    if kind != "WordPiece" or normalizer.get("type") != "BertNormalizer":
        raise UsageError(
            f"{path}: its model is {kind} after {normalizer.get('type')}; BERT's is WordPiece after BertNormalizer. "
            f"For a sentencepiece model put its {SentencePieceTokenizer.file_name} there"
        )
    if model.get("continuing_subword_prefix", CONTINUATION) != CONTINUATION:
        raise UsageError(f"{path}: pieces continue with {model['continuing_subword_prefix']!r}, not {CONTINUATION!r}")
    _check_ideographs(normalizer.get("handle_chinese_chars", True), path)
    lowercase, told = bool(normalizer.get("lowercase")), settings.get("do_lower_case")
    if told is not None and told != lowercase:
        form = "lower-cases" if lowercase else "keeps case"
        raise UsageError(
            f"{directory}: {TOKENIZER} {form} and do_lower_case in {SETTINGS} is {told}; choose one of them"
        )
    added = {entry["content"]: entry["id"] for entry in values.get("added_tokens") or [] if isinstance(entry, dict)}
    ids = {**model.get("vocab", {}), **added}
    pieces = sorted(ids, key=ids.get)
    if [ids[piece] for piece in pieces] != list(range(len(pieces))):
        raise UsageError(f"{path}: its pieces aren't numbered from 0 to {len(pieces) - 1:,}, each number once")
    return WordPieceTokenizer(Vocabulary(pieces, str(path)), lowercase, normalizer.get("strip_accents"))


def _check_ideographs(split: bool, path: Path) -> None:
    if not split:
        raise UsageError(f"{path}: ideographs are not split apart there; BERT's tokenizer, and this, splits them")
