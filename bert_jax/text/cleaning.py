"""Cleans text before it is split into pieces: case, accents, control characters and Unicode's normal forms."""

import re
import unicodedata
from functools import cache
from typing import NamedTuple

from tokenizers import Regex, normalizers

from bert_jax.config.data import Accents, UnicodeForm
from bert_jax.text.vocabulary import BOUNDARY

_CASED_MARKS = (
    "\u0300-\u036f\u0483-\u0487\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20f0"
    "\u2de0-\u2dff\ua66f\ua674-\ua67d\ua69e\ua69f\ufe20-\ufe2f"
)
"""Marks of Latin, Greek and Cyrillic letters, as the inside of a character class. In scripts without case, marks spell
vowels and consonants, as in Hindi and Japanese."""
_SELECTORS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
"""Variation selectors. These marks choose the picture of a character but leave the character the same."""
_JOINERS = "\u200c\u200d"
"""Format characters that spelling needs: the non-joiner of Persian, and the joiner of Sinhala's conjuncts."""
ZERO_WIDTH_SPACE = "\u200b"
"""Zero-width space, written between words in Khmer, Lao, Burmese, Thai and Tibetan. Unicode doesn't count it as white
space."""
_TURKISH_CAPITALS = {"I\u0307": "i", "İ": "i", "I": "ı"}
"""Capitals of Turkish and Azeri and their small letters, in the order of replacement. Other languages pair them
differently."""
_CASED = re.compile(f"[{_CASED_MARKS}{_SELECTORS}]")
_CHARACTERS = (
    range(1, 0x3400),
    range(0xA000, 0xD800),
    range(0xF900, 0x17000),
    range(0x1AFF0, 0x20000),
    range(0x2F800, 0x2FA20),
    range(0xE0000, 0xE0200),
)
"""Code points that cleaning may change: all except ideographs, surrogates and private-use characters."""


class Cleaning(NamedTuple):
    """The settings of cleaning. White space and control characters are always cleaned."""

    lowercase: bool = True
    strip_accents: Accents = True
    form: UnicodeForm | None = None
    """Unicode's normal form of the cleaned text. None: the cleaning of the original BERT, which drops joiners,
    decomposes characters if it strips accents, and otherwise leaves them as they are."""
    divides_words: bool = False
    """Whether U+200B divides words, and whether a WordPiece cuts long words, as in vocabularies that are trained here.
    The original deletes U+200B and turns a long word into [UNK]."""
    turkish: bool = False
    """Whether lower-casing turns I into ı and İ into i, as in Turkish and Azeri."""

    @classmethod
    def of_file(
        cls, lowercase: bool = True, strip_accents: Accents | None = None, form: UnicodeForm | None = None
    ) -> "Cleaning":
        """The cleaning for a vocab.txt of other programs: the original's, unless a setting asks for a normal form."""
        stripped = lowercase if strip_accents is None else strip_accents
        form = form or ("NFC" if stripped == "cased" else None)
        return cls.of_training(lowercase, stripped, form) if form else cls(lowercase, stripped)

    @classmethod
    def of_training(
        cls, lowercase: bool = True, strip_accents: Accents | None = None, form: UnicodeForm | None = None
    ) -> "Cleaning":
        """The cleaning for a vocabulary that is trained here.

        By default, `lowercase` also strips the accents of scripts with case.
        """
        default: Accents = "cased" if lowercase else False
        return cls(lowercase, default if strip_accents is None else strip_accents, form or "NFC", divides_words=True)

    def normalizer(self) -> normalizers.Normalizer:
        """The cleaning as a step of Hugging Face's tokenizers. It also puts spaces around ideographs."""
        if self.form is None:
            return normalizers.BertNormalizer(
                clean_text=True,
                handle_chinese_chars=True,
                strip_accents=bool(self.strip_accents),
                lowercase=self.lowercase,
            )
        spaces_and_case = normalizers.BertNormalizer(
            clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=self.lowercase
        )
        unseen = normalizers.Replace(Regex(rf"[\p{{Cc}}\p{{Cf}}\p{{Co}}\ufffd&&[^\t\n\r{_JOINERS}]]"), "")
        divided = [normalizers.Replace(ZERO_WIDTH_SPACE, " ")] if self.divides_words else []
        return normalizers.Sequence([*divided, *self.composing(), unseen, spaces_and_case])

    def composing(self) -> list[normalizers.Normalizer]:
        """The steps that strip accents and compose the rest.

        With `turkish` they first replace I and İ, whose dot would be stripped as an accent.
        """
        cased = [normalizers.Replace(*pair) for pair in _TURKISH_CAPITALS.items()] if self.turkish else []
        if not self.strip_accents:
            return [*cased, normalizers.NFC() if self.form == "NFC" else normalizers.NFKC()]
        marks = _CASED_MARKS + _SELECTORS if self.strip_accents == "cased" else r"\p{Mn}"
        decomposed = normalizers.NFKD() if self.form == "NFKC" else normalizers.NFD()
        return [*cased, decomposed, normalizers.Replace(Regex(f"[{marks}]+"), ""), normalizers.NFC()]

    def of_character(self, character: str) -> str:
        """The cleaned form of one character; "" if the character is dropped."""
        if character.isspace() or character == BOUNDARY or self.divides_words and character == ZERO_WIDTH_SPACE:
            return " "
        if self.turkish:
            character = _TURKISH_CAPITALS.get(character, character)
        if character == "\ufffd" or unicodedata.category(character) in ("Cc", "Cf") and character not in _JOINERS:
            return ""
        form = self.form or "NFC"
        text = unicodedata.normalize("NFKD" if form == "NFKC" else "NFD", character)
        if self.strip_accents == "cased":
            text = _CASED.sub("", text)
        elif self.strip_accents:
            text = "".join(part for part in text if unicodedata.category(part) != "Mn")
        text = unicodedata.normalize(form, text)
        return unicodedata.normalize(form, text.lower()) if self.lowercase else text


ORIGINAL = Cleaning()
"""The cleaning of the original BERT's lower-cased models."""


@cache
def sentencepiece_rules(cleaning: Cleaning) -> str:
    """`cleaning` as sentencepiece's rules. Each line has code points, a tab, and their replacement.

    Replacements are composed, so that a letter has one form in whatever form it was written.
    """
    rules = {}
    for point in (point for characters in _CHARACTERS for point in characters):
        character = chr(point)
        clean = cleaning.of_character(character)
        for written in {character, unicodedata.normalize("NFD", character), _one_step_decomposed(character)}:
            if written != clean:
                rules[written] = clean
    return "".join(f"{_hexadecimal(written)}\t{_hexadecimal(clean)}\n" for written, clean in sorted(rules.items()))


def _one_step_decomposed(character: str) -> str:
    """The letter with only its last accent decomposed, as Vietnamese is often written."""
    parts = unicodedata.decomposition(character)
    return "".join(chr(int(part, 16)) for part in parts.split()) if parts and parts[0] != "<" else character


def _hexadecimal(text: str) -> str:
    return " ".join(f"{ord(character):x}" for character in text)
