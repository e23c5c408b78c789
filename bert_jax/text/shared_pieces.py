"""Finds the pieces that two vocabularies share, whatever kinds they are of."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Int

from bert_jax.text.tokenizer import Tokenizer

ABSENT = -1
"""In place of an id: the other vocabulary doesn't have the piece."""
_Spelling = tuple[bool, str]
"""Whether a piece begins a word, and its characters."""


def shared_pieces(old: Tokenizer, new: Tokenizer) -> Int[np.ndarray, " V"]:
    """For each piece of `new`, the id of the piece of `old` with the same meaning, or ABSENT.

    Special pieces correspond by their roles. Other pieces are compared by the bytes that they add to a text and by
    whether they begin a word (`Tokenizer.starts_word`), which each kind of vocabulary writes in its own way: ##,
    U+2581, or the space of a byte-level BPE. If no piece of `old` is equal, the piece of `old` for the text as `old`
    cleans it is taken, so that a cased piece corresponds to the lower-cased one. If there is none either, the first
    piece of `old` is taken that becomes this text when `new` cleans it. Between vocabularies of one kind, a piece of
    `old` with the same spelling takes precedence over all of these.
    """
    equal: dict[_Spelling, int] = {}
    cleaned: dict[_Spelling, int] = {}
    for number, (begins, text) in _spellings(old):
        equal.setdefault((begins, text), number)
        cleaned.setdefault((begins, _cleaned(text, new)), number)
    shared = np.full(len(new.vocabulary), ABSENT)
    for number, (begins, text) in _spellings(new):
        as_cleaned = begins, _cleaned(text, old)
        shared[number] = equal.get((begins, text), equal.get(as_cleaned, cleaned.get((begins, text), ABSENT)))
    if old.kind == new.kind:
        for number, piece in enumerate(new.vocabulary.pieces):
            shared[number] = old.vocabulary.ids.get(piece, shared[number])
    shared[list(new.vocabulary.special_ids)] = old.vocabulary.special_ids
    return shared


def _spellings(tokenizer: Tokenizer) -> Iterator[tuple[int, _Spelling]]:
    """The id of each piece but the special ones, with whether it begins a word and its text. Bytes that make no
    character are written as lone surrogates."""
    special = {*tokenizer.vocabulary.special_ids}
    for number, begins in enumerate(tokenizer.starts_word.tolist()):
        if number not in special:
            text = tokenizer.text_bytes(number).decode("utf-8", "surrogateescape")
            yield number, (begins, text.removeprefix(" ") or text)


def _cleaned(text: str, tokenizer: Tokenizer) -> str:
    """`text` as the tokenizer cleans it; bytes that make no character stay as they are."""
    return text if any("\ud800" <= letter <= "\udfff" for letter in text) else tokenizer.cleaned(text).strip()
