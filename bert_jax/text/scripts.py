"""What kind of writing a character belongs to."""

import string
import unicodedata

_WITHOUT_SPACES = frozenset("CJK HIRAGANA KATAKANA HALFWIDTH BOPOMOFO YI THAI LAO KHMER MYANMAR TIBETAN".split())
"""First words of the Unicode names of characters of scripts that set no spaces between words."""


def is_punctuation(character: str) -> bool:
    """As in BERT: all of category P, and every ASCII character that is neither letter, digit nor space."""
    return character in string.punctuation or unicodedata.category(character).startswith("P")


def sets_no_spaces(character: str) -> bool:
    """Whether `character` is of a script without spaces between words, such as Chinese or Thai."""
    return unicodedata.name(character, "").partition(" ")[0] in _WITHOUT_SPACES
