"""Splits paragraphs into sentences, and sentences into words by a segmenter that the user names."""

import importlib
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator

import sentencex

from bert_jax.config.data import RecordedCode
from bert_jax.system.errors import Setting, UsageError, install_extra, quoted

_WITH_RULES = frozenset(
    "am ar bg bn ca da de el en es fi fr gu hi hy it ja kk kn ml mr my nl pa pl pt ru sk ta te uk".split()
)
"""Languages that sentencex has rules for, according to its source code."""
_NEED_NONE = frozenset("ko th zh".split())
"""Languages that need no rules. Chinese and Korean use stops that all rules know; Thai uses none."""
Segmenter = Callable[[str], Iterable[int]]
"""A function from a text to the positions where words begin or end, as numbers of characters from 0, in ascending
order."""
LONG_PARAGRAPH = 10_000
"""Characters above which a paragraph is cut before it is split into sentences."""
_STOP = re.compile("[。！？][。！？…”’」』）】]*")
_BLANK = re.compile(r"[^\S\x00-\x7f]")
"""White space that isn't ASCII."""
_BLANK_AND_STOP = re.compile(rf"{_BLANK.pattern}\.")
_LONGEST = 16_000
"""Characters that Sudachi gets in one call. It takes at most 49,149 bytes."""


def split_sentences(paragraph: str, language: str) -> list[str]:
    """The sentences of `paragraph`, stripped, without empty ones. `language` is a code like "en" or "pt-BR".

    For a language that it doesn't know, sentencex uses the rules of a related one.
    """
    # sentencex knows en but not en-GB, and has lower-case names such as pt-br.
    base = language.partition("-")[0]
    rules = base if base in _WITH_RULES else language.lower()
    sentences = (sentence for stretch in _stretches(paragraph) for sentence in _segmented(stretch, rules))
    return [stripped for sentence in sentences if (stripped := sentence.strip())]


def _stretches(paragraph: str) -> Iterator[str]:
    """Cuts a long paragraph after a Chinese stop every LONG_PARAGRAPH characters: the time of sentencex grows with the
    square of the length of Chinese text."""
    begin = 0
    while len(paragraph) - begin > LONG_PARAGRAPH and (stop := _STOP.search(paragraph, begin + LONG_PARAGRAPH)):
        yield paragraph[begin : stop.end()]
        begin = stop.end()
    yield paragraph[begin:]


def _segmented(text: str, rules: str) -> Iterator[str]:
    """Yields the sentences of `text`, which joined are `text` again."""
    # sentencex 1.0 panics for a capital letter, a blank such as U+00A0 and a full stop.
    plain = _BLANK.sub(" ", text) if _BLANK_AND_STOP.search(text) else text
    begin = 0
    for sentence in sentencex.segment(rules, plain):
        yield text[begin : begin + len(sentence)]
        begin += len(sentence)


def has_rules(language: str) -> bool:
    """Whether sentencex splits text in `language` (a code) correctly: it has rules for it, or none are needed."""
    return language.partition("-")[0] in _WITH_RULES | _NEED_NONE


def open_segmenter(name: str) -> Segmenter:
    """The segmenter that data.words names: "jieba", "sudachi" or "module:function". The module is imported from the
    Python path or the current folder.

    The segmenter checks its results: it raises UsageError, with the text, if the function fails or gives invalid
    positions. Raises UsageError if the segmenter can't be imported, or if `name` comes from a run's files alone, whose
    code is never run.
    """
    if isinstance(name, RecordedCode):
        raise UsageError(name.refusal)
    function = _NAMED[name]() if name in _NAMED else _imported(name)

    def segment(text: str) -> list[int]:
        try:
            places = list(function(text))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise UsageError(
                f"{Setting('data.words', name)} failed ({reason}) on the text {quoted(text)}; mend it"
            ) from None
        if any(not isinstance(place, int) or not 0 <= place <= len(text) for place in places) or any(
            later < earlier for earlier, later in itertools.pairwise(places)
        ):
            raise UsageError(
                f"{Setting('data.words', name)} gave {quoted(places)} for the text {quoted(text)}; give ascending "
                f"numbers of characters from 0 to {len(text)}"
            )
        return places

    return segment


def _imported(name: str) -> Segmenter:
    module, _, function = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        imported = getattr(importlib.import_module(module), function)
    except Exception as error:  # a module may raise anything when it is imported
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UsageError(
            f"{Setting('data.words', name)} can't be imported ({reason}); give jieba, sudachi or module:function"
        ) from None
    if not callable(imported):
        raise UsageError(f"{Setting('data.words', name)} is {quoted(imported)}; name a function of a text")
    return imported


def _jieba() -> Segmenter:
    try:
        import jieba
    except ImportError:
        raise UsageError(f"{Setting('data.words', 'jieba')} needs jieba; {install_extra('zh')}") from None
    jieba.setLogLevel("WARNING")
    return lambda text: itertools.accumulate(map(len, jieba.cut(text)))


def _sudachi() -> Segmenter:
    try:
        from sudachipy import Dictionary, SplitMode
    except ImportError:
        raise UsageError(f"{Setting('data.words', 'sudachi')} needs sudachipy; {install_extra('ja')}") from None
    tokenizer = Dictionary(dict="small").tokenizer(SplitMode.C)  # C gives the longest words

    def segment(text: str) -> Iterator[int]:
        for begin in range(0, len(text), _LONGEST):
            for word in tokenizer.tokenize(text[begin : begin + _LONGEST]):
                yield begin + word.end()

    return segment


_NAMED = {"jieba": _jieba, "sudachi": _sudachi}
