"""Sequences of any length in groups of few shapes, so that little is padded and little is compiled."""

import bisect
import itertools
from collections import Counter, deque
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
    compiling: float = 0,
    window: int = WINDOW_GROUPS,
) -> Iterator[Group[Item]]:
    """All `items`, longest first within a window of so many times `tokens`; reads one window at a time.

    `size` gives an item's tokens, at most the last of `lengths`. The shape that suits a group best has the one of
    `lengths` that its longest item needs, and as many rows as make `tokens`, or as many of 1, 4, 16, 64, ... as take
    those that need this length; shorter ones fill it up. With `usual_lengths(512)` and 8,192 tokens that makes 11
    lengths and 51 shapes in all. Each new shape costs its compilation, as much as `compiling` tokens of padding: a
    group is padded to an earlier, larger shape until that would have cost more.
    """
    shapes = _Shapes(lengths, tokens, compiling)
    begin = 0
    for some in _windows(items, size, window * tokens):
        sizes = list(map(size, some))
        order = sorted(range(len(some)), key=sizes.__getitem__, reverse=True)
        ordered = [sizes[place] for place in order]
        done = 0
        while done < len(order):
            shape = shapes.choose(ordered[done:])
            chosen = order[done : done + shape[0]]
            done += shape[0]
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


def few_lengths(longest: Sequence[int], limit: int, compiling: float) -> tuple[int, ...]:
    """The lengths to pad batches to whose longest sequences have these tokens, and `limit`, which no sequence exceeds.

    A batch costs its padded length, and each length that is used costs `compiling` more, in the same unit: tokens of a
    row. The result has the least cost of all choices, found by dynamic programming.
    """
    sizes, counts = np.unique(longest, return_counts=True)
    below = np.concatenate([[0], np.cumsum(counts)])
    least, begins = [0.0], []
    for end, size in enumerate(sizes.tolist(), 1):
        # Batches number `begin` to `end` - 1, by size, share this length.
        costs = np.array(least) + size * (below[end] - below[:end]) + compiling
        begins.append(int(costs.argmin()))
        least.append(float(costs[begins[-1]]))
    found, end = {limit}, len(sizes)
    while end:
        found.add(int(sizes[end - 1]))
        end = begins[end - 1]
    return tuple(sorted(found))


def ahead(
    compute: Callable[[Item], Result], items: Iterable[Item], threads: int = 2, most: int = _AHEAD
) -> Iterator[tuple[Item, Result]]:
    """Each of `items` with what `compute` makes of it, in their order; up to `most` are computed while one is used.

    Two threads keep a CPU busy: what one computation can't divide among the cores is done beside the other. With one
    they are also computed in their order. Raises what `compute` and drawing from `items` raise.
    """
    waiting: deque[tuple[Item, Future[Result]]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for item in items:
            waiting.append((item, pool.submit(compute, item)))
            if len(waiting) > most:
                item, computed = waiting.popleft()
                yield item, computed.result()
        for item, computed in waiting:
            yield item, computed.result()
    finally:
        pool.shutdown(cancel_futures=True)


class _Shapes:
    """The shapes that are compiled so far, and what padding to them instead of to others has cost.

    It is the decision between renting and buying: a shape is compiled once the tokens that it would have saved, and
    those that it will save on the sequences at hand, are worth its compilation. What comes later is not known.
    """

    def __init__(self, lengths: Sequence[int], tokens: int, compiling: float):
        self._lengths, self._tokens, self._compiling = lengths, tokens, compiling
        self._compiled: list[tuple[int, int]] = []
        self._lost: Counter[tuple[int, int]] = Counter()
        """Tokens of padding that a shape would have saved which isn't compiled."""

    def choose(self, sizes: Sequence[int]) -> tuple[int, int]:
        """Rows and length of the next group, which takes the first of sequences of these `sizes`, which fall."""
        best, count = self._best(sizes), len(sizes)
        fitting = [shape for shape in self._compiled if shape[1] >= sizes[0]]
        if best in fitting:
            return best
        if fitting:
            nearest = min(fitting, key=lambda shape: (_each(shape, count), -shape[0]))
            saved = max(count * (_each(nearest, count) - _each(best, count)), 0)
            if self._lost[best] + saved < self._compiling:
                needed = sum(padded_length(size, self._lengths) for size in sizes[: nearest[0]])
                self._lost[best] += nearest[0] * nearest[1] - needed
                return nearest
        self._compiled.append(best)
        return best

    def _best(self, sizes: Sequence[int]) -> tuple[int, int]:
        """The shape that suits the first of `sizes`, were compiling others free."""
        length = padded_length(sizes[0], self._lengths)
        most = max(self._tokens // length, 1)
        if sum(sizes[:most]) >= _WELL_FILLED * most * length:
            return most, length
        if self._compiling and not self._compiled:  # shorter ones will be padded to it, too
            return row_count(len(sizes), most), length
        return row_count(sum(padded_length(size, self._lengths) == length for size in sizes[:most]), most), length


def _each(shape: tuple[int, int], count: int) -> float:
    """Tokens, padding included, that one of `count` sequences takes in groups of this shape."""
    rows, length = shape
    return rows * length / min(rows, count)


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
