"""Finds equal keys among more of them than fit into memory."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, UInt32, UInt64

_AT_ONCE = 2_000_000
"""Keys that are sorted at a time; one takes about 100 bytes meanwhile."""


Keys = UInt32[np.ndarray, "N 4"]
"""Keys of 128 random bits each."""
Items = UInt64[np.ndarray, " N"]


class Groups(NamedTuple):
    """Groups of several items with equal keys."""

    keys: UInt32[np.ndarray, "G 4"]
    """The key of each group."""
    starts: Int[np.ndarray, " G"]
    """Index of each group's first item."""
    items: UInt64[np.ndarray, " N"]
    """The items, group by group, in each in increasing order."""
    group: Int[np.ndarray, " N"]
    """The group of each item."""

    @property
    def sizes(self) -> Int[np.ndarray, " G"]:
        """The number of items in each group."""
        return np.bincount(self.group, minlength=len(self.starts))


def equal_keys(read: Callable[[], Iterable[tuple[Keys, Items]]], count: int) -> Iterator[Groups]:
    """Yields all groups of items with equal keys, some at a time; every group is whole.

    `read` yields keys and the item of each, in any portions; it is called once for each _AT_ONCE of the `count` keys.
    """
    passes = -(-count // _AT_ONCE)
    for number in range(passes):
        chosen = [_chosen(keys, items, passes, number) for keys, items in read()]
        yield _groups(*map(np.concatenate, zip(*chosen, strict=True)))


def _chosen(keys: Keys, items: Items, passes: int, number: int) -> tuple[Keys, Items]:
    """The keys that are sorted in pass `number`, with their items."""
    here = keys[:, 0] % passes == number
    return keys[here], items[here]


def _groups(keys: Keys, items: Items) -> Groups:
    wide = np.ascontiguousarray(keys).view(np.uint64)
    order = np.lexsort((items, wide[:, 1], wide[:, 0]))
    wide = wide[order]
    as_before, as_next = np.zeros((2, len(wide)), bool)
    as_before[1:] = as_next[:-1] = (wide[1:] == wide[:-1]).all(1)
    begins = as_next & ~as_before
    shared = as_before | as_next
    return Groups(
        keys[order[begins]], np.flatnonzero(begins[shared]), items[order[shared]], np.cumsum(begins[shared]) - 1
    )
