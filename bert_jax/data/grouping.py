"""Sequences of any length in groups of few shapes, so that little is padded and little is compiled."""

import bisect
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

_SHORTEST = 16
WINDOW_GROUPS = 32
"""Sequences are sorted by length among their neighbours that make so many groups together."""
_WELL_FILLED = 0.9
"""A group that has so few padding tokens may as well be of its length's largest shape."""
_MOST_LENGTHS = 16
_TOO_MANY = 1 << 48
_ENOUGH_FILLED = 0.92
"""Lengths are added until padding to them leaves this share of real tokens."""
_AHEAD = 4
"""So many groups are computed, or about to be, before the first of them is used."""

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Group(Generic[Item]):
    """Items of similar length."""

    places: list[int]
    """Which ones they are, counted from the first of all."""
    items: list[Item]
    shape: tuple[int, int]
    """Rows and their length that they are to be padded to."""


def grouped(
    items: Iterable[Item],
    size: Callable[[Item], int],
    lengths: Sequence[int],
    tokens: int,
    window: int = WINDOW_GROUPS,
) -> Iterator[Group[Item]]:
    """All `items`, longest first within a window of so many times `tokens`; reads one window at a time.

    `size` gives an item's tokens, at most the last of `lengths`. A group has the one of `lengths` that its longest item
    needs, and as many rows as make `tokens`, or as many of 1, 4, 16, 64, ... as take those that need this length;
    shorter ones fill it up. With `usual_lengths(512)` and 8,192 tokens that makes 11 lengths and 51 shapes in all.
    """
    begin = 0
    for some in _windows(items, size, window * tokens):
        sizes = list(map(size, some))
        order = sorted(range(len(some)), key=sizes.__getitem__, reverse=True)
        while order:
            length = padded_length(sizes[order[0]], lengths)
            most = max(tokens // length, 1)
            shape = _rows([sizes[place] for place in order[:most]], length, lengths, most), length
            chosen, order = order[: shape[0]], order[shape[0] :]
            yield Group([begin + place for place in chosen], [some[place] for place in chosen], shape)
        begin += len(some)


def row_count(needed: int, most: int) -> int:
    """The number of rows, 1, 4, 16, ... or `most`, that a group of `needed` ones is padded to."""
    count = 1
    while count < needed:
        count *= 4
    return min(count, most)


def padded_length(size: int, lengths: Sequence[int]) -> int:
    """The first of `lengths`, which rise, that holds `size` tokens."""
    return lengths[bisect.bisect_left(lengths, size)]


def usual_lengths(longest: int) -> tuple[int, ...]:
    """16, 24, 32, 48, 64, 96, ... and `longest`: for sequences of which nothing is known.

    Of sentences 20 to 27% is padding so, and 32 to 36% with doubled lengths alone (SST-2's, and lines of books).
    """
    doubled = (_SHORTEST << number for number in range(longest.bit_length()))
    lengths = (length for power in doubled for length in (power, power // 2 * 3))
    return (*itertools.takewhile(lambda length: length < longest, lengths), longest)


def few_lengths(sizes: Sequence[int], longest: int) -> tuple[int, ...]:
    """The lengths that sequences of such `sizes` are best padded to, then doubles of the largest up to `longest`.

    As few as leave 8% of padding, and 16 at most: the optimum for their number, found by dynamic programming.
    """
    largest = max(sizes)
    below = np.cumsum(np.bincount(sizes))
    # Tokens that sequences of more than i and at most j tokens take where all are padded to j.
    taken = np.arange(largest + 1) * (below - below[:, None])
    taken = np.where(np.tri(largest + 1, dtype=bool), _TOO_MANY, taken)
    least, ways = taken[0], []
    while least[largest] * _ENOUGH_FILLED > np.sum(sizes) and len(ways) + 1 < _MOST_LENGTHS:
        longer = least[:, None] + taken
        ways.append(longer.argmin(axis=0))
        least = longer.min(axis=0)
    found = [largest]
    for way in reversed(ways):
        found.insert(0, int(way[found[0]]))
    while found[-1] < longest:
        found.append(min(2 * found[-1], longest))
    return tuple(found)


def ahead(compute: Callable[[Item], Result], items: Iterable[Item], threads: int = 2) -> Iterator[tuple[Item, Result]]:
    """Each of `items` with what `compute` makes of it, in their order; the next ones are computed while one is used.

    Two threads keep a CPU busy: what one computation can't divide among the cores is done beside the other. With one
    they are also computed in their order. Raises what `compute` and drawing from `items` raise.
    """
    waiting: deque[tuple[Item, Future[Result]]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for item in items:
            waiting.append((item, pool.submit(compute, item)))
            if len(waiting) > _AHEAD:
                item, computed = waiting.popleft()
                yield item, computed.result()
        for item, computed in waiting:
            yield item, computed.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _rows(sizes: Sequence[int], length: int, lengths: Sequence[int], most: int) -> int:
    """How many rows of `length` are to be made of items of such `sizes`, of which the first needs it."""
    if sum(sizes) >= _WELL_FILLED * most * length:
        return most
    return row_count(sum(padded_length(size, lengths) == length for size in sizes), most)


def _windows(items: Iterable[Item], size: Callable[[Item], int], tokens: int) -> Iterator[list[Item]]:
    window, read = [], 0
    for one in items:
        window.append(one)
        read += size(one)
        if read >= tokens:
            yield window
            window, read = [], 0
    if window:
        yield window
