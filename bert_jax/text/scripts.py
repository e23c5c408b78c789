"""Punctuation, and scripts without spaces between words."""

import string
import unicodedata

_WITHOUT_SPACES = frozenset("CJK HIRAGANA KATAKANA HALFWIDTH BOPOMOFO YI THAI LAO KHMER MYANMAR TIBETAN".split())
"""First words of the Unicode names of characters in scripts without spaces between words."""


def is_punctuation(character: str) -> bool:
    """Whether BERT treats it as punctuation: category P, and ASCII characters except letters, digits and spaces."""
    return character in string.punctuation or unicodedata.category(character).startswith("P")


def sets_no_spaces(character: str) -> bool:
    """Whether `character` is of a script without spaces between words, such as Chinese or Thai."""
    return unicodedata.name(character, "").partition(" ")[0] in _WITHOUT_SPACES
