"""Finds copies among examined documents, and lines that many of them share."""

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, UInt64

from bert_jax.records.equal_keys import Groups, Items, Keys, equal_keys
from bert_jax.records.examination import BatchFiles, are_paragraphs
from bert_jax.records.signatures import similarity

LEAST_SIMILARITY = 0.5
"""Least estimated Jaccard similarity of copies."""
BOILERPLATE_SHARE, BOILERPLATE_TIMES = 0.01, 1000
"""A line is boilerplate if it is in more than this share of the documents, or in more than so many of them."""
FEWEST_TIMES = 10
"""Fewest documents that share a line of boilerplate, however small the corpus is."""
_PAIRS_AT_ONCE = 50_000
"""Pairs whose signatures are in memory at a time, with 1 KB each."""


class Copies(NamedTuple):
    """Documents that are copies of earlier ones."""

    documents: Int[np.ndarray, " N"]
    originals: Int[np.ndarray, " N"]
    """For each the first document that stays and is similar to it."""
    similarity: Float[np.ndarray, " N"]
    """The estimated Jaccard similarity with the original."""


class SharedLines(NamedTuple):
    """Lines that several documents share."""

    boilerplate: UInt64[np.ndarray, " N"]
    """Places of all lines of boilerplate."""
    boilerplate_keys: set[bytes]
    """Their keys."""
    paragraphs: UInt64[np.ndarray, " M"]
    """Places of paragraphs but the first of each."""


def find_copies(files: BatchFiles, kept: Bool[np.ndarray, " N"], bands: Iterable[int]) -> Copies:
    """The copies among the documents that are kept so far, found by these bands of their signatures.

    A document is a copy if an earlier one that stays is similar to it, so the result doesn't depend on the order of the
    work.
    """
    candidates = np.zeros(0, np.uint64)
    for band in bands:
        for groups in equal_keys(functools.partial(_kept_keys, files, kept, band), int(kept.sum())):
            candidates = np.union1d(candidates, _candidates(groups))
    similar = candidates[_similarity(files, candidates) >= LEAST_SIMILARITY]
    while True:
        originals = _originals(similar)
        # A document that is similar to copies alone may be similar to their originals, too.
        others = np.setdiff1d(_with_originals(similar, originals), candidates)
        if not len(others):
            break
        candidates = np.union1d(candidates, others)
        similar = np.union1d(similar, others[_similarity(files, others) >= LEAST_SIMILARITY])
    documents = np.array(sorted(originals), np.int64)
    of_each = np.array([originals[document] for document in documents.tolist()], np.int64)
    return Copies(documents, of_each, _similarity(files, _pairs(of_each, documents)))


def _originals(pairs: UInt64[np.ndarray, " P"]) -> dict[int, int]:
    """The first similar document that stays, by the document that is its copy."""
    originals: dict[int, int] = {}
    first, second = _ends(pairs)
    order = np.lexsort((first, second))
    for earlier, document in zip(first[order].tolist(), second[order].tolist(), strict=True):
        if document not in originals and earlier not in originals:  # all that concerns the earlier one is decided
            originals[document] = earlier
    return originals


def _with_originals(pairs: UInt64[np.ndarray, " P"], originals: Mapping[int, int]) -> UInt64[np.ndarray, " Q"]:
    """Pairs of each document that stays and the originals of copies that it is similar to."""
    first, second = _ends(pairs)
    others = [
        (originals[earlier], document)
        for earlier, document in zip(first.tolist(), second.tolist(), strict=True)
        if earlier in originals and document not in originals
    ]
    return _pairs(*np.array(others, np.int64).reshape(-1, 2).T)


def times_allowed(documents: int) -> float:
    """The number of documents, of all `documents`, that may have a line that isn't boilerplate."""
    return min(max(BOILERPLATE_SHARE * documents, FEWEST_TIMES - 1), BOILERPLATE_TIMES)


def find_shared_lines(files: BatchFiles, kept: Bool[np.ndarray, " N"], lines: int) -> SharedLines:
    """The shared lines of the documents that are kept. `lines`: the number of all lines in the files."""
    documents = int(kept.sum())
    boilerplate, keys, paragraphs = [np.zeros(0, np.uint64)], set[bytes](), [np.zeros(0, np.uint64)]
    for groups in equal_keys(functools.partial(_kept_lines, files, kept), lines):
        often = groups.sizes > times_allowed(documents)
        boilerplate.append(groups.items[often[groups.group]])
        keys |= {key.tobytes() for key in groups.keys[often]}
        later = np.ones(len(groups.items), bool)
        later[groups.starts] = False
        paragraphs.append(groups.items[later & are_paragraphs(groups.keys)[groups.group]])
    return SharedLines(np.concatenate(boilerplate), keys, np.concatenate(paragraphs))


def _kept_keys(files: BatchFiles, kept: Bool[np.ndarray, " N"], band: int) -> Iterator[tuple[Keys, Items]]:
    for keys, documents in files.keys(band):
        here = kept[documents]
        yield keys[here], documents[here]


def _kept_lines(files: BatchFiles, kept: Bool[np.ndarray, " N"]) -> Iterator[tuple[Keys, Items]]:
    for batch in range(len(files)):
        here = kept[files.ends[batch] + files.read(batch, "line_documents")]
        yield files.read(batch, "line_keys")[here], files.read(batch, "line_places")[here]


def _candidates(groups: Groups) -> UInt64[np.ndarray, " P"]:
    """Pairs that connect each group: of each document and the first, and of each and the one before it."""
    later = np.ones(len(groups.items), bool)
    later[groups.starts] = False
    at = np.flatnonzero(later)
    second = groups.items[at]
    firsts = (groups.items[groups.starts][groups.group[at]], groups.items[at - 1])
    return np.unique(np.concatenate([_pairs(first, second) for first in firsts]))


def _pairs(first: Int[np.ndarray, " P"], second: Int[np.ndarray, " P"]) -> UInt64[np.ndarray, " P"]:
    """Pairs of documents as a number each: the first document in the upper half."""
    return first.astype(np.uint64) << np.uint64(32) | second.astype(np.uint64)


def _ends(pairs: UInt64[np.ndarray, " P"]) -> tuple[Int[np.ndarray, " P"], Int[np.ndarray, " P"]]:
    """The first and second document of each pair."""
    return (pairs >> np.uint64(32)).astype(np.int64), (pairs & np.uint64(0xFFFFFFFF)).astype(np.int64)


def _similarity(files: BatchFiles, pairs: UInt64[np.ndarray, " P"]) -> Float[np.ndarray, " P"]:
    found = [np.zeros(0)]
    for begin in range(0, len(pairs), _PAIRS_AT_ONCE):
        ends = _ends(pairs[begin : begin + _PAIRS_AT_ONCE])
        found.append(similarity(*(files.gather("signatures", documents, 1) for documents in ends)))
    return np.concatenate(found)
