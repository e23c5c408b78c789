"""Character spans in a text, of words, pieces and entities; and entities written as tags of words."""

import itertools
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

from bert_jax.finetuning.columns import list_or_value
from bert_jax.records.record import Record
from bert_jax.system.errors import Setting, UsageError, quoted
from bert_jax.text.scripts import is_punctuation, sets_no_spaces
from bert_jax.text.vocabulary import PieceSpan

OUTSIDE = "O"
"""The tag of a word outside of every entity."""
_PREFIXED = re.compile(r"([BIMESLU])(?:[-_](.+))?")
"""A tag like B-PER, B_PER, or B if all entities are of one type."""
_BARE_TYPE = re.compile(r"(?!.*[-_][BIMESLU]$)[^\W\d_]{2}.*")
"""A type alone, such as PER; not PER-B, nor a single character, which is more often a typing error."""
_INSIDE = {"M": "I", "L": "E", "U": "S"}
"""Maps the letters of BMES and BILOU tags to the letters of IOBES."""
Range = tuple[int, int]
"""Begin and end (exclusive), in characters."""
CONVERTED = "offsets in UTF-16 units (as JavaScript counts), converted to characters"
_COPIES = ("text", "word", "surface", "surface_form", "mention", "string")
"""Keys under which a span has its text."""
_EXTENDED = "spans with an end within a word, extended to whole words"
_IN_UNITS = "spans whose ends are ends of words in UTF-16 units (as JavaScript counts) alone: convert them"
_LOST = "spans without a word of their own, left out"


def word_places(text: str) -> list[Range]:
    """The character ranges of a text's words.

    Words are split at white space, as in BERT. Each punctuation mark, and each character of a script without
    spaces, is a word.
    """
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

    A span is extended to whole words, and left out if all of its words belong to the span before it. `repairs` counts
    spans that are extended or left out. Raises UsageError, which names the record, for spans that overlap, leave the
    text, or are written in another way.
    """
    spans, places = _checked(record, name, text, repairs), word_places(text)
    begins, ends = [place[0] for place in places], [place[1] for place in places]
    in_characters, known_begins, known_ends = CharacterOffsets(text), {*begins}, {*ends}
    tags = [OUTSIDE] * len(places)
    free = 0
    for begin, end, kind in spans:
        first, last = bisect_right(ends, begin), bisect_left(begins, end)
        own = range(max(first, free), last)
        for word in own:
            tags[word] = f"{'B' if word == own.start else 'I'}-{kind}"
        repairs[_LOST] += not own
        if own and (begins[first] < begin or ends[last - 1] > end):
            in_words = in_characters(begin) in known_begins and in_characters(end) in known_ends
            repairs[_IN_UNITS if in_words else _EXTENDED] += 1
        free = max(free, last)
    return tags


def spans_of(tags: Sequence[str], places: Sequence[Range]) -> list[list[int | str]]:
    """The entities of tags like B-TYPE and I-TYPE, as [begin, end, type]. An I- tag without its B- begins an entity."""
    spans: list[list[int | str]] = []
    before = OUTSIDE
    for tag, (begin, end) in zip(tags, places, strict=True):
        kind = tag[2:]
        if tag.startswith("I-") and before[2:] == kind:
            spans[-1][1] = end
        elif tag != OUTSIDE:
            spans.append([begin, end, kind])
        before = tag
    return spans


def _checked(record: Record, name: str, text: str, repairs: Counter[str]) -> list[tuple[int, int, str]]:
    """The spans of a record, in text order."""
    value, spans, in_characters = list_or_value(record, name), [], CharacterOffsets(text)
    for written in value if isinstance(value, list) else [value]:
        span = _span(record, name, text, in_characters, written, repairs)
        if span is None:
            raise UsageError(
                f"{record.place}: {name!r} has {written!r:.60} and the text {len(text):,} characters; give the "
                "entities of a text as [[begin, end (exclusive), type], ...] or objects with start, end and label, in "
                "characters from 0 (an emoji is one), or a list of words and their tags; a file with one word on each "
                f"line is {Setting('task.format')} conll"
            )
        spans.append(span)
    spans.sort()
    for one, other in pairwise(spans):
        if other[0] < one[1]:
            raise UsageError(
                f"{record.place}: the spans {list(one)} and {list(other)} in {name!r} overlap, and a word has one tag; "
                "leave one of them out"
            )
    return spans


def _span(
    record: Record, name: str, text: str, in_characters: "CharacterOffsets", written: Any, repairs: Counter[str]
) -> tuple[int, int, str] | None:
    """Begin, end and type of a span; None if it is written in another way or leaves the text.

    A span is written as [begin, end, type], or an object as Prodigy, doccano and Label Studio write it. If it has the
    span's text, offsets in UTF-16 units are converted. Raises UsageError if another text is at the span's place.
    """
    if isinstance(written, dict):
        names = written.get("labels")
        copy = next((value for key in _COPIES if isinstance(value := written.get(key), str) and value.strip()), None)
        kind = names[0] if isinstance(names, list) and len(names) == 1 else written.get("label")
        begin, end = (written.get(key, written.get(f"{key}_offset")) for key in ("start", "end"))
        if copy and isinstance(begin, int) and isinstance(end, int):
            there = text[max(begin, 0) : end]
            if _letters(copy) != _letters(there):
                begin, end = in_characters(begin), in_characters(end)
                repairs[CONVERTED] += 1
            if _letters(copy) != _letters(text[max(begin, 0) : end]):
                raise UsageError(
                    f"{record.place}: {name!r} has a span with the text {quoted(copy)}, and its place has "
                    f"{quoted(there)}; give start and end in characters from 0, the end exclusive"
                )
        written = [begin, end, kind]
    if not isinstance(written, list) or [type(each) for each in written] != [int, int, str]:
        return None
    begin, end, kind = written
    return (begin, end, kind.strip()) if kind.strip() and 0 <= begin < end <= len(text) else None


def _letters(text: str) -> str:
    """The characters of `text` without case and blanks, the same for composed and decomposed ones."""
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())


class CharacterOffsets:
    """Converts offsets in UTF-16 units, as JavaScript counts them, to offsets in characters of `text`."""

    def __init__(self, text: str):
        self._text = text

    @cached_property
    def _ends(self) -> list[int]:
        """The number of units up to the end of each character."""
        return [*itertools.accumulate(1 + (letter > "\uffff") for letter in self._text)]

    def __call__(self, offset: int) -> int:
        """How many characters are whole in the first `offset` units."""
        return bisect_right(self._ends, offset)


def counted_tags(tags: Sequence[str]) -> dict[str, str]:
    """Maps each tag to the tag of IOB2 or IOBES that it is counted as; empty where `tags` name no entities.

    Tags name entities if O is among them and most others look like B-PER, B_PER, B or PER. PER alone counts as I-PER.
    Remaining tags, such as a mistyped `0`, count as O.
    """
    counted = {tag: counted_tag(tag) for tag in tags if tag != OUTSIDE}
    odd = sum(name is None for name in counted.values())
    if OUTSIDE not in tags or 2 * odd >= len(counted):
        return {}
    return {OUTSIDE: OUTSIDE} | {tag: name or OUTSIDE for tag, name in counted.items()}


def counted_tag(tag: str) -> str | None:
    """The tag that `tag` is counted as: I-PER for PER, B-PER for B_PER; None if it names no entity."""
    if prefixed := _PREFIXED.fullmatch(tag):
        return f"{_INSIDE.get(prefixed[1], prefixed[1])}-{prefixed[2] or '_'}"
    return f"I-{tag}" if _BARE_TYPE.fullmatch(tag) else None


def tag_scheme(tags: Iterable[str]) -> str | None:
    """The scheme by which `tags` name entities, such as "IOB" or "BIOES"; None if they name none."""
    letters = {tag[0] for tag in counted_tags([*tags]).values()} - {OUTSIDE}
    if not letters:
        return None
    return "BIOES" if letters & {"E", "S"} else "IOB" if "B" in letters else "IO: neighbouring entities are one"


def pieces_of(spans: Sequence[PieceSpan], begin: int, end: int) -> range:
    """The indices of the pieces that stand for any of the characters begin to end - 1; empty if cleaning dropped these.

    `spans`: the pieces of the whole text, in order.
    """
    inside = [number for number, piece in enumerate(spans) if piece.begin < end and piece.end > begin]
    return range(inside[0], inside[-1] + 1) if inside else range(0)


def characters_of(text: str, spans: Sequence[PieceSpan], first: int, last: int) -> tuple[int, int]:
    """Begin and end (exclusive) of the characters that the pieces `first` to `last` stand for.

    A letter stays with its combining marks, which a tokenizer may have dropped.
    """
    begin, end = spans[first].begin, spans[last].end
    while 0 < begin < len(text) and _is_mark(text[begin]):
        begin -= 1
    while end < len(text) and _is_mark(text[end]):
        end += 1
    return begin, end


def _is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M")
