"""Identifies the language of a piece of text, by its script if that decides, otherwise by py3langid's model."""

import functools
import io
import lzma
import re
import threading
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from bert_jax.text.scripts import letters_by_script

BLOCK_CHARACTERS = 600
"""Characters in a block. Answers are right for 0.998 of all blocks, and for 0.8 to 0.9 of lines under 40 characters."""
UNSURE = "unsure"
"""The answer if the language of a text isn't clear."""
UNDETERMINED = "und"
"""The answer if letters show that the model doesn't know the language. It is ISO's code for undetermined."""
_FEWEST_LETTERS, _FEWEST_OF_SCRIPT = 12, 3
"""Fewest letters that the model judges; fewest letters that are judged by their script alone."""
_LEAST_PROBABILITY, _LEAST_AMONG_FEW = 0.5, 0.8
"""Least probability of a sure answer: in Latin script, and among the few languages of another script. Wrong answers for
whole blocks have lower probabilities."""
_LEAST_KANA = 0.2
"""Least share of kana among the letters of a Japanese text. Japanese prose has 0.4 and more; Chinese prose has some in
names."""
_LETTERS_A_CHARACTER = {"CJK": 3, "HANGUL": 2}
"""Number of Latin letters that a character of these scripts counts for in a text with both."""
_OF_SCRIPT = {
    **{"GREEK": ("el",), "ARMENIAN": ("hy",), "GEORGIAN": ("ka",), "HEBREW": ("he",), "ETHIOPIC": ("am",)},
    **{"GUJARATI": ("gu",), "GURMUKHI": ("pa",), "ORIYA": ("or",), "TAMIL": ("ta",), "TELUGU": ("te",)},
    **{"KANNADA": ("kn",), "MALAYALAM": ("ml",), "SINHALA": ("si",), "THAI": ("th",), "LAO": ("lo",)},
    **{"KHMER": ("km",), "MYANMAR": ("my",), "HANGUL": ("ko",)},
    **{"CJK": ("zh",), "BOPOMOFO": ("zh",), "HIRAGANA": ("ja",), "KATAKANA": ("ja",)},
    "CYRILLIC": ("be", "bg", "kk", "ky", "mk", "mn", "ru", "sr", "uk", "ba", "tg", "tt"),
    "ARABIC": ("ar", "fa", "ps", "ug", "ur"),
    "DEVANAGARI": ("gom", "hi", "mr", "ne", "sa"),
    "BENGALI": ("as", "bn"),
}
"""The model's languages by script; all others have Latin script.

Dialects that the model confuses with their standard language are left out, such as arz and yue. So are dz and sdh,
because the model identifies Tibetan as dz and Sorani as sdh."""
_OTHERS = {"arz", "ary", "wuu", "yue", "uzs", "hbo", "grc", "gcf", "gcr", "dz", "sdh", "zxx"}
_NOT_LATIN = _OTHERS.union(*_OF_SCRIPT.values()) - {"sr"}
"""Labels that aren't candidates for Latin script. They include the creoles gcf and gcr, for which the model takes
formulas."""
_FOREIGN = re.compile("[ײױװ]|יי|וו|א[\u05b7\u05b8]|[ኣቐ-ቝኸ-ዅ]|[ӑӗӳăĕçæӕ]|[ڕڵێٻڀٿڄڃڌڏڊڍڦڪڳڱڻ]", re.IGNORECASE)
_LEAST_FOREIGN = 0.035
"""Letters of Yiddish, Tigrinya, Chuvash, Ossetic, Sorani and Sindhi, and their least share in a text of such a
language. The model doesn't know these languages. Languages of the same scripts that it knows hardly use the letters."""
_LOADING = threading.Lock()


def identified(text: str) -> str:
    """The language of `text` as a code (ISO 639), UNDETERMINED or UNSURE; most reliable for about BLOCK_CHARACTERS."""
    letters = letters_by_script(text)
    total = letters.total()
    if total < _FEWEST_OF_SCRIPT:
        return UNSURE
    if letters["HIRAGANA"] + letters["KATAKANA"] >= _LEAST_KANA * total:
        return "ja"
    weights = Counter({script: count * _LETTERS_A_CHARACTER.get(script, 1) for script, count in letters.items()})
    script, weight = weights.most_common(1)[0]
    languages = _OF_SCRIPT.get(script, ())
    if weight < weights.total() / 2 or not languages and script != "LATIN":
        return UNSURE
    if script != "LATIN" and len(_FOREIGN.findall(text)) >= max(_LEAST_FOREIGN * total, _FEWEST_OF_SCRIPT):
        return UNDETERMINED
    if len(languages) == 1:
        return languages[0]
    if total < _FEWEST_LETTERS:
        return UNSURE
    language, probability = _classifier(script)(text)
    return language if probability >= (_LEAST_AMONG_FEW if languages else _LEAST_PROBABILITY) else UNSURE


def known_languages() -> set[str]:
    """The languages that `identified` tells apart."""
    return (set(_model().labels) - _NOT_LATIN).union(*_OF_SCRIPT.values())


def blocks(lines: Iterable[str]) -> Iterator[str]:
    """The lines of a document as blocks of about BLOCK_CHARACTERS. Short lines are joined, long ones cut evenly."""
    joined = ""
    for line in lines:
        joined = f"{joined} {line}" if joined else line
        if len(joined) >= BLOCK_CHARACTERS:
            size, count = len(joined), round(len(joined) / BLOCK_CHARACTERS)
            for number in range(count):
                yield joined[size * number // count : size * (number + 1) // count]
            joined = ""
    if joined:
        yield joined


@functools.cache
def _classifier(script: str) -> Callable[[str], tuple[str, float]]:
    """Returns a function that gives the model's choice among the languages of a script for a text."""
    from py3langid.langid import LanguageIdentifier

    whole = _model()
    chosen = LanguageIdentifier(
        whole.nb_ptc,
        whole.nb_pc,
        whole.nb_classes,
        whole.tk_nextmove,
        whole.tk_output,
        norm_probs=True,
        tk_row=whole.tk_row,
    )
    chosen.set_languages(_OF_SCRIPT.get(script) or set(whole.labels) - _NOT_LATIN)
    return chosen.classify


def load_ahead() -> None:
    """Loads the model in a thread, while the caller imports modules."""
    threading.Thread(target=_classifier, args=("LATIN",), daemon=True).start()


def unload() -> None:
    """Frees the model's 120 MB in a process that identifies no more languages."""
    _classifier.cache_clear()
    _loaded_model.cache_clear()


def _model():
    with _LOADING:
        return _loaded_model()


@functools.cache
def _loaded_model():
    """py3langid's model, which comes with its wheel. Loading it takes about a third of a second.

    The library itself would read the file in hundreds of steps, and each step would interrupt other threads.
    """
    from py3langid.langid import MODEL_DIR, MODEL_FILE, LanguageIdentifier

    with np.load(io.BytesIO(lzma.decompress((MODEL_DIR / MODEL_FILE).read_bytes()))) as file:
        moves, rows = array("I", file["nextmove"].tobytes()), array("H", file["nextmove_row"].tobytes())
        features = file["ptc"], file["pc"], file["classes"].tolist()
        return LanguageIdentifier(*features, moves, file["out_feat"].tolist(), norm_probs=True, tk_row=rows)
