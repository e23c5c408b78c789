"""Finds the phrases or entities that a file lists, one per line, in encoded text.

The search compares the characters of the pieces. The tokenizer has cleaned the text already, so texts that it treats as
equal have the same spelling.
"""

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from bert_jax.system.bucket import place_of
from bert_jax.system.errors import Setting, UsageError, install_extra
from bert_jax.system.json_file import read_bytes
from bert_jax.text.scripts import sets_no_spaces
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.vocabulary import BOUNDARY

_MOST_BYTES = 1 << 30
_BEGIN, _END = "\x02", "\x01"
"""Marks around each word. Pieces don't contain them, since tokenizers remove control characters."""
_UNKNOWN = "\x03"
"""Stands for the unknown piece."""


class Marked(NamedTuple):
    """N tokens spelled with marks around each word."""

    text: str
    begins: Int[np.ndarray, " N"]
    """For each token, the position in `text` of the mark before the word that starts there; -1 if none does."""
    ends: Int[np.ndarray, " m"]
    """Position in `text` after the end mark before each token; the last item is the position after the final end mark
    (m = N + 1)."""

    def tokens(self, places: Int[np.ndarray, "k 2"]) -> Int[np.ndarray, "j 2"]:
        """The token range (begin, end exclusive) of each range of `text` that is whole words and whole pieces."""
        first = np.searchsorted(self.ends, places[:, 0], side="right") - 1
        after = np.searchsorted(self.ends, places[:, 1])
        begins = np.append(self.begins, self.ends[-1])  # the end of the text ends a word
        whole = (begins[first] == places[:, 0]) & (self.ends[after] == places[:, 1]) & (begins[after] >= 0)
        return np.stack([first, after], axis=1)[whole]


class Plain(NamedTuple):
    """N tokens spelled as text is written."""

    text: str
    places: Int[np.ndarray, " N"]
    """Position in `text` of each token's first character."""
    after_space: Bool[np.ndarray, " N"]
    """Whether a space precedes each token."""


class Speller:
    """Spells out encoded text, with or without marks."""

    def __init__(self, tokenizer: Tokenizer):
        unknown, pieces = tokenizer.vocabulary.unknown_id, range(len(tokenizer.vocabulary.pieces))
        texts = [_UNKNOWN if number == unknown else tokenizer.piece_text(number).strip(BOUNDARY) for number in pieces]
        self._tokenizer, self._starts, self._texts = tokenizer, tokenizer.starts_word, texts
        self._opens = np.array([sets_no_spaces(text[:1] or " ") for text in texts])
        self._closes = np.array([sets_no_spaces(text[-1:] or " ") for text in texts])
        # In scripts without spaces each character is marked, since the ends of pieces depend on the text around them.
        self._marked = [
            "".join(f"{_END}{_BEGIN}{one}" for one in (text if apart else [text])) if apart or start else text
            for text, apart, start in zip(texts, self._opens.tolist(), self._starts.tolist(), strict=True)
        ]

    def marked(self, tokens: Int[np.ndarray, " N"], begins: Bool[np.ndarray, " N"]) -> Marked:
        """Spells `tokens` with marks. `begins`: whether each token begins a sentence, and so also a word."""
        starts = self._starts[tokens] | begins
        parts = [self._marked[token] for token in tokens.tolist()]
        for at in np.flatnonzero(begins).tolist():
            parts[at] = f"{_END}\n{_BEGIN}{parts[at].removeprefix(_END + _BEGIN)}"
        sizes = np.array([*map(len, parts)], int)
        before = np.cumsum(sizes) - sizes
        text = "".join(parts) + _END
        return Marked(text, np.where(starts, before + 1 + begins, -1), np.append(before + 1, len(text)))

    def plain(self, tokens: Int[np.ndarray, " N"], begins: Bool[np.ndarray, " N"]) -> Plain:
        """Spells `tokens` with a space before each word, except between two characters of scripts without spaces."""
        joined = self._opens[tokens] & np.roll(self._closes[tokens], 1)
        space = self._starts[tokens] & ~begins & ~joined
        parts = [self._texts[token] for token in tokens.tolist()]
        sizes = np.array([*map(len, parts)], int) + space
        places = np.cumsum(sizes) - sizes + space
        spaced = (f" {part}" if wide else part for part, wide in zip(parts, space.tolist(), strict=True))
        return Plain("".join(spaced), places, space)

    def phrases(self, texts: list[str]) -> list[str]:
        """Spells each of `texts` with marks, leaving out empty words."""
        phrases = []
        for ids in self._tokenizer.encode_batch(texts):
            spelled = "".join(self._marked[number] for number in ids)
            spelled = spelled.removeprefix(_END) + _END if ids else ""
            phrases.append(spelled.replace(_BEGIN + _END, ""))
        return phrases


class LexiconFile(NamedTuple):
    """The entries in a lexicon's file, and how many other lines it has."""

    path: str
    entries: list[str]
    """Each entry once, in the order of the file."""
    blank: int
    """Number of lines without text."""
    doubled: int
    """Number of repeated lines."""
    sha256: str

    @classmethod
    def read(cls, path: str, setting: str) -> "LexiconFile":
        """Reads UTF-8 lines. Raises UsageError, with `setting`, if the file is missing, isn't text or has no entry."""
        try:
            data = read_bytes(place_of(path), _MOST_BYTES)
            lines = [line.strip() for line in data.decode("utf-8-sig").splitlines()]
        except UnicodeDecodeError as error:
            line = data[: error.start].count(b"\n") + 1
            raise UsageError(f"{Setting(setting, path)}: line {line:,} isn't UTF-8; convert the file") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(
                f"{Setting(setting, path)} can't be read ({reason}); name a file, an entry a line"
            ) from None
        entries = list(dict.fromkeys(filter(None, lines)))
        if not entries:
            raise UsageError(
                f"{Setting(setting, path)} has no entry; give a file with an entry a line, or leave the setting out"
            )
        blank = sum(not line for line in lines)
        return cls(path, entries, blank, len(lines) - blank - len(entries), hashlib.sha256(data).hexdigest())


class Lexicon:
    """Finds a lexicon's entries in encoded text."""

    def __init__(self, entries: Sequence[str], speller: Speller):
        spelled = speller.phrases(list(entries))
        self._spelled = list(dict.fromkeys(each for each in spelled if each and _UNKNOWN not in each))
        self.unknown = sum(not each or _UNKNOWN in each for each in spelled)
        """Number of entries with an unknown piece, which can't be found."""
        self.duplicates = len(spelled) - self.unknown - len(self._spelled)
        """Number of entries with the same encoding as an earlier entry."""

    def matches(self, text: Marked) -> Int[np.ndarray, "n 2"]:
        """The token range (begin, end exclusive) of each entry in `text`.

        Of overlapping entries the leftmost counts, and of entries with the same beginning the longest.
        """
        if not self._spelled:
            return np.zeros((0, 2), int)
        matches = self._automaton.find_matches_as_indexes(text.text)
        return text.tokens(np.array([match[1:] for match in matches], int).reshape(-1, 2))

    @cached_property
    def _automaton(self):
        try:
            from ahocorasick_rs import AhoCorasick, MatchKind
        except ImportError:
            raise UsageError(f"lexicons need ahocorasick_rs; {install_extra('lexicon')}") from None
        return AhoCorasick(self._spelled, matchkind=MatchKind.LeftmostLongest)
