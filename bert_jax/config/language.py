"""Names of languages: codes of IANA's registry, like en or zh-Hant, and English names."""

from collections.abc import Iterable
from functools import cache
from typing import Annotated

from pydantic import AfterValidator

from bert_jax.config.settings import OneOrSeveral
from bert_jax.config.wording import value_text

_COMMON_CODES = {"ar", "de", "en", "es", "fr", "hi", "it", "ja", "ko", "nl", "pl", "pt", "ru", "tr", "uk", "zh"}
"""Codes for which langcodes isn't loaded, since loading takes a moment."""
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
"""Encoding, by its name in iconv -> the languages whose older text is mostly in this encoding."""
_DEFAULT_ENCODING = "WINDOWS-1252"
"""Encoding for all other languages."""


@cache
def language_code(name: str) -> str:
    """The standard code of a language given by a code or an English name: `en` for `en`, `eng` and `English`. Raises
    ValueError, with the most similar language, for an unknown language."""
    if name in _COMMON_CODES:
        return name
    import langcodes

    try:
        if langcodes.tag_is_valid(name):
            return langcodes.standardize_tag(name)
        match = langcodes.find(name)  # also finds misspelled names
        names = (match.display_name(), match.autonym())
    except (LookupError, ValueError):  # langcodes' index raises UnicodeDecodeError for some names
        raise ValueError(
            f"{value_text(name)} is no language; give a code like en or zh, or a name in English"
        ) from None
    if name.strip().lower() not in map(str.lower, names):
        raise ValueError(f"{value_text(name)} is no language that is known; did you mean {names[0]} ({match})?")
    return match.to_tag()


def _codes(names: Iterable[str]) -> tuple[str, ...]:
    try:
        return tuple(map(language_code, names))
    except ValueError as error:
        raise ValueError(f": {error}") from None


Languages = Annotated[OneOrSeveral, AfterValidator(_codes)]
"""One or several languages, given by codes or English names and held as codes."""


def usual_encoding(code: str) -> str:
    """The most frequent encoding of text in the language `code` except UTF-8: a guess for messages."""
    by_code = {each: encoding for encoding, codes in _ENCODINGS.items() for each in codes.split()}
    return by_code.get(code) or by_code.get(code.partition("-")[0], _DEFAULT_ENCODING)


def has_turkish_case(code: str) -> bool:
    """Whether the capitals of i and ı in the language `code` are İ and I, as in Turkish and Azeri."""
    return code.partition("-")[0] in ("tr", "az")


def language_name(code: str) -> str:
    """The language's name in English."""
    import langcodes

    return langcodes.get(code).display_name()
