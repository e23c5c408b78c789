"""Vocabularies made longer: a field's words after the pieces of an old vocabulary."""

from collections.abc import Iterable
from typing import NamedTuple

from bert_jax.system.errors import UsageError
from bert_jax.text.tokenizer import Tokenizer


class Extension(NamedTuple):
    """A longer tokenizer, and what became of the words."""

    tokenizer: Tokenizer
    added: int
    known: int
    """Words that are pieces already, or that stood twice."""
    split: int
    """Words left out: the tokenizer would split them in any case, at punctuation, spaces or ideographs."""


def extend(tokenizer: Tokenizer, words: Iterable[str]) -> Extension:
    """`tokenizer` with each of `words` as a piece; every old piece keeps its id.

    Words are cleaned as the tokenizer cleans text. A word that it always splits is left out and counted.
    """
    new, known, split = {}, 0, 0
    for word in words:
        piece = tokenizer.piece_of_word(word)
        if piece is None:
            split += 1
        elif piece in tokenizer.vocabulary.ids or piece in new:
            known += 1
        else:
            new[piece] = None
    return Extension(tokenizer.with_pieces(list(new)), len(new), known, split)


def replaced_pieces(old: Tokenizer, new: Tokenizer) -> list[list[int]]:
    """For each piece of `new`, the ids of the pieces that the old tokenizer has in its place.

    A piece of both has one, its own id; an added one has those that its text was encoded as, at least one: the
    unknown piece where nothing else is left. Thus the mean of these rows of an old word table is a
    start for the row of a longer one. Raises UsageError where `new` doesn't begin with the old pieces.
    """
    kept, pieces = old.vocabulary.pieces, new.vocabulary.pieces
    if pieces[: len(kept)] != kept:
        differing = next((at for at, piece in enumerate(kept) if pieces[at : at + 1] != (piece,)))
        found = repr(pieces[differing]) if differing < len(pieces) else "none"
        raise UsageError(
            f"the new vocabulary doesn't begin with the old one's pieces: piece {differing} is {kept[differing]!r} in "
            f"the old and {found} in the new; make it with bert-jax vocab --extend"
        )
    unknown = [old.vocabulary.unknown_id]
    added = [old.encode_piece(piece) or unknown for piece in pieces[len(kept) :]]
    return [[number] for number in range(len(kept))] + added
