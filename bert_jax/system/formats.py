"""Versions of what is written to disk."""

from bert_jax.system.bucket import Place
from bert_jax.system.errors import RunError


def refuse_newer(path: Place, written: int, known: int) -> None:
    """Raises RunError where the file at `path` has a format that came after `known`, this release's newest.

    Such a file isn't damaged: nothing of it may be repaired or set aside. All earlier formats are read.
    """
    if written > known:
        raise RunError(
            f"{path} was written by a newer release (format {written}; this one reads up to {known}); use that release"
        )
