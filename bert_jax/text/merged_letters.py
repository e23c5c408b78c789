"""Letters and accents that a tokenizer's cleaning drops or merges."""

import os
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

_MOST_CHANGED = 0.02
"""Share of the words that may lose letters. An uncased model of English drops accents of 0.3% of English words (names),
of 1.7% of the stretches of a Chinese text, and of 4% to 80% of the words of languages that write accents."""
_MOST_CHARACTERS, _EXAMPLES, _WIDTH = 1_000_000, 3, 20
"""Most characters that are examined, words that are shown, and characters that are shown of a word."""


def merged_letters(texts: Iterable[str], clean: Callable[[str], str], most: float = _MOST_CHANGED) -> str | None:
    """Describes the words that `clean` changes apart from case: their share, how many different words become equal, and
    examples. None if the share is at most `most`. Examines a million characters, split into words at white space."""
    words, size = Counter[str](), 0
    for text in texts:
        words.update(text.split())
        if (size := size + len(text)) > _MOST_CHARACTERS:
            break
    changed, spelled = Counter[str](), defaultdict[str, set[str]](set)
    for word, count in words.items():
        before = _letters(word)
        after = before if word.isascii() else _letters(clean(word))
        spelled[after].add(before)
        if before != after:
            start = len(os.path.commonprefix([before, after])) if len(before) > _WIDTH else 0
            changed[" → ".join(word[start : start + _WIDTH] for word in (before, after))] += count
    share = changed.total() / max(words.total(), 1)
    equal = sum(len(group) for group in spelled.values() if len(group) > 1)
    if share <= most:
        return None
    examples = ", ".join(example for example, _ in changed.most_common(_EXAMPLES))
    what = f"{share:.1%} of the words lose letters or accents to the vocabulary's cleaning"
    return f"{what}, and {equal:,} different words become equal: {examples}"


def _letters(text: str) -> str:
    """The letters and marks of `text` without case. Composed, decomposed and compatibility forms give the same
    result."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    kept = (char for char in decomposed if unicodedata.category(char)[0] in "LM" and not "\ufe00" <= char <= "\ufe0f")
    return unicodedata.normalize("NFC", "".join(kept))
