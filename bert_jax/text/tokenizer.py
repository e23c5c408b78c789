"""Finding the tokenizer that a path holds."""

import os
from pathlib import Path

from bert_jax.system.errors import UsageError
from bert_jax.text.vocabulary import Vocabulary
from bert_jax.text.wordpiece import WordPieceTokenizer


def load_tokenizer(
    path: str | os.PathLike, lowercase: bool = True, strip_accents: bool | None = None
) -> WordPieceTokenizer:
    """The tokenizer of a run (which brings its own casing), of a tokenizer directory, or over a vocab.txt.

    Raises UsageError where there is none at `path`.
    """
    path = Path(path)
    for directory in (path, path / "tokenizer"):
        if (directory / "tokenizer_config.json").is_file():
            return WordPieceTokenizer.load(directory)
    if path.is_dir():
        raise UsageError(f"{path} holds no tokenizer; give a run, its tokenizer directory or a vocab.txt")
    return WordPieceTokenizer(Vocabulary.read(path), lowercase, strip_accents)
