"""Languages as users name them: by a code of IANA's registry, like en or zh-Hant, or by a name in English."""

from functools import cache

_CUSTOMARY = frozenset("ar de en es fr hi it ja ko nl pl pt ru tr uk zh".split())
"""Codes that are taken without asking the library, which takes a moment to load."""
_SHOWN = 40


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


def language_name(code: str) -> str:
    """The language's name in English."""
    import langcodes

    return langcodes.get(code).display_name()
