"""Splits paragraphs into sentences."""

from functools import cache

import sentencex

_WITH_RULES = frozenset(
    "am ar bg bn ca da de el en es fi fr gu hi hy it ja kk kn ml mr my nl pa pl pt ru sk ta te uk".split()
)
"""Languages that sentencex has rules for, according to its source code."""
_NEED_NONE = frozenset("ko th zh".split())
"""Languages that need no rules of their own: Chinese and Korean use stops that all rules know, Thai uses none."""


def split_sentences(paragraph: str, language: str) -> list[str]:
    """The sentences of `paragraph`, stripped, without empty ones. `language` is a code like "en" or "pt-BR"; for a
    language that sentencex doesn't know, it uses the rules of a related one."""
    stripped = (sentence.strip() for sentence in sentencex.segment(_rules(language), paragraph))
    return [sentence for sentence in stripped if sentence]


def has_rules(language: str) -> bool:
    """Whether sentencex splits text of this language (a code) correctly, by rules for it or without any."""
    return language.partition("-")[0] in _WITH_RULES | _NEED_NONE


@cache
def _rules(language: str) -> str:
    """sentencex' name for a language: it knows en but not en-GB, and has lower-case names such as pt-br."""
    base = language.partition("-")[0]
    return base if base in _WITH_RULES else language.lower()
