"""Carries the spans of a record's text, phrases and entities, to the tokens of the text.

In between, the text is cut into lines and sentences. The spans therefore travel inside the text, each between two
marks. The marks are Unicode noncharacters (The Unicode Standard, section 23.7), which are for a program's own use: no
text has them.
"""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from bert_jax.system.errors import UsageError, quoted
from bert_jax.text.vocabulary import PieceSpan

_OPENING = {"phrase": "\ufdd0", "entity": "\ufdd2"}
_CLOSING = {"phrase": "\ufdd1", "entity": "\ufdd3"}
_MARKS = "".join((*_OPENING.values(), *_CLOSING.values()))
_ANY = re.compile(f"[{_MARKS}]")
_REPLACEMENT = "\ufffd"


class TextSpan(NamedTuple):
    """Characters `begin` to `end` (exclusive) of a text, numbered from 0 as code points."""

    begin: int
    end: int
    kind: str
    """Either "phrase" or "entity"."""


class SpannedSentence(NamedTuple):
    """A sentence, and the spans that lie within it."""

    text: str
    spans: list[TextSpan]
    cut: int
    """Number of spans that begin in the sentence and end in another one."""


def with_spans(text: str, value: object, place: str, dropped: Counter[str]) -> str:
    """`text` with marks for the spans of `value`, which is a list of [begin, end, kind] or null.

    Invalid spans are counted in `dropped`, by reason. Raises UsageError, naming `place`, if `value` is no such list.
    """
    if not isinstance(value, list | None):
        raise UsageError(f"{place} is {quoted(value)}; expected a list of [begin, end, kind]")
    text, marks = _ANY.sub(_REPLACEMENT, text), []
    last = dict.fromkeys(_OPENING, TextSpan(0, 0, ""))
    for item in value or []:
        span = _span(item, place)
        content = text[max(span.begin, 0) : max(span.end, 0)]
        if fault := _fault(span, len(text), last[span.kind]):
            dropped[fault] += 1
        elif not content.strip():
            dropped["spans without text"] += 1
        else:
            last[span.kind] = span
            marks.append((span.begin + len(content) - len(content.lstrip()), _OPENING[span.kind]))
            marks.append((span.end - len(content) + len(content.rstrip()), _CLOSING[span.kind]))
    return _inserted(text, marks)


def _span(item: object, place: str) -> TextSpan:
    """One item of a list of spans. Raises UsageError if it isn't one."""
    if isinstance(item, list) and len(item) == 3 and {type(edge) for edge in item[:2]} == {int}:
        if item[2] in (*_OPENING,):
            return TextSpan(*item)
        raise UsageError(f"{place} has a span of kind {quoted(item[2])}; a kind is {' or '.join(_OPENING)}")
    raise UsageError(f"{place} has the span {quoted(item)}; expected [begin, end, kind], like [0, 5, 'entity']")


def _fault(span: TextSpan, size: int, before: TextSpan) -> str | None:
    """Why a span is invalid; None if it is valid. `before`: the span of the same kind before it."""
    if span.begin < 0 or span.end > size:
        return "spans past the text"
    if span.begin > span.end or span.begin < before.begin:
        return "spans out of order"
    if span.begin < before.end:
        return "spans that cross the one before"
    return None


def _inserted(text: str, marks: Sequence[tuple[int, str]]) -> str:
    """`text` with each mark before the character at its number. Closing marks come before opening marks."""
    if not marks:
        return text
    ordered = sorted(marks, key=lambda mark: (mark[0], mark[1] in _OPENING.values()))
    edges = [0, *(at for at, _ in ordered), len(text)]
    parts = [text[begin:end] for begin, end in itertools.pairwise(edges)]
    return "".join(part + mark for part, (_, mark) in zip(parts, [*ordered, (0, "")], strict=True))


def _taken_out(text: str) -> tuple[str, list[tuple[int, str]]]:
    """`text` without its marks, and each mark with its position: the inverse of `_inserted`."""
    marks = [(match.start() - number, match[0]) for number, match in enumerate(_ANY.finditer(text))]
    return _ANY.sub("", text), marks


def plain(text: str) -> str:
    """`text` without the marks of spans."""
    # Nearly every text has none, and a search for a character is much faster than one by an expression.
    return _ANY.sub("", text) if any(mark in text for mark in _MARKS) else text


def split_marked(text: str, split: Callable[[str], list[str]]) -> list[str]:
    """Splits a text without its marks by `split`. Returns the parts in order, each with the marks that belong to it."""
    if not _ANY.search(text):
        return split(text)
    whole, marks = _taken_out(text)
    parts, end = [], 0
    for part in split(whole):
        begin = whole.index(part, end)
        end = begin + len(part)
        parts.append(_inserted(part, [(at - begin, mark) for at, mark in marks if _belongs(at, mark, begin, end)]))
    return parts


def _belongs(at: int, mark: str, begin: int, end: int) -> bool:
    """Whether a mark before character `at` opens or closes a span within the characters from `begin` to `end`."""
    return begin <= at < end if mark in _OPENING.values() else begin < at <= end


def spanned(sentence: str) -> SpannedSentence:
    """A sentence without its marks, and the spans between the marks."""
    text, marks = _taken_out(sentence)
    spans, cut = [], 0
    for kind in _OPENING:
        begun = None
        for at, mark in marks:
            if mark == _OPENING[kind]:
                cut += begun is not None
                begun = at
            elif mark == _CLOSING[kind] and begun is not None:
                spans.append(TextSpan(begun, at, kind))
                begun = None
        cut += begun is not None
    return SpannedSentence(text, spans, cut)


def tokens_of(
    spans: Sequence[TextSpan], pieces: Sequence[PieceSpan], starts: Bool[np.ndarray, " n"]
) -> Int[np.ndarray, "k 2"]:
    """First token, and token after the last, of each span that is whole words.

    `starts`: whether each piece begins a word. Spaces and other characters that no piece holds belong to no word.
    """
    begins, ends = (np.array([edge for piece in pieces for edge in [piece[part]]], int) for part in (1, 2))
    # The end of the text ends a word, and its beginning begins one.
    starts = np.concatenate([[True], starts[1:], [True]])
    stretches = []
    for span in spans:
        first = int(np.searchsorted(ends, span.begin, side="right"))
        after = int(np.searchsorted(begins, span.end))
        inside = first < after and begins[first] >= span.begin and ends[after - 1] <= span.end
        if inside and not starts[first] and begins[first - 1] == ends[first - 1]:
            first -= 1  # include sentencepiece's boundary if it is a piece by itself
        if inside and starts[first] and starts[after]:
            stretches.append((first, after))
    return np.array(stretches, int).reshape(-1, 2)
