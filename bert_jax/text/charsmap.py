"""Checks the cleaning rules in a sentencepiece model before a library follows them.

A `precompiled_charsmap` is the size of a double-array trie, the trie, and the replacements, each ended by U+0000. The
libraries trust these bytes: Hugging Face's library panics on damaged ones, either on reading them or at the first text
that reaches the damage.
"""

import base64

import numpy as np
from jaxtyping import UInt32

_BYTES = np.arange(1, 256, dtype=np.uint32)


def charsmap_fault(data: bytes) -> str | None:
    """Why a `precompiled_charsmap` can't be followed; None for a valid one."""
    size = int.from_bytes(data[:4], "little")
    if len(data) < 8 or size % 4 or not 1024 <= size <= len(data) - 4:
        return "its trie isn't of the size that it says"
    replacements = data[4 + size :]
    try:
        replacements.decode("utf-8")
    except UnicodeDecodeError:
        return "its replacements are not UTF-8"
    if not replacements.endswith(b"\0"):
        return "its last replacement has no end"
    return _trie_fault(np.frombuffer(data[4 : 4 + size], "<u4"), np.frombuffer(replacements, np.uint8))


def _trie_fault(units: UInt32[np.ndarray, " n"], replacements: np.ndarray) -> str | None:
    """Follows every path of the trie; returns what is wrong, or None.

    Each path must stay inside the trie and end at the first byte of a replacement.
    """
    visited, places = np.zeros(len(units), bool), _offset(units[:1])
    while len(places):
        if (places | 255).max() >= len(units):
            return "its trie points outside itself"
        visited[places] = True
        reached = places[:, None] ^ _BYTES
        children = units[reached]
        fits = (children & 0x800000FF) == _BYTES
        reached, children = reached[fits], children[fits]
        places = reached ^ _offset(children)
        ends = places[(children >> 8) & 1 == 1]
        if len(ends) and ends.max() >= len(units):
            return "its trie points outside itself"
        values = units[ends] & 0x7FFFFFFF
        if len(values) and values.max() >= len(replacements):
            return "its trie names a replacement that isn't there"
        if (replacements[values] & 0xC0 == 0x80).any():
            return "its trie names a replacement from within a character"
        places = np.unique(places)
        if (places >= len(units)).any():
            return "its trie points outside itself"
        places = places[~visited[places]]
    return None


def _offset(units: UInt32[np.ndarray, " n"]) -> UInt32[np.ndarray, " n"]:
    return (units >> 10) << ((units & 0x200) >> 6)


def normalizer_fault(normalizer: object) -> str | None:
    """Why a charsmap in the `normalizer` of a tokenizer.json can't be followed; None if all are valid."""
    if not isinstance(normalizer, dict):
        return None
    if normalizer.get("type") == "Precompiled":
        try:
            return charsmap_fault(base64.b64decode(normalizer.get("precompiled_charsmap") or "", validate=True))
        except (ValueError, TypeError):
            return "it isn't base64"
    parts = normalizer.get("normalizers")
    faults = map(normalizer_fault, parts if isinstance(parts, list) else [])
    return next((fault for fault in faults if fault), None)
