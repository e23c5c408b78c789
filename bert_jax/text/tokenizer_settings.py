"""tokenizer_config.json of our tokenizer directories: the kind of tokenizer, and how it treats text."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from bert_jax.system.errors import UsageError
from bert_jax.system.json_file import Shape, ShapeKind, as_shape, check_format, read_object
from bert_jax.text.cleaning import Accents, UnicodeForm

FILE_NAME = "tokenizer_config.json"
_FORMAT = 1
"""Version of the format of the directory."""


Kind = Literal["wordpiece", "unigram", "bpe", "byte_bpe", "metaspace"]


class TokenizerSettings(Shape):
    """The settings of any tokenizer. Files of the same name by other programs have no `kind`."""

    format: Annotated[int, Field(ge=1)] = _FORMAT
    kind: Kind


class WordPieceSettings(TokenizerSettings):
    """The settings of a WordPiece tokenizer."""

    kind: Literal["wordpiece"]
    lowercase: bool
    strip_accents: Accents
    form: UnicodeForm | None = None
    divides_words: bool = False
    turkish: bool = False
    longest_word: Annotated[int, Field(ge=1)] = 200
    """Most characters of a word that has pieces."""


def read_settings(directory: Path, shape: type[ShapeKind]) -> ShapeKind:
    """Reads the settings in `directory`.

    Raises UsageError if they are missing, damaged, or were written by another program or release.
    """
    path = directory / FILE_NAME
    remedy = "give the vocabulary's own file, such as a vocab.txt or a .model, or make a run of it with bert-jax import"
    try:
        value = read_object(path)
        check_format(path, value.get("format"), _FORMAT)
        return as_shape(value, shape)
    except OSError as error:
        raise UsageError(f"{path} can't be read ({error.strerror}); {remedy}") from None
    except ValueError as error:
        raise UsageError(f"{path} is damaged or another program's ({error}); {remedy}") from None
