"""Groups sequences of any length into batches of few shapes, to limit both padding and compilation."""

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
"""Size of the sorting window, in groups: sequences are sorted by length only within one window."""
_WELL_FILLED = 0.9
"""A group with at least this share of real tokens gets the largest row count for its length."""
_AHEAD = 4
"""Number of groups that are queued or being computed while the caller uses an earlier one."""

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Group(Generic[Item]):
    """Items that are computed together, and the batch shape that they are padded to."""

    places: list[int]
    """The index in the input of each item, from 0."""
    items: list[Item]
    shape: tuple[int, int]
    """Batch shape after padding: number of rows, and tokens in a row."""


def grouped(
    items: Iterable[Item],
    size: Callable[[Item], int],
    lengths: Sequence[int],
    tokens: int,
    compiling: float = 0,
    window: int = WINDOW_GROUPS,
) -> Iterator[Group[Item]]:
    """Yields all `items` in groups, longest first within each window of `window * tokens` tokens.

    Only one window is in memory at a time. `size` returns the token count of an item, at most the last of `lengths`.

    The best shape for a group has the smallest of `lengths` that holds its longest item. Its row count either fills
    `tokens`, or is the smallest of 1, 4, 16, 64, ... that holds all items of that length. Shorter items fill the
    remaining rows. `usual_lengths(512)` with 8,192 tokens gives at most 11 lengths and 51 shapes.

    Compiling a new shape costs as much as `compiling` tokens of padding. A group is therefore padded to a larger shape
    that is already compiled, until the padding so far has cost more than compiling the best shape.
    """
    shapes = _Shapes(lengths, tokens, compiling)
    begin = 0
    for some in windows(items, size, window * tokens):
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


def windows(items: Iterable[Item], size: Callable[[Item], int], limit: int) -> Iterator[list[Item]]:
    """Yields consecutive `items` as lists. Each list ends with the item that brings its total `size` to `limit`."""
    window: list[Item] = []
    total = 0
    for item in items:
        window.append(item)
        total += size(item)
        if total >= limit:
            yield window
            window, total = [], 0
    if window:
        yield window


def row_count(needed: int, most: int) -> int:
    """The smallest of 1, 4, 16, ... that is at least `needed`, but at most `most`: the padded number of rows."""
    count = 1
    while count < needed:
        count *= 4
    return min(count, most)


def padded_length(size: int, lengths: Sequence[int]) -> int:
    """The smallest of the ascending `lengths` that is at least `size`."""
    return lengths[bisect.bisect_left(lengths, size)]


def usual_lengths(longest: int) -> tuple[int, ...]:
    """Padded lengths 16, 24, 32, 48, 64, 96, ... and `longest`, for sequences of unknown length distribution.

    Measured on SST-2 and on lines of books, 20 to 27% of the tokens are padding; with powers of two alone, 32 to 36%.
    """
    doubled = (_SHORTEST << number for number in range(longest.bit_length()))
    lengths = (length for power in doubled for length in (power, power // 2 * 3))
    return (*itertools.takewhile(lambda length: length < longest, lengths), longest)


def few_sizes(needed: Sequence[int], compiling: float) -> tuple[int, ...]:
    """The sizes of least total cost for batches that need the sizes `needed`, in ascending order; the last one holds
    them all.

    A batch costs its padded size, and each distinct size costs `compiling` more. Dynamic programming finds the optimum.
    """
    sizes, counts = np.unique(needed, return_counts=True)
    below = np.concatenate([[0], np.cumsum(counts)])
    least, begins = [0.0], []
    for end, size in enumerate(sizes.tolist(), 1):
        # Batches `begin` to `end` - 1, in order of size, share this padded size.
        costs = np.array(least) + size * (below[end] - below[:end]) + compiling
        begins.append(int(costs.argmin()))
        least.append(float(costs[begins[-1]]))
    chosen, end = [], len(sizes)
    while end:
        chosen.append(int(sizes[end - 1]))
        end = begins[end - 1]
    return tuple(reversed(chosen))


def ahead(
    compute: Callable[[Item], Result], items: Iterable[Item], threads: int = 2, most: int = _AHEAD
) -> Iterator[tuple[Item, Result]]:
    """Yields each item with the result of `compute`, in input order, and computes up to `most` in the background.

    Two threads keep a CPU busy, since the serial parts of one computation overlap with the other computation. With one
    thread the items are also computed in input order. Exceptions of `compute` and of the `items` iterator propagate.
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


def in_input_order(computed: Iterable[tuple[Sequence[int], Iterable[Result]]]) -> Iterator[Result]:
    """Yields the result of each item in input order. `computed`: for each batch, the indices in the input of its items,
    and their results. Further results, those of padding rows, are left out."""
    waiting: dict[int, Result] = {}
    next_place = 0
    for places, results in computed:
        waiting.update(zip(places, results, strict=False))
        while next_place in waiting:
            yield waiting.pop(next_place)
            next_place += 1


class _Shapes:
    """The shapes compiled so far, and the padding that each other shape would have saved.

    This is the ski rental problem: a shape is compiled as soon as the padding it would have saved so far, plus what it
    saves on the known sequences, exceeds the cost of its compilation. Later sequences are unknown.
    """

    def __init__(self, lengths: Sequence[int], tokens: int, compiling: float):
        self._lengths, self._tokens, self._compiling = lengths, tokens, compiling
        self._compiled: list[tuple[int, int]] = []
        self._lost: Counter[tuple[int, int]] = Counter()
        """Padding tokens that each uncompiled shape would have saved so far."""

    def choose(self, sizes: Sequence[int]) -> tuple[int, int]:
        """The shape (rows, length) of the next group, which takes the first of the sequences.

        `sizes` holds the token counts of the remaining sequences of the window, in descending order.
        """
        best, count = self._best(sizes), len(sizes)
        large_enough = [shape for shape in self._compiled if shape[1] >= sizes[0]]
        if best in large_enough:
            return best
        if large_enough:
            nearest = min(large_enough, key=lambda shape: (_each(shape, count), -shape[0]))
            saved = max(count * (_each(nearest, count) - _each(best, count)), 0)
            if self._lost[best] + saved < self._compiling:
                needed = sum(padded_length(size, self._lengths) for size in sizes[: nearest[0]])
                self._lost[best] += nearest[0] * nearest[1] - needed
                return nearest
        self._compiled.append(best)
        return best

    def _best(self, sizes: Sequence[int]) -> tuple[int, int]:
        """The shape with the least padding for the first of `sizes`, regardless of compilation."""
        length = padded_length(sizes[0], self._lengths)
        most = max(self._tokens // length, 1)
        if sum(sizes[:most]) >= _WELL_FILLED * most * length:
            return most, length
        if self._compiling and not self._compiled:  # shorter sequences will be padded to this first shape, too
            return row_count(len(sizes), most), length
        return row_count(sum(padded_length(size, self._lengths) == length for size in sizes[:most]), most), length


def _each(shape: tuple[int, int], count: int) -> float:
    """Tokens per sequence, padding included, if `count` sequences go into groups of this shape."""
    rows, length = shape
    return rows * length / min(rows, count)
