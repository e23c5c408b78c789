"""The vocabulary files of other programs: BERT's tokenizer.json, and sentencepiece models that relatives renumber."""

import base64
from pathlib import Path
from typing import Any

from bert_jax.interchange.json_file import read_object
from bert_jax.interchange.tokenizer_classes import LONGEST_WORD
from bert_jax.system.errors import UsageError, quoted
from bert_jax.text.cleaning import Cleaning
from bert_jax.text.sentencepiece import SentencePieceTokenizer, read_model
from bert_jax.text.tokenizer import Tokenizer, read_vocabulary_file
from bert_jax.text.tokenizer_json import added_token, built, check_keys, pipeline_kind, pipeline_of_merges
from bert_jax.text.vocabulary import SPECIAL_PIECES, Frame, Vocabulary, check_spelling, special_names
from bert_jax.text.wordpiece import WordPieceTokenizer

TOKENIZER, SETTINGS = Tokenizer.file_name, "tokenizer_config.json"
_PIECES = "vocab.json"
_NUMBERED_MODELS = ("sentencepiece.bpe.model", "spiece.model")
"""Names of sentencepiece models whose pieces their programs number and clean text for."""
_VOCABULARIES = (SentencePieceTokenizer.file_name, TOKENIZER, _PIECES, *_NUMBERED_MODELS, WordPieceTokenizer.file_name)
"""Files that a vocabulary is read from, the first that is there."""
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
"""Settings of BERT's model and normalizer that old files leave out."""
_FAIRSEQ = {
    "XLMRobertaTokenizer": (dict.fromkeys(("<s>", "<pad>", "</s>", "<unk>"), 0.0), 3),
    "CamembertTokenizer": (
        dict.fromkeys(("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>"), 0.0) | {"<unk>NOTUSED": -100.0},
        1,
    ),
}
"""fairseq's own first pieces with their scores, and how many of the file's pieces they replace, by class."""


def vocabulary_path(directory: Path) -> Path:
    """The first vocabulary in `directory`; a tokenizer.json goes before a sentencepiece model that isn't the same.

    Raises UsageError if there is none.
    """
    path = next((directory / name for name in _VOCABULARIES if (directory / name).is_file()), None)
    if path is None:
        raise UsageError(
            f"{directory} has no vocabulary; put the model's beside it: vocab.txt, tokenizer.json, tokenizer.model, "
            f"{', '.join(_NUMBERED_MODELS)}, or vocab.json with merges.txt"
        )
    file = directory / TOKENIZER
    if path.name == SentencePieceTokenizer.file_name and file.is_file():
        vocab = (read_object(file).get("model") or {}).get("vocab") or []
        pieces = [piece if isinstance(piece, str) else piece[0] for piece in vocab]
        return path if [piece.piece for piece in read_model(path).pieces] == pieces else file
    return path


def read_sentencepiece(path: Path, do_lower_case: bool | None) -> Tokenizer:
    """The tokenizer of a sentencepiece model that cleans text itself. Raises UsageError if `do_lower_case` isn't so."""
    tokenizer = read_vocabulary_file(path)
    if do_lower_case and tokenizer.piece_of_word("A") not in (None, tokenizer.piece_of_word("a")):
        raise UsageError(f"{path.parent / SETTINGS}: do_lower_case is true, and the sentencepiece model keeps case")
    return tokenizer


def read_vocabulary(path: Path, class_name: str) -> dict[str, Any]:
    """The vocabulary at `path` as the contents of a tokenizer.json, whose model alone may be there: the class
    `class_name` adds its steps.

    Raises UsageError if the vocabulary is invalid.
    """
    if path.name == _PIECES:
        return {"model": pipeline_of_merges(read_object(path), path)["model"]}
    if path.name in _NUMBERED_MODELS:
        return _numbered_model(path, class_name)
    if path.name != TOKENIZER:
        vocabulary = Vocabulary.read(path)
        check_spelling(vocabulary.pieces, str(path.parent))
        return {"model": {"type": "WordPiece", "vocab": vocabulary.ids}}
    value = read_object(path)
    model = value.get("model")
    if isinstance(model, dict) and model.get("type", "WordPiece") == "WordPiece":  # old files have no type
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


def with_casing(
    value: dict[str, Any], path: Path, lowercase: bool | None, do_lower_case: bool | None
) -> dict[str, Any]:
    """The tokenizer.json `value`, read from `path`, in which `lowercase`, what the user asks for, replaces the casing.

    Raises UsageError if the file doesn't say how it treats case, or if it contradicts `do_lower_case`.
    """
    cleaning = value.get("normalizer")
    if not isinstance(cleaning, dict) or cleaning.get("type") != "BertNormalizer":
        if lowercase is not None:
            raise UsageError(
                f"{path}: its normalizer isn't BERT's, so --lowercase can't be applied; leave the option out"
            )
        return value
    if lowercase is None and do_lower_case not in (None, cleaning["lowercase"]):
        raise UsageError(
            f"{path.parent}: lowercase in {path.name} is {cleaning['lowercase']} and do_lower_case in "
            f"tokenizer_config.json is {do_lower_case}; say which by --lowercase True or False"
        )
    return value | {"normalizer": cleaning | ({} if lowercase is None else {"lowercase": lowercase})}


def simplest(tokenizer: Tokenizer) -> Tokenizer:
    """`tokenizer` as a WordPieceTokenizer, which encodes faster, if its steps are BERT's and it adds no tokens."""
    value = tokenizer.contents
    cleaning, model = value.get("normalizer") or {}, value["model"]
    vocabulary = tokenizer.vocabulary
    has_berts_steps = (
        model["type"] == "WordPiece"
        and not tokenizer.added
        and {**cleaning, "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True} == cleaning
        and value["pre_tokenizer"] == {"type": "BertPreTokenizer"}
        and vocabulary.special == SPECIAL_PIECES
        and vocabulary.frame == Frame.of_separators(vocabulary.cls_id, vocabulary.sep_id)
    )
    if not has_berts_steps:
        return tokenizer
    cleaning = Cleaning.of_file(cleaning["lowercase"], cleaning["strip_accents"])
    pieces = Vocabulary(vocabulary.pieces, tokenizer.name)
    return WordPieceTokenizer(pieces, cleaning, model["max_input_chars_per_word"])


def _numbered_model(path: Path, class_name: str) -> dict[str, Any]:
    """The model of a tokenizer.json, and its cleaning, from the sentencepiece model at `path`, numbered as in
    `class_name`.

    Raises UsageError if the file isn't a unigram model, or for a class that has no such file.
    """
    if class_name not in (*_FAIRSEQ, "AlbertTokenizer"):
        raise UsageError(
            f"{path}: the tokenizer class {class_name} has no such file; {', '.join(_FAIRSEQ)}, AlbertTokenizer have"
        )
    model = read_model(path)
    if model.trainer_spec.model_type != 1:
        raise UsageError(f"{path} is no unigram model, as those of {class_name} are; give its own")
    pieces = [[piece.piece, piece.score] for piece in model.pieces]
    if class_name in _FAIRSEQ:
        first, replaced = _FAIRSEQ[class_name]
        pieces = [*map(list, first.items()), *pieces[replaced:], ["<mask>", 0.0]]
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
