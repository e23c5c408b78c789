"""Packs sequences into rows, several in one where they fit, so that hardly any padding is left."""

import numpy as np
from jaxtyping import Int


def best_fit(lengths: Int[np.ndarray, " n"], row_length: int, most: int) -> Int[np.ndarray, " n"]:
    """The row of each of n sequences, in rows of `row_length` tokens that hold up to `most` sequences each.

    Longest first, each goes to that row with room for it that is left with the least, or else to an empty one; of rows
    with the same room, to the last one used. This is best fit on the histogram of lengths (Krell et al. 2021,
    arXiv:2107.02027, algorithm 2). Rows are numbered in the order of their first sequences, so that neighbours on disk
    have nothing in common but their place in the text. Deterministic.
    """
    rows = np.empty(len(lengths), np.int64)
    with_room: list[list[int]] = [[] for _ in range(row_length + 1)]
    some = 0  # bit r is set where with_room[r] isn't empty
    counts: list[int] = []
    order = np.argsort(-lengths, kind="stable")
    for number, length in zip(order.tolist(), lengths[order].tolist(), strict=True):
        fitting = some >> length
        if fitting:
            room = length + (fitting & -fitting).bit_length() - 1
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
