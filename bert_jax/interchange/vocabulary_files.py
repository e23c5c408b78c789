"""Converts vocabulary files of other programs to a tokenizer.json: BERT's, byte-level BPE's and sentencepiece
models."""

import base64
from pathlib import Path

from bert_jax.interchange.relatives import RELATIVES
from bert_jax.interchange.tokenizer_classes import CLASSES, GENERIC, GENERIC_NAMES, LONGEST_WORD, special_pieces
from bert_jax.interchange.tokenizer_config import PublishedFolder
from bert_jax.system.errors import UsageError, quoted
from bert_jax.system.json_file import JsonObject
from bert_jax.text.pipeline import TOKENIZER_CONFIG, Tokenizer
from bert_jax.text.sentencepiece import SentencePieceTokenizer, read_model
from bert_jax.text.tokenizer_json import added_token, built, check_keys, pipeline_kind, pipeline_of_merges
from bert_jax.text.vocabulary import Vocabulary, check_spelling
from bert_jax.text.wordpiece import WordPieceTokenizer

MODEL_CONFIG = "config.json"
TOKENIZER = Tokenizer.file_name
_PIECES = "vocab.json"
_NUMBERED_MODELS = ("sentencepiece.bpe.model", "spiece.model", "spm.model")
"""File names of sentencepiece models. The tokenizer classes that read them number the pieces and clean text."""
VOCABULARIES = (TOKENIZER, SentencePieceTokenizer.file_name, _PIECES, *_NUMBERED_MODELS, WordPieceTokenizer.file_name)
"""Names of files with a vocabulary."""
_OF_FILES = {WordPieceTokenizer.file_name: "BertTokenizer", _PIECES: "RobertaTokenizer"}
"""The class for a vocabulary file, if no class is named."""
_MODEL = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##"} | {
    "max_input_chars_per_word": LONGEST_WORD
}
_CLEANING = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True} | {
    "strip_accents": None,
    "lowercase": True,
}
"""Defaults of settings of BERT's model and normalizer that old files leave out."""


def class_of(folder: PublishedFolder, model_type: str) -> tuple[Path, str, str]:
    """The vocabulary file in `folder`, its tokenizer class without `Fast`, and the file or setting that names it.

    The class is taken from tokenizer_config.json, else from config.json, else from the model's type, which is
    `model_type` if config.json names none. Raises UsageError for an unknown class, or if there is no vocabulary.
    """
    values = folder.values(MODEL_CONFIG) or {}
    named = {TOKENIZER_CONFIG: folder.config.tokenizer_class, MODEL_CONFIG: values.get("tokenizer_class")}
    for place, name in named.items():
        if name is not None and str(name).removesuffix("Fast") not in CLASSES:
            raise UsageError(
                f"{folder.path / place}: tokenizer_class is {quoted(name)}, whose ids bert_jax can't give; it reads "
                f"those of {', '.join(CLASSES)}"
            )
    model_type = str(values.get("model_type", model_type))
    own = RELATIVES[model_type].tokenizer if model_type in RELATIVES else None
    name, known_by = own or GENERIC, f"model_type {model_type}"
    if follows_files := bool(own and any(named.values())):
        known_by, name = next((place, name.removesuffix("Fast")) for place, name in named.items() if name)
    path = vocabulary_path(folder, name)
    of_file = _OF_FILES.get(path.name, name)
    if CLASSES[of_file].model != CLASSES[name].model and (not follows_files or name in GENERIC_NAMES):
        return path, of_file, path.name  # the class `name` doesn't read such a file
    return path, name, known_by


def vocabulary_path(folder: PublishedFolder, class_name: str = GENERIC) -> Path:
    """The vocabulary file of `folder`: its tokenizer.json, else the file of the class, else the first of VOCABULARIES.

    The generic class reads a sentencepiece model instead of a tokenizer.json that was made from it. Raises UsageError
    if there is no file.
    """
    directory, model = folder.path, folder.path / SentencePieceTokenizer.file_name
    names = (TOKENIZER, CLASSES[class_name].file or TOKENIZER, *VOCABULARIES)
    path = next((directory / name for name in names if (directory / name).is_file()), None)
    if path is None:
        raise UsageError(
            f"{directory} has no vocabulary; put the model's beside it: vocab.txt, tokenizer.json, tokenizer.model, "
            f"{', '.join(_NUMBERED_MODELS)}, or vocab.json with merges.txt"
        )
    follows_model = path.name == TOKENIZER and class_name in GENERIC_NAMES and model.is_file()
    return model if follows_model and _follows_model(folder) else path


def _follows_model(folder: PublishedFolder) -> bool:
    """Whether the steps of the tokenizer.json in `folder` are those that its sentencepiece model gives."""
    value = folder.values(TOKENIZER) or {}
    try:
        own = folder.sentencepiece.as_pipeline().contents
    except UsageError:
        return False
    return all(own[part] == value.get(part) for part in ("model", "normalizer", "pre_tokenizer", "added_tokens"))


def read_vocabulary(folder: PublishedFolder, path: Path, class_name: str) -> JsonObject:
    """The vocabulary at `path`, a file of `folder`, as the contents of a tokenizer.json. They may have only the
    model; the class `class_name` adds the rest. Tokens that a sentencepiece model never splits become added tokens.

    Raises UsageError if the vocabulary is invalid.
    """
    if path.name == _PIECES:
        return {"model": pipeline_of_merges(folder.values(_PIECES) or {}, path)["model"]}
    if path.suffix == ".model":
        return _numbered_model(path, class_name)
    if path.name != TOKENIZER:
        vocabulary = Vocabulary.read(path, special=special_pieces(class_name))
        check_spelling(vocabulary.pieces, str(path.parent))
        return {"model": {"type": "WordPiece", "vocab": vocabulary.ids}}
    value = {**(folder.values(TOKENIZER) or {})}
    model = value.get("model")
    if isinstance(model, dict) and model.get("type", "WordPiece") == "WordPiece":  # old files don't state the type
        vocab = model.get("vocab")
        if not isinstance(vocab, dict):
            raise UsageError(
                f"{path}: model.vocab is {quoted(vocab)}; an object with a number for each piece was expected"
            )
        check_spelling(vocab, str(path.parent))
        value["model"] = _MODEL | model
    cleaning = value.get("normalizer")
    if isinstance(cleaning, dict) and cleaning.get("type") == "BertNormalizer":
        value["normalizer"] = _CLEANING | cleaning
    pipeline_kind(value, str(path))
    check_keys(value, built(value, str(path)), str(path))
    return value


def _numbered_model(path: Path, class_name: str) -> JsonObject:
    """The model and the cleaning of a tokenizer.json, from the sentencepiece model at `path`. The pieces are numbered
    as in `class_name`. Raises UsageError if the file isn't a unigram model, or for a class that has no such file."""
    numbering = CLASSES[class_name].numbering
    if numbering is None:
        others = ", ".join(name for name, one in CLASSES.items() if one.numbering)
        raise UsageError(f"{path}: the tokenizer class {class_name} has no such file; {others} have")
    model = read_model(path)
    if model.trainer_spec.model_type != 1:
        raise UsageError(f"{path} is no unigram model, as those of {class_name} are; give its own")
    if len(model.pieces) <= (CLASSES[class_name].unknown or 0):
        raise UsageError(f"{path} has only {len(model.pieces)} pieces; it is damaged, fetch it again")
    own = [(piece.piece, piece.score) for piece in model.pieces]
    pieces = [*numbering.first.items(), *own[numbering.replaced :], *numbering.last.items()]
    charsmap = base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode()
    return {
        "model": {"type": "Unigram", "vocab": pieces, "unk_id": model.trainer_spec.unk_id},
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap} if charsmap else None,
        # The tokenizer class finds these tokens by their texts and gives them its numbers.
        "added_tokens": [
            added_token(piece.piece, number, special=piece.type == piece.CONTROL)
            for number, piece in enumerate(model.pieces)
            if piece.type in (piece.CONTROL, piece.USER_DEFINED)
        ],
    }
