"""Filters of documents: by length, by symbols and by language."""

import functools
from collections import Counter
from collections.abc import Sequence

import numpy as np
from jaxtyping import UInt8

from bert_jax.config.data import DataConfig
from bert_jax.config.language import language_name
from bert_jax.records.signatures import word_counts
from bert_jax.system.errors import Setting, UsageError
from bert_jax.text.identification import UNSURE, blocks, identified, known_languages

NONE, SHORT_DOCUMENT, SYMBOLS, OTHER_LANGUAGE, COPY, ALL_BOILERPLATE, ALL_COPIED = range(7)
"""No reason, and the reasons to drop a document. Filters give the first three reasons, the comparison of documents the
last three."""
SETTINGS = {
    SHORT_DOCUMENT: "data.min_doc_words",
    SYMBOLS: "data.max_symbol_word_ratio",
    OTHER_LANGUAGE: "data.language_filter",
    COPY: "data.deduplicate",
    ALL_BOILERPLATE: "data.drop_boilerplate",
    ALL_COPIED: "data.deduplicate",
}
"""The settings by which documents are dropped."""
_BLOCKS = 5
"""Blocks of a document whose language is identified, besides the middle block."""
_SAME_LANGUAGE = 20
"""Languages at most this far apart count as one, as nb and da do. Unicode's table of related languages has the
distances."""


def refusals(texts: Sequence[str], data: DataConfig, source: int) -> UInt8[np.ndarray, " N"]:
    """For each of N texts, documents of source number `source`: the first filter that refuses it, or NONE."""
    refused_by = np.zeros(len(texts), np.uint8)
    words = word_counts(texts) if data.min_doc_words or data.max_symbol_word_ratio is not None else None
    # Symbols are # and the ellipsis (Rae et al. 2021, Gopher, table A1).
    most_symbols = np.inf if data.max_symbol_word_ratio is None else data.max_symbol_word_ratio
    for number, text in enumerate(texts):
        if words is not None and words[number] < data.min_doc_words:
            refused_by[number] = SHORT_DOCUMENT
        elif words is not None and text.count("#") + text.count("…") + text.count("...") > most_symbols * words[number]:
            refused_by[number] = SYMBOLS
        elif data.language_filter and is_of_other_language(text, data.languages[source]):
            refused_by[number] = OTHER_LANGUAGE
    return refused_by


def check_language_filter(data: DataConfig) -> None:
    """Raises UsageError if documents are to be filtered by a language that can't be identified."""
    for language in data.languages if data.language_filter else ():
        if not is_identifiable(language):
            raise UsageError(
                f"{Setting('data.language_filter')} can't identify {language} ({language_name(language)}); leave it "
                "out, since text in that language may be taken for another. It can identify "
                f"{' '.join(sorted(known_languages()))}"
            )


def is_identifiable(language: str) -> bool:
    """Whether `identified` knows a language, or another that is as close to it as nb is to da."""
    return any(are_same_language(known, language) for known in known_languages())


def is_of_other_language(text: str, language: str) -> bool:
    """Whether a document is in another language than `language`.

    It is if its middle block is in another language, and also most of several blocks spread over it. Blocks of unsure
    language don't count.
    """
    parts = list(blocks(text.split("\n")))
    middle = identified(parts[len(parts) // 2])
    if middle == UNSURE or are_same_language(middle, language):
        return False
    spread = parts[:: max(len(parts) // _BLOCKS, 1)][:_BLOCKS]
    languages = Counter([middle, *map(identified, spread)])
    del languages[UNSURE]
    others = sum(count for other, count in languages.items() if not are_same_language(other, language))
    return others > languages.total() / 2


@functools.cache
def are_same_language(first: str, second: str) -> bool:
    """Whether two codes name one language, or two that are as close as nb and da."""
    import langcodes

    base, other_base = (langcodes.get(code).language or code for code in (first, second))
    return langcodes.tag_distance(base, other_base) <= _SAME_LANGUAGE
