"""Phrases or entities listed in a file, one a line, and where they are in encoded text."""

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from bert_jax.system.bucket import place_of
from bert_jax.system.errors import UsageError, install_extra
from bert_jax.system.files import open_regular
from bert_jax.text.spelling import UNKNOWN, Marked, Speller

_MOST_BYTES = 1 << 30


class LexiconFile(NamedTuple):
    """The entries in a lexicon's file, and counts of its other lines."""

    path: str
    entries: list[str]
    """In the order of the file, each once."""
    blank: int
    """Number of lines without text."""
    doubled: int
    """Number of repeated lines."""
    sha256: str

    @classmethod
    def read(cls, path: str, setting: str) -> "LexiconFile":
        """Reads UTF-8 lines. Raises UsageError, which names `setting`, if there is no such file, text or entry."""
        try:
            with open_regular(place_of(path)) as file:
                data = file.read(_MOST_BYTES)
            lines = [line.strip() for line in data.decode("utf-8-sig").splitlines()]
        except OSError as error:
            raise UsageError(
                f"{setting}={path} can't be read ({error.strerror}); name a file, an entry a line"
            ) from None
        except UnicodeDecodeError as error:
            line = data[: error.start].count(b"\n") + 1
            raise UsageError(f"{setting}={path}: line {line:,} isn't UTF-8; convert the file") from None
        entries = list(dict.fromkeys(filter(None, lines)))
        if not entries:
            raise UsageError(
                f"{setting}={path} has no entry; give a file with an entry a line, or leave the setting out"
            )
        blank = sum(not line for line in lines)
        return cls(path, entries, blank, len(lines) - blank - len(entries), hashlib.sha256(data).hexdigest())


class Lexicon:
    """Finds a lexicon's entries in encoded text."""

    def __init__(self, entries: Sequence[str], speller: Speller):
        spelled = speller.phrases(list(entries))
        self._spelled = list(dict.fromkeys(each for each in spelled if each and UNKNOWN not in each))
        self.unknown = sum(not each or UNKNOWN in each for each in spelled)
        """Number of entries with an unknown piece, which can't be found."""
        self.duplicates = len(spelled) - self.unknown - len(self._spelled)
        """Number of entries that are encoded as an earlier one."""

    def matches(self, text: Marked) -> Int[np.ndarray, "n 2"]:
        """First token, and token after the last, of each entry in `text`.

        Of entries that overlap it is the leftmost, and of those that begin together the longest.
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
