"""Joins words that are given one by one into a text, and finds the first piece of each word."""

from collections.abc import Sequence

from bert_jax.text.scripts import sets_no_spaces
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.vocabulary import PieceSpan


def joined_words(sentence: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """The words as one text, and their places in it, begin and end (exclusive) in characters.

    No space is put beside a character of a script without spaces.
    """
    whole, places = "", []
    for word in sentence:
        if whole and word and not (sets_no_spaces(whole[-1]) or sets_no_spaces(word[0])):
            whole += " "
        places.append((len(whole), len(whole) + len(word)))
        whole += word
    return whole, places


def first_pieces(
    text: str, places: Sequence[tuple[int, int]], tokenizer: Tokenizer
) -> tuple[list[PieceSpan], list[int | None]]:
    """The pieces of a text; and for each word, the index of the first piece that stands for part of it, or None."""
    spans = tokenizer.encode_spans(text)
    first: list[int | None] = []
    number = 0
    for begin, end in places:
        while number < len(spans) and spans[number].end <= max(begin, spans[number].begin):
            number += 1
        first.append(number if number < len(spans) and spans[number].begin < end else None)
    return spans, first
