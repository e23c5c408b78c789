"""What characters mean for words: punctuation, invisible characters, and scripts without spaces between words."""

import functools
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable

from bert_jax.text.vocabulary import BOUNDARY

TextCut = Callable[[Iterable[str]], list[str]]
"""A function that cuts texts between words or their parts, and puts a line break after the parts of each text."""
_WITHOUT_SPACES = frozenset("CJK HIRAGANA KATAKANA HALFWIDTH BOPOMOFO YI THAI LAO KHMER MYANMAR TIBETAN".split())
"""First words of the Unicode names of characters in scripts without spaces between words."""


def is_punctuation(character: str) -> bool:
    """Whether BERT treats `character` as punctuation: category P, and all ASCII symbols, such as $ and +."""
    return character in string.punctuation or unicodedata.category(character).startswith("P")


def sets_no_spaces(character: str) -> bool:
    """Whether `character` is of a script without spaces between words, such as Chinese or Thai."""
    return script_of(character) in _WITHOUT_SPACES


@functools.cache
def script_of(character: str) -> str:
    """The first word of the character's Unicode name, which for a letter is its script; empty if it has no name."""
    return unicodedata.name(character, "").partition(" ")[0]


def letters_by_script(text: Iterable[str]) -> Counter[str]:
    """The number of letters of each script, by `script_of`, in a text or a stream of characters."""
    letters = Counter[str]()
    for character, count in Counter(text).items():
        if character.isalpha():
            letters[script_of(character)] += count
    return letters


def combines(character: str) -> bool:
    """Whether `character` may combine with the ones before it: a mark, or a vowel or final of a Hangul syllable."""
    return unicodedata.category(character).startswith("M") or "\u1160" <= character <= "\u11ff"


def starts_word(piece: str) -> bool:
    """Whether a piece begins a word: after a space, as punctuation, or in a script without spaces."""
    first = piece[:1]
    return first == BOUNDARY or (first != "" and (is_punctuation(first) or sets_no_spaces(first)))


def visible(text: str, begin: int, end: int) -> tuple[int, int]:
    """The span without spaces, control and format characters at its ends."""
    while end > begin and _unseen(text[end - 1]):
        end -= 1
    while begin < end and _unseen(text[begin]):
        begin += 1
    return begin, end


def _unseen(character: str) -> bool:
    return character.isspace() or unicodedata.category(character) in ("Cc", "Cf")
