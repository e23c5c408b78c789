"""Loads tokenizers from paths."""

import os

from bert_jax.config.data import Accents
from bert_jax.system.bucket import Place, place_of
from bert_jax.system.copies import fetched
from bert_jax.system.errors import UsageError
from bert_jax.system.json_file import as_shape, check_format, parse_object
from bert_jax.text.cleaning import ORIGINAL, Cleaning
from bert_jax.text.pipeline import TOKENIZER_CONFIG, TOKENIZER_FORMAT, Tokenizer, TokenizerSettings
from bert_jax.text.sentencepiece import SentencePieceTokenizer, read_model
from bert_jax.text.tokenizer_json import pipeline_of_merges, read_json
from bert_jax.text.vocabulary import Content, Vocabulary, content_of
from bert_jax.text.wordpiece import WordPieceSettings, WordPieceTokenizer

__all__ = ["TOKENIZER_ORIGIN", "Tokenizer", "load_tokenizer", "read_vocabulary_file", "tokenizer_directory"]

TOKENIZER_ORIGIN = "origin.json"
"""File in the directory of a run's tokenizer with the settings and the hash of the text that it was made from."""


def load_tokenizer(path: str | os.PathLike, lowercase: bool = True, strip_accents: Accents | None = None) -> Tokenizer:
    """Loads a tokenizer from a run, a tokenizer directory, or a vocabulary's file, also in a bucket.

    The file is a vocab.txt, a sentencepiece .model, a tokenizer.json, or a vocab.json with its merges.txt beside it.
    `lowercase` and `strip_accents` apply to a vocab.txt; other files contain these settings. Raises UsageError if there
    is no tokenizer at `path`.
    """
    path = place_of(path)
    if directory := tokenizer_directory(path):
        return saved_tokenizer(fetched(directory))
    if path.is_dir():
        raise UsageError(f"{path} holds no tokenizer; give a run, its tokenizer directory, a vocab.txt or a .model")
    return read_vocabulary_file(path, Cleaning.of_file(lowercase, strip_accents))


def saved_vocabulary(directory: Place) -> Place:
    """The vocabulary among the files that `Tokenizer.save` wrote to a directory; vocab.txt if there is none."""
    others = (directory / Tokenizer.file_name, directory / SentencePieceTokenizer.file_name)
    return next((path for path in others if path.is_file()), directory / WordPieceTokenizer.file_name)


def saved_tokenizer(directory: Place, content: Content = content_of) -> Tokenizer:
    """The tokenizer of the files that `Tokenizer.save` wrote to `directory`, read by `content`.

    Raises UsageError if they are missing or damaged, come from another program or release, or contradict each other.
    """
    file = saved_vocabulary(directory)
    path = directory / TOKENIZER_CONFIG
    remedy = "give the vocabulary's own file, such as a vocab.txt or a .model, or make a run of it with bert-jax import"
    try:
        value = parse_object(content(path))
        check_format(path, value.get("format"), TOKENIZER_FORMAT)
        is_wordpiece = file.name == WordPieceTokenizer.file_name
        of_wordpiece = as_shape(value, WordPieceSettings) if is_wordpiece else None
        settings = as_shape(value, TokenizerSettings)
    except OSError as error:
        raise UsageError(f"{path} can't be read ({error.strerror}); {remedy}") from None
    except ValueError as error:
        raise UsageError(f"{path} is damaged or another program's ({error}); {remedy}") from None
    if of_wordpiece:
        vocabulary = Vocabulary.read(file, content)
        cleaning = Cleaning(**of_wordpiece.model_dump(include={*Cleaning._fields}))
        tokenizer: Tokenizer = WordPieceTokenizer(vocabulary, cleaning, of_wordpiece.longest_word)
    else:
        tokenizer = _of_file(file, content=content)
    if settings.kind != tokenizer.kind:
        raise UsageError(
            f"{file} is a {tokenizer.kind} model and {TOKENIZER_CONFIG} beside it says {settings.kind}; put the files "
            "back that were made together"
        )
    return tokenizer.with_class_token("last") if settings.class_token == "last" else tokenizer


def read_vocabulary_file(path: Place, cleaning: Cleaning = ORIGINAL) -> Tokenizer:
    """Loads a tokenizer from a file by its suffix.

    A .model is sentencepiece's, a .json is a tokenizer.json or vocab.json, and any other file is a vocab.txt.
    Raises UsageError if the file can't be used.
    """
    beside = path.with_name("merges.txt")
    if path.suffix == ".json" and beside.is_file():
        fetched(beside)
    return _of_file(fetched(path), cleaning)


def _of_file(path: Place, cleaning: Cleaning = ORIGINAL, content: Content = content_of) -> Tokenizer:
    if path.suffix == ".json":
        file = read_json(path, content)
        return Tokenizer(file if isinstance(file.get("model"), dict) else pipeline_of_merges(file, path), str(path))
    if path.suffix == ".model":
        return SentencePieceTokenizer(read_model(path, content), str(path))
    return WordPieceTokenizer(Vocabulary.read(path, content), cleaning)


def tokenizer_directory(path: Place) -> Place | None:
    """The tokenizer directory: `path` itself or `path`/tokenizer; None if neither is a tokenizer directory."""
    return next((folder for folder in (path, path / "tokenizer") if (folder / TOKENIZER_CONFIG).is_file()), None)
