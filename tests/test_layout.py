import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.layout import TokenSequence, lay_out, lay_out_sequences


def flat(lengths):
    """The tokens of all sequences one after the other, each its own number from 1."""
    return np.arange(1, sum(lengths) + 1)


@given(st.lists(st.lists(st.integers(0, 6), max_size=4), min_size=1, max_size=5), st.data())
def test_every_token_is_where_its_sequence_and_position_say(rows, data):
    lengths = np.array([length for row in rows for length in row], int)
    row_of = np.array([number for number, row in enumerate(rows) for _ in row], int)
    firsts = np.array([data.draw(st.integers(0, length)) for length in lengths], int)
    size = max(1, *(sum(row) for row in rows))
    units = (flat(lengths) % 200).astype(np.uint8)
    laid = lay_out(flat(lengths), lengths, firsts, (len(rows), size), units=units, rows=row_of, pad_id=-1)

    assert laid.begin.shape == laid.length.shape == (len(rows), max(1, *map(len, rows)))
    left = np.ones(laid.ids.shape, bool)
    ids = iter(flat(lengths).tolist())
    numbers = {}
    for row, length, first in zip(row_of, lengths, firsts):
        number = numbers[row] = numbers.get(row, -1) + 1
        assert laid.length[row, number] == length
        here = slice(laid.begin[row, number], laid.begin[row, number] + length)
        expected = [next(ids) for _ in range(length)]
        assert laid.ids[row, here].tolist() == expected and left[row, here].all()
        assert laid.units[row, here].tolist() == [one % 200 for one in expected]
        assert (laid.sequence[row, here] == number + 1).all()
        assert laid.position[row, here].tolist() == list(range(length))
        assert laid.segment[row, here].tolist() == [0] * first + [1] * (length - first)
        left[row, here] = False
    assert (laid.ids[left] == -1).all()
    assert not any(array[left].any() for array in (laid.sequence, laid.position, laid.segment, laid.units))


def test_each_sequence_has_a_row_of_its_own_unless_told_otherwise():
    laid = lay_out_sequences([TokenSequence([2, 7, 3, 8, 3], 3), TokenSequence([2, 3], 2)], (3, 6), pad_id=9)
    assert laid.ids.tolist() == [[2, 7, 3, 8, 3, 9], [2, 3, 9, 9, 9, 9], [9] * 6]
    assert laid.segment.tolist() == [[0, 0, 0, 1, 1, 0], [0] * 6, [0] * 6]
    assert laid.sequence.tolist() == [[1, 1, 1, 1, 1, 0], [1, 1, 0, 0, 0, 0], [0] * 6]
    assert laid.length.tolist() == [[5], [2], [0]] and not laid.begin.any()
    assert lay_out_sequences([], (2, 3), pad_id=0).length.tolist() == [[0], [0]]
