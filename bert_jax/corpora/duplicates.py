"""Finds copies among examined documents, and lines that many of them share."""

import functools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, UInt64

from bert_jax.corpora.equal_keys import Groups, Items, Keys, equal_keys
from bert_jax.corpora.examined import BatchFiles, are_paragraphs
from bert_jax.corpora.signatures import similarity

LEAST_SIMILARITY = 0.5
"""Least estimated Jaccard similarity of copies."""
BOILERPLATE_SHARE, BOILERPLATE_TIMES = 0.01, 1000
"""A line is boilerplate if it is in more than this share of the documents, or in more than so many of them."""
FEWEST_TIMES = 10
"""Fewest documents that share a line of boilerplate, however small the corpus is."""
_PAIRS_AT_ONCE = 50_000
"""Pairs whose signatures are in memory at a time, with 1 KB each."""
_Pairs = tuple[Int[np.ndarray, " N"], Int[np.ndarray, " N"]]
"""Numbers of documents, of which the first is the smaller one."""


class Copies(NamedTuple):
    """Documents that are copies of earlier ones."""

    documents: Int[np.ndarray, " N"]
    originals: Int[np.ndarray, " N"]
    """For each the first document of those that it is a copy of, directly or by others between them."""
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
    """The copies among the documents that are kept so far, by these bands of their signatures. Of each group of similar
    ones the first is the original, so the result doesn't depend on the order of the work."""
    pairs = np.zeros(0, np.uint64)
    for band in bands:
        for groups in equal_keys(functools.partial(_kept_keys, files, kept, band), int(kept.sum())):
            pairs = np.union1d(pairs, _candidates(groups))
    first, second = np.divmod(pairs, np.uint64(1 << 32))
    similar = _similarity(files, (first.astype(np.int64), second.astype(np.int64))) >= LEAST_SIMILARITY
    documents, originals = _components(first[similar].astype(np.int64), second[similar].astype(np.int64))
    return Copies(documents, originals, _similarity(files, (originals, documents)))


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
    return np.unique(np.concatenate([first << np.uint64(32) | second for first in firsts]))


def _similarity(files: BatchFiles, pairs: _Pairs) -> Float[np.ndarray, " N"]:
    found = [np.zeros(0)]
    for begin in range(0, len(pairs[0]), _PAIRS_AT_ONCE):
        found.append(
            similarity(*(files.gather("signatures", each[begin : begin + _PAIRS_AT_ONCE], 1) for each in pairs))
        )
    return np.concatenate(found)


def _components(first: Int[np.ndarray, " N"], second: Int[np.ndarray, " N"]) -> _Pairs:
    """The documents that pairs connect with an earlier one, and the first document that each is connected with."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    nodes, ends = np.unique(np.concatenate([first, second]), return_inverse=True)
    if not len(nodes):
        return nodes, nodes
    rows, columns = np.split(ends, 2)
    _, labels = connected_components(coo_array((np.ones(len(rows), bool), (rows, columns)), shape=[len(nodes)] * 2))
    _, lowest = np.unique(labels, return_index=True)
    originals = nodes[lowest[labels]]
    return nodes[nodes != originals], originals[nodes != originals]


def times_allowed(documents: int) -> float:
    """The number of documents, of all `documents`, that may have a line that isn't boilerplate."""
    return min(max(BOILERPLATE_SHARE * documents, FEWEST_TIMES - 1), BOILERPLATE_TIMES)
