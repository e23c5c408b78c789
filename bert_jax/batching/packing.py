"""Puts sequences into rows of a fixed length."""

import numpy as np
from jaxtyping import Int


def best_fit(lengths: Int[np.ndarray, " n"], row_length: int, most: int) -> Int[np.ndarray, " n"]:
    """The row of each of n sequences, in rows of `row_length` tokens that hold up to `most` sequences each.

    Sequences are placed from the longest to the shortest. Each goes to the row that it leaves with the least room, or
    to a new row if it fits in none. Of rows with the same room it takes the last one used. This is best fit on the
    histogram of lengths (Krell et al. 2021, arXiv:2107.02027, algorithm 2). Rows are numbered in the order of their
    first sequences, so on disk they are in the order of the text, and not of their lengths. The result is
    deterministic.
    """
    rows = np.empty(len(lengths), np.int64)
    with_room: list[list[int]] = [[] for _ in range(row_length + 1)]
    some = 0  # bit r is set where with_room[r] isn't empty
    counts: list[int] = []
    order = np.argsort(-lengths, kind="stable")
    for number, length in zip(order.tolist(), lengths[order].tolist(), strict=True):
        large_enough = some >> length
        if large_enough:
            room = length + (large_enough & -large_enough).bit_length() - 1
            row = with_room[room].pop()
            if not with_room[room]:
                some ^= 1 << room
        else:
            room, row = row_length, len(counts)
            counts.append(0)
        rows[number] = row
        counts[row] += 1
        if counts[row] < most:
            with_room[room - length].append(row)
            some |= 1 << (room - length)
    first = np.unique(rows, return_index=True)[1]
    return np.argsort(np.argsort(first))[rows]
