"""Whether a source is written in the script of the language that it is said to be in."""

from collections.abc import Iterable
from itertools import islice

from bert_jax.corpora.corpus import Document
from bert_jax.text.scripts import letters_by_script

_SAMPLE = 50_000
"""Characters that are looked at, the first ones of a source."""
_LEAST_LETTERS = 200
"""Fewest letters that are judged."""
_NAMES = {
    **{"Latn": "LATIN", "Cyrl": "CYRILLIC", "Grek": "GREEK", "Armn": "ARMENIAN", "Geor": "GEORGIAN"},
    **{"Arab": "ARABIC", "Hebr": "HEBREW", "Ethi": "ETHIOPIC", "Thaa": "THAANA"},
    **{"Deva": "DEVANAGARI", "Beng": "BENGALI", "Gujr": "GUJARATI", "Guru": "GURMUKHI", "Orya": "ORIYA"},
    **{"Taml": "TAMIL", "Telu": "TELUGU", "Knda": "KANNADA", "Mlym": "MALAYALAM", "Sinh": "SINHALA"},
    **{"Thai": "THAI", "Laoo": "LAO", "Khmr": "KHMER", "Mymr": "MYANMAR", "Tibt": "TIBETAN"},
    **{"Hans": "CJK", "Hant": "CJK", "Jpan": "CJK HIRAGANA KATAKANA", "Kore": "HANGUL CJK"},
}
"""First words of the Unicode names of a script's letters, by the script's code."""


def script_remark(documents: Iterable[Document], language: str) -> str | None:
    """A remark if less than half of the letters at the beginning of a source are of its language's usual script."""
    import langcodes

    expected = _NAMES.get(langcodes.get(language).maximize().script or "", "").split()
    text = (character for document in documents for line in document for character in line)
    letters = letters_by_script(islice(text, _SAMPLE))
    total = letters.total()
    if not expected or total < _LEAST_LETTERS or sum(letters[name] for name in expected) >= total / 2:
        return None
    found = ", ".join(f"{count / total:.0%} {name.title()}" for name, count in letters.most_common(3))
    return f"is said to be in {language}, whose script is {expected[0].title()}, and its letters are {found}"
