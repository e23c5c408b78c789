"""tokenizer_config.json of a tokenizer directory of ours: which kind of tokenizer it is, and how that treats text."""

from pathlib import Path
from typing import Literal

from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError
from bert_jax.system.files import write_json
from bert_jax.system.json_file import Shape, ShapeKind, read_shape

FILE_NAME = "tokenizer_config.json"


class TokenizerSettings(Shape):
    """What the file says. Another program's file of the same name has no `kind`."""

    kind: Literal["wordpiece", "unigram", "bpe"]


class WordPieceSettings(TokenizerSettings):
    """What it says of a WordPiece."""

    kind: Literal["wordpiece"]
    lowercase: bool
    strip_accents: bool


def read_settings(directory: Path, shape: type[ShapeKind]) -> ShapeKind:
    """The settings in `directory`. Raises UsageError where they are missing, damaged or another program's."""
    path = directory / FILE_NAME
    remedy = "give the vocabulary's own file, a vocab.txt or a .model, or make a run of it with bert-jax import"
    try:
        return read_shape(path, shape)
    except OSError as error:
        raise UsageError(f"{path} can't be read ({error.strerror}); {remedy}") from None
    except ValueError as error:
        raise UsageError(f"{path} is damaged or another program's ({error}); {remedy}") from None


def write_settings(directory: Place, settings: TokenizerSettings) -> None:
    """Writes the file, which is to be the last of its directory: what has it is whole."""
    write_json(directory / FILE_NAME, settings.model_dump())
