"""Languages as users name them: by a code of IANA's registry, like en or zh-Hant, or by a name in English."""

from functools import cache

_CUSTOMARY = frozenset("ar de en es fr hi it ja ko nl pl pt ru tr uk zh".split())
"""Codes that are taken without asking the library, which takes a moment to load."""
_SHOWN = 40
_ENCODINGS = {
    "BIG5": "zh-Hant zh-TW zh-HK",
    "GB18030": "zh",
    "SHIFT_JIS": "ja",
    "EUC-KR": "ko",
    "WINDOWS-1250": "bs cs hr hu pl ro sk sl",
    "WINDOWS-1251": "be bg mk ru sr uk",
    "WINDOWS-1253": "el",
    "WINDOWS-1254": "tr",
    "WINDOWS-1255": "he yi",
    "WINDOWS-1256": "ar fa ur",
    "WINDOWS-1257": "et lt lv",
    "WINDOWS-1258": "vi",
    "TIS-620": "th",
}
"""The languages whose old text is mostly in an encoding, by the name that iconv has for it."""
_USUAL = "WINDOWS-1252"
"""Of all other languages."""


@cache
def language_code(named: str) -> str:
    """The code of a language named by a code or in English: `en`, `eng` and `English` are `en`.

    Raises ValueError, with the language that was probably meant, for what is neither.
    """
    if named in _CUSTOMARY:
        return named
    import langcodes

    try:
        if langcodes.tag_is_valid(named):
            return langcodes.standardize_tag(named)
        found = langcodes.find(named)  # names that are a little wrong too
        names = (found.display_name(), found.autonym())
    except (LookupError, ValueError):  # its index of names raises UnicodeDecodeError for some
        raise ValueError(
            f"{named[:_SHOWN]!r} is no language; give a code like en or zh, or a name in English"
        ) from None
    if named.strip().lower() not in map(str.lower, names):
        raise ValueError(f"{named[:_SHOWN]!r} is no language that is known; did you mean {names[0]} ({found})?")
    return found.to_tag()


def usual_encoding(code: str) -> str:
    """The encoding that text of a language has most often where it is not UTF-8: a guess, for messages."""
    by_code = {each: encoding for encoding, codes in _ENCODINGS.items() for each in codes.split()}
    return by_code.get(code) or by_code.get(code.partition("-")[0], _USUAL)


def language_name(code: str) -> str:
    """The language's name in English."""
    import langcodes

    return langcodes.get(code).display_name()
