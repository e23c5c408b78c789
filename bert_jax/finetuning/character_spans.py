"""Entities of a text as spans of its characters, and as tags of its words."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from bert_jax.finetuning.metrics import OUTSIDE
from bert_jax.records.record import Record
from bert_jax.system.errors import UsageError
from bert_jax.text.scripts import is_punctuation, sets_no_spaces

Range = tuple[int, int]
"""Begin and end (exclusive) in characters."""
_EXTENDED = "spans with an end within a word, extended to whole words"
_LOST = "spans without a word of their own, left out"


def word_places(text: str) -> list[Range]:
    """Where the words of a text are: split at white space, as in BERT, with punctuation and characters of scripts
    without spaces as words of their own."""
    places: list[Range] = []
    joins = False
    for place, character in enumerate(text):
        alone = is_punctuation(character) or sets_no_spaces(character)
        if joins and not (alone or character.isspace()):
            places[-1] = (places[-1][0], place + 1)
        elif not character.isspace():
            places.append((place, place + 1))
        joins = not (alone or character.isspace())
    return places


def tags_of(record: Record, name: str, text: str, repairs: Counter[str]) -> list[str]:
    """The tag of each word of `text`, B-TYPE, I-TYPE or O, from the spans in column `name`.

    A span is extended to whole words, and left out if they all belong to the span before; `repairs` counts both.
    Raises UsageError, which names the record, for spans that overlap, leave the text or have another form.
    """
    spans, places = _checked(record, name, len(text)), word_places(text)
    begins, ends = [place[0] for place in places], [place[1] for place in places]
    tags = [OUTSIDE] * len(places)
    free = 0
    for begin, end, kind in spans:
        first, last = bisect_right(ends, begin), bisect_left(begins, end)
        own = range(max(first, free), last)
        for word in own:
            tags[word] = f"{'B' if word == own.start else 'I'}-{kind}"
        repairs[_LOST] += not own
        repairs[_EXTENDED] += bool(own) and (begins[first] < begin or ends[last - 1] > end)
        free = max(free, last)
    return tags


def spans_of(tags: Sequence[str], places: Sequence[Range]) -> list[list[Any]]:
    """The entities of tags like B-TYPE and I-TYPE, as [begin, end, type]. An I- without its B- begins an entity."""
    spans: list[list[Any]] = []
    before = OUTSIDE
    for tag, (begin, end) in zip(tags, places, strict=True):
        kind = tag[2:]
        if tag.startswith("I-") and before[2:] == kind:
            spans[-1][1] = end
        elif tag != OUTSIDE:
            spans.append([begin, end, kind])
        before = tag
    return spans


def _plain(span: Any) -> Any:
    """[begin, end, type] of a span that Prodigy, doccano or Label Studio wrote as an object; others unchanged."""
    if not isinstance(span, dict):
        return span
    names = span.get("labels")
    kind = names[0] if isinstance(names, list) and len(names) == 1 else span.get("label")
    return [span.get("start", span.get("start_offset")), span.get("end", span.get("end_offset")), kind]


def _checked(record: Record, name: str, length: int) -> list[tuple[int, int, str]]:
    """The spans of a record in order."""
    value = record.value(name)
    given = value if isinstance(value, list) else [value]
    spans = [_plain(span) for span in given]
    for span, written in zip(spans, given, strict=True):
        whole = isinstance(span, list) and len(span) == 3 and type(span[0]) is type(span[1]) is int
        if not (whole and isinstance(span[2], str) and span[2].strip() and 0 <= span[0] < span[1] <= length):
            by_word = "; a file with one word on each line is --task.format conll" if isinstance(value, str) else ""
            raise UsageError(
                f"{record.place}: {name!r} has {written!r:.60} and the text {length:,} characters; give the entities "
                "of a text as [[begin, end (exclusive), type], ...] or objects with start, end and label, in "
                f"characters from 0, or a list of words and their tags{by_word}"
            )
    found = sorted((begin, end, kind.strip()) for begin, end, kind in spans)
    for one, other in pairwise(found):
        if other[0] < one[1]:
            raise UsageError(
                f"{record.place}: the spans {list(one)} and {list(other)} in {name!r} overlap, and a word has one tag; "
                "leave one of them out"
            )
    return found
