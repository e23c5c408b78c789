import numpy as np

from bert_jax.instances.instances import Segments, build_instances
from bert_jax.layout import MASKABLE, WORD_START

CLS, SEP = 2, 3
BOTH, INSIDE = MASKABLE | WORD_START, MASKABLE
TOKENS = np.arange(10, 30)
UNITS = np.where(np.isin(TOKENS, [11, 12, 15, 19]), INSIDE, BOTH).astype(np.uint8)


def built(segments, paired):
    return build_instances(segments, TOKENS, UNITS, CLS, SEP, paired=paired)


def test_pairs_become_instances_with_their_words_marked():
    begin, end = np.array([0, 5, 9, 0]), np.array([5, 9, 10, 2])
    made = built(Segments(begin, end, np.array([2, 2]), np.array([1, 0]), 0), paired=True)
    assert made.ids.tolist() == [CLS, 10, 11, 12, 13, 14, SEP, 15, 16, 17, 18, SEP, CLS, 19, SEP, 10, 11, SEP]
    first = [0, BOTH, INSIDE, INSIDE, BOTH, BOTH, 0, BOTH, BOTH, BOTH, BOTH, 0]
    assert made.units.tolist() == first + [0, BOTH, 0, BOTH, INSIDE, 0]
    assert made.ends.tolist() == [0, 12, 18]
    assert (made.first_length.tolist(), made.pair_label.tolist()) == ([7, 3], [1, 0])


def test_without_pairs_all_of_a_sequence_is_segment_0():
    begin, end = np.array([0, 5, 6, 7]), np.array([2, 6, 7, 9])
    made = built(Segments(begin, end, np.array([1, 3]), np.array([0, 0]), 0), paired=False)
    assert made.ids.tolist() == [CLS, 10, 11, SEP, CLS, 15, SEP, 16, SEP, 17, 18, SEP]
    assert made.units.tolist() == [0, BOTH, INSIDE, 0, 0, BOTH, 0, BOTH, 0, BOTH, BOTH, 0]
    assert made.first_length.tolist() == [4, 8]
