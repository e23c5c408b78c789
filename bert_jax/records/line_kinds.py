"""Finds lines that aren't running text by their look: markup, columns, code, wrapped paragraphs."""

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bert_jax.text.scripts import sets_no_spaces

_FEWEST_LINES, LONG_LINE = 10, 10_000
"""Fewest lines that are judged; characters above which a line is long. Most paragraphs have less than a tenth of it."""
_MOST_LONG, _MOST_ALIKE, _MOST_WRAPPED, _LEAST_LETTERS = 0.5, 0.9, 0.35, 0.7
"""Text is odd if a larger share of it is in long lines, if a larger share of its lines have equally many fields or go
on in the next line, or if a smaller share of its characters are letters. In clean text of 28 languages these four
shares are 0.02, 0.4, 0.28 and 0.83."""
_MOST_BEGUN, _MOST_MARKED = 0.2, 0.03
"""A text is odd if this share of its lines begins with the same words, or with the same sign of markup."""
_MARK = re.compile(r"[#@<>=*|%~^\\_{}\[\]+&$/].")
_OF_SPEECH = re.compile(r"(?:[^\w#@<>=*|%~^\\{}\[\]+&$/]*|[*+])(?: ?[^\W\d_]++)*+")
"""Beginnings of markup; and beginnings of prose: dashes, quotes and words."""
_STOP = re.compile(r"\w\W{0,2}[.!?…。！？।۔።։؟][\W\d]{0,3}$")
"""The end of a sentence."""
_TAGS = "a|b|blockquote|body|br|center|code|dd|div|dl|dt|em|font|gallery|h[1-6]|head|hr|html|i|iframe|img|input|li|link"
_TAGS += "|math|meta|nowiki|ol|p|pre|ref|s|script|small|span|strong|style|su[bp]|t[adhr]|table|tbody|u|ul"
_LEFTOVERS = r"</?(?:doc|templatestyles|section)\b|\bformula_\d+\b|__[A-Z]{3,}__"
_HEADERS = r"From|To|Cc|Subject|Date|Message-ID|Received|Reply-To|Content-\w+|MIME-Version|Return-Path|X-[\w-]+"
_DECODE_AGAIN = "decode the original again in its encoding, or mend this by Python's ftfy"
_SYMBOLS = "\x80-\x9f¡-ª¬-º¼-¿€‚ƒ„†‡ˆ‰Š‹ŒŽ•˜™š›œžŸ"
_BYTE = f"[{_SYMBOLS}\xa0«»…‘’“”–—]"
_WRONGLY_DECODED = (
    rf"[\x80-\x9f]|[\xc2-\xd9][{_SYMBOLS}]|â€|(?:[\xc2-\xdf]{_BYTE}){{3}}|(?:[\xe0-\xef]{_BYTE}{{2}}){{2}}"
)
"""UTF-8 that was read as Windows-1252 or Latin-1, such as Ã© and â€œ, and Windows-1252 read as Latin-1, such as U+0092.
Matches with quotes, dashes or spaces must follow one another several times, because correct text also has a capital
before a quote or a dash, and a letter before a space and a quote."""


class LineKind(NamedTuple):
    """A kind of content that running text doesn't have, found line by line."""

    name: str
    most: float
    """A text is odd if at least this share of its lines match. It is at least twice the share in clean text."""
    remedy: str
    pattern: str
    is_fault: bool = False
    """Whether even a single such line is a fault."""


KINDS = (
    LineKind("JSON", 0.05, "name it jsonl:FILE#FIELD", r'^[{\[] ?["{\[].*[}\]],?$'),
    LineKind("HTML tags", 0.03, "take the text out of the HTML", rf"(?i)</?(?:{_TAGS})(?:\s[^<>\n]*)?/?>", True),
    LineKind("XML tags", 0.03, "take the text out of the elements", rf"^<(?!/?(?:{_TAGS})\b)[/?!]?[A-Za-z][^<>]*>"),
    LineKind("HTML entities", 0.03, "decode them: Python's html.unescape", r"&(?:[a-zA-Z]{2,8}|#\d{2,6});", True),
    LineKind("wikitext", 0.05, "take the text out by WikiExtractor", r"\{\{|\}\}|\[\[|\]\]|'''|^==+ .* ==+$", True),
    LineKind("WikiExtractor's leftovers", 0.1, "delete them", _LEFTOVERS, True),
    LineKind("LaTeX", 0.05, "take the text out: pandoc -t plain", r"\\[a-zA-Z]{2,}"),
    LineKind("Markdown", 0.05, "take the text out: pandoc -t plain", r"^#{1,6} \S|^```|\]\([^\s()]+\)|\*\*\S"),
    LineKind("headers of e-mail", 0.05, "keep the bodies of the messages", rf"^>?(?:{_HEADERS}):? \S"),
    LineKind("special tokens", 0.005, "delete them", r"<\|\w+\|>|</?s>|\[(?:CLS|SEP|MASK|PAD)\]"),
    LineKind("encoded bytes", 0.02, "leave them out", r"^[A-Za-z0-9+/=_-]{40,}$"),
    LineKind("code", 0.3, "leave it out if the model is for text", r"[;{}]$|^(?:import|def|return)\b|^#include"),
    LineKind("nothing outside quotes", 0.8, "take them off, as a CSV reader does", r'^".*"$'),
    LineKind("no letter", 0.15, "leave out numbers, times and rules that stand alone", r"^[\W\d_]+$"),
    LineKind("control characters", 0.03, "delete them", r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", True),
    LineKind("wrongly decoded characters", 0.03, _DECODE_AGAIN, _WRONGLY_DECODED, True),
    LineKind("U+FFFD, lost characters", 0.03, "take the text again in its source's encoding", "\ufffd", True),
)


class Oddity(NamedTuple):
    """A property that many lines of a text have and running text doesn't."""

    kind: str
    share: float
    figure: str
    """The share in words, with an example."""
    remedy: str

    @classmethod
    def of(cls, kind: str, matching: Sequence[str], lines: Sequence[str], what: str, remedy: str) -> "Oddity":
        """The oddity of the `matching` lines among all `lines`."""
        share = len(matching) / len(lines)
        example = matching[0] if len(matching[0]) <= 40 else f"{matching[0][:37]}..."
        return cls(kind, share, f"{share:.0%} of the lines, like {example!r}, {what}", remedy)


def oddities(documents: Sequence[Sequence[str]]) -> list[Oddity]:
    """What is odd about the lines of documents, the largest share first: at most two oddities.

    There is only one if its share is at least one half.
    """
    lines = [line for document in documents for line in document]
    odd = [*_long(lines)]
    if len(lines) >= _FEWEST_LINES:
        for kind in KINDS:
            matching = [*filter(re.compile(kind.pattern).search, lines)]
            if len(matching) >= kind.most * len(lines):
                odd.append(Oddity.of(kind.name, matching, lines, f"hold {kind.name}", kind.remedy))
        kinds = (_columns(lines), _begun(lines), _wrapped(documents), _without_letters(lines))
        odd += itertools.islice(itertools.chain.from_iterable(kinds), 1)
    odd.sort(key=lambda each: -each.share)
    return odd[: 1 if odd and odd[0].share >= 0.5 else 2]


def _columns(lines: Sequence[str]) -> Iterator[Oddity]:
    """Yields an oddity if nearly all lines have equally many fields, or one word in a script that uses spaces."""
    for name, separator in (("tabs", "\t"), ("commas", ","), ("semicolons", ";"), ("spaces", None)):
        counts = [len(re.sub('"[^"]*"', '""', line).split(separator)) for line in lines]
        fields, times = Counter(counts).most_common(1)[0]
        if not separator and 2 * sum(_STOP.search(line) is not None for line in lines) > len(lines):
            continue  # sentences with equally many words
        if times >= _MOST_ALIKE * len(lines) and (fields > 1 or not separator and not sets_no_spaces(lines[0][0])):
            same, what = [lines[counts.index(fields)]] * times, f"have {fields} fields between {name}"
            yield Oddity.of("columns", same, lines, what, "give the text of one column alone, a paragraph on each line")


def _begun(lines: Sequence[str]) -> Iterator[Oddity]:
    """Yields an oddity if many lines begin with the same word and sign, such as a speaker's name, a marker or a number.

    All numbers count as equal.
    """
    for length in (1, 2):
        words = [re.sub(r"\d+", "0", " ".join(line.split(maxsplit=length)[:length])) for line in lines]
        for word, times in Counter(words).most_common(5):
            least = _MOST_MARKED if _MARK.match(word) else _MOST_BEGUN
            if times >= least * len(lines) and not _OF_SPEECH.fullmatch(word) and not sets_no_spaces(word[0]):
                same = [lines[words.index(word)]] * times
                yield Oddity.of("beginnings", same, lines, "begin alike", "take out what isn't text")


def _wrapped(documents: Sequence[Sequence[str]]) -> Iterator[Oddity]:
    pairs = [pair for document in documents for pair in itertools.pairwise(document)]
    cut = [one for one, other in pairs if other[0].islower() and (one[-1].isalnum() or one[-1] in "-,¬\u00ad")]
    if len(pairs) >= _FEWEST_LINES and len(cut) >= _MOST_WRAPPED * len(pairs):
        remedy = "join the lines of a paragraph, and words divided at a hyphen"
        yield Oddity.of("wrapped lines", cut, [one for one, _ in pairs], "go on in the next one", remedy)


def _long(lines: Sequence[str]) -> Iterator[Oddity]:
    share = sum(len(line) for line in lines if len(line) > LONG_LINE) / sum(map(len, lines))
    if share > _MOST_LONG:
        figure = f"{share:.0%} of the text is in lines of over {LONG_LINE:,} characters"
        remedy = "put a line end after each paragraph, and a blank line after each document"
        yield Oddity("long lines", share, figure, remedy)


def _without_letters(lines: Sequence[str]) -> Iterator[Oddity]:
    by_kind = Counter[str]()
    for character, count in Counter("".join(lines)).items():
        by_kind[unicodedata.category(character)[0]] += count
    share = (by_kind["L"] + by_kind["M"]) / max(by_kind.total() - by_kind["Z"] - by_kind["C"], 1)
    if share < _LEAST_LETTERS:
        figure = f"{share:.0%} of the characters are letters"
        yield Oddity("few letters", 1 - share, figure, "leave out what isn't text: numbers, code, tables")
