"""Maps characters of a text to pieces and back."""

import unicodedata
from collections.abc import Sequence

from bert_jax.text.vocabulary import PieceSpan


def pieces_of(spans: Sequence[PieceSpan], begin: int, end: int) -> range:
    """The numbers of the pieces that stand for any of the characters begin to end - 1; none where they were dropped.

    `spans` are those of all the text, in order.
    """
    inside = [number for number, piece in enumerate(spans) if piece.begin < end and piece.end > begin]
    return range(inside[0], inside[-1] + 1) if inside else range(0)


def characters_of(text: str, spans: Sequence[PieceSpan], first: int, last: int) -> tuple[int, int]:
    """Begin and end (exclusive) of the characters that the pieces `first` to `last` stand for.

    No letter is parted from its combining marks, which a tokenizer may have dropped.
    """
    begin, end = spans[first].begin, spans[last].end
    while 0 < begin < len(text) and _is_mark(text[begin]):
        begin -= 1
    while end < len(text) and _is_mark(text[end]):
        end += 1
    return begin, end


def _is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M")
