"""Paragraphs to sentences."""

from functools import cache

import sentencex

_WITH_RULES = frozenset(
    "am ar bg bn ca da de el en es fi fr gu hi hy it ja kk kn ml mr my nl pa pl pt ru sk ta te uk".split()
)
"""Languages that sentencex has rules for, by its source."""
_NEED_NONE = frozenset("ko th zh".split())
"""Chinese and Korean end sentences with the stops that all rules know; Thai has none that rules could know."""


def split_sentences(paragraph: str, language: str) -> list[str]:
    """Sentences of `paragraph`, stripped, none empty. `language` is a code like "en" or "pt-BR"; rules of related
    languages stand in for one that sentencex doesn't know."""
    stripped = (sentence.strip() for sentence in sentencex.segment(_rules(language), paragraph))
    return [sentence for sentence in stripped if sentence]


def has_rules(language: str) -> bool:
    """Whether sentences of a language, given by its code, are split by rules made for it."""
    return language.partition("-")[0] in _WITH_RULES | _NEED_NONE


@cache
def _rules(language: str) -> str:
    """What sentencex calls them: it knows en and no en-GB, and pt-br in small letters."""
    base = language.partition("-")[0]
    return base if base in _WITH_RULES else language.lower()
