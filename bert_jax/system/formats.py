"""Versions of the formats of files. A release reads all that earlier ones wrote, and refuses those of newer ones."""

from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError, shown


def check_format(path: Place, written: object, newest: int) -> int:
    """The format that the file at `path` says it has; `newest` is what this release writes.

    Raises UsageError where a newer release wrote the file, ValueError where that is no number of a format.
    """
    if type(written) is not int or written < 1:
        raise ValueError(f"its format is {shown(written)} and should be a number from 1")
    if written > newest:
        raise UsageError(
            f"{path} has format {shown(written)}, and this release of bert_jax reads formats up to {newest}: a newer "
            "release wrote it; use that release"
        )
    return written
