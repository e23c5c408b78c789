"""Converts vocabulary files of other programs to a tokenizer.json: BERT's, byte-level BPE's and sentencepiece
models."""

import base64
from pathlib import Path

from bert_jax.interchange.tokenizer_classes import CLASSES, LONGEST_WORD
from bert_jax.system.errors import UsageError, quoted
from bert_jax.system.json_file import JsonObject, read_foreign_object
from bert_jax.text.pipeline import Tokenizer
from bert_jax.text.sentencepiece import SentencePieceTokenizer, read_model
from bert_jax.text.tokenizer_json import added_token, built, check_keys, pipeline_kind, pipeline_of_merges
from bert_jax.text.vocabulary import Vocabulary, check_spelling, special_names
from bert_jax.text.wordpiece import WordPieceTokenizer

TOKENIZER = Tokenizer.file_name
_PIECES = "vocab.json"
_NUMBERED_MODELS = ("sentencepiece.bpe.model", "spiece.model")
"""File names of sentencepiece models whose programs number the pieces and clean text themselves."""
VOCABULARIES = (SentencePieceTokenizer.file_name, TOKENIZER, _PIECES, *_NUMBERED_MODELS, WordPieceTokenizer.file_name)
"""Names of files with a vocabulary; the first existing one is read."""
_MODEL = {
    "type": "WordPiece",
    "unk_token": "[UNK]",
    "continuing_subword_prefix": "##",
    "max_input_chars_per_word": LONGEST_WORD,
}
_CLEANING = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True} | {
    "strip_accents": None,
    "lowercase": True,
}
"""Defaults of settings of BERT's model and normalizer that old files leave out."""


def vocabulary_path(directory: Path) -> Path:
    """The first vocabulary file in `directory`; a tokenizer.json takes precedence over a different sentencepiece model.

    Raises UsageError if there is none.
    """
    path = next((directory / name for name in VOCABULARIES if (directory / name).is_file()), None)
    if path is None:
        raise UsageError(
            f"{directory} has no vocabulary; put the model's beside it: vocab.txt, tokenizer.json, tokenizer.model, "
            f"{', '.join(_NUMBERED_MODELS)}, or vocab.json with merges.txt"
        )
    file = directory / TOKENIZER
    if path.name == SentencePieceTokenizer.file_name and file.is_file():
        vocab = (read_foreign_object(file).get("model") or {}).get("vocab") or []
        pieces = [piece if isinstance(piece, str) else piece[0] for piece in vocab]
        return path if [piece.piece for piece in read_model(path).pieces] == pieces else file
    return path


def read_vocabulary(path: Path, class_name: str) -> JsonObject:
    """The vocabulary at `path` as the contents of a tokenizer.json, which may have only its model: the class
    `class_name` adds its steps.

    Raises UsageError if the vocabulary is invalid.
    """
    if path.name == _PIECES:
        return {"model": pipeline_of_merges(read_foreign_object(path), path)["model"]}
    if path.name in _NUMBERED_MODELS:
        return _numbered_model(path, class_name)
    if path.name != TOKENIZER:
        vocabulary = Vocabulary.read(path)
        check_spelling(vocabulary.pieces, str(path.parent))
        return {"model": {"type": "WordPiece", "vocab": vocabulary.ids}}
    value = read_foreign_object(path)
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
    as in `class_name`.

    Raises UsageError if the file isn't a unigram model, or for a class that has no such file.
    """
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
    names = [piece for piece, _ in pieces]
    special = special_names(names)
    return {
        "model": {"type": "Unigram", "vocab": pieces},
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap} if charsmap else None,
        "added_tokens": [
            added_token(piece.piece, names.index(piece.piece))
            for piece in model.pieces
            if piece.type == piece.USER_DEFINED and piece.piece not in special
        ],
    }
