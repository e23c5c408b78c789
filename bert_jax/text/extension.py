"""Extends a vocabulary by words and markers, which follow its old pieces."""

from collections.abc import Iterable
from typing import NamedTuple

from bert_jax.system.errors import Setting, UsageError
from bert_jax.text.pipeline import Tokenizer
from bert_jax.text.tokenizer_json import added_token


class Extension(NamedTuple):
    """An extended tokenizer, and how many words and markers were added or left out."""

    tokenizer: Tokenizer
    added: int
    known_words: int
    """Number of words that were pieces already, or that occurred before."""
    split: int
    """Number of words left out because the tokenizer always splits them, at punctuation, spaces or ideographs."""
    markers: int
    """Number of markers that were added."""


def extend(tokenizer: Tokenizer, words: Iterable[str], markers: Iterable[str] = ()) -> Extension:
    """`tokenizer` with each of `words` and `markers` as a piece; every old piece keeps its id.

    Words are cleaned as the tokenizer cleans text. A word that it always splits is left out and counted. A marker, such
    as [E11], is matched exactly, before the text is cleaned and split. With markers the result is a tokenizer.json,
    whatever the kind of `tokenizer`. Raises UsageError if `tokenizer` can't be expressed as a tokenizer.json.
    """
    new: dict[str, None] = {}
    known = split = 0
    for word in words:
        piece = tokenizer.piece_of_word(word)
        if piece is None:
            split += 1
        elif piece in tokenizer.vocabulary.ids or piece in new:
            known += 1
        else:
            new[piece] = None
    extended = tokenizer.with_pieces(list(new)) if new else tokenizer
    added = [marker for marker in dict.fromkeys(markers) if marker not in extended.vocabulary.ids]
    if added:
        numbered = enumerate(added, len(extended.vocabulary))
        extended = extended.with_added(added_token(marker, number) for number, marker in numbered)
    return Extension(extended, len(new), known, split, len(added))


def check_extension(old: Tokenizer, new: Tokenizer) -> None:
    """Raises UsageError if the pieces of `new` don't begin with those of `old`."""
    first, pieces = old.vocabulary.pieces, new.vocabulary.pieces
    if pieces[: len(first)] != first:
        differing = next((at for at, piece in enumerate(first) if pieces[at : at + 1] != (piece,)))
        new_piece = repr(pieces[differing]) if differing < len(pieces) else "none"
        raise UsageError(
            f"the new vocabulary doesn't begin with the old one's pieces: piece {differing} is {first[differing]!r} in "
            f"the old and {new_piece} in the new; extend the old one with bert-jax vocab --extend, or put the new one "
            f"in its place with {Setting('vocabulary.exchange', True)}"
        )
