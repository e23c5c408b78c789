import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.batching.sequences import joined
from bert_jax.layout import TokenSequence
from bert_jax.text.vocabulary import SPECIAL_PIECES, Vocabulary

VOCABULARY = Vocabulary([*SPECIAL_PIECES, *map(str, range(100))])
CLS, SEP = VOCABULARY.cls_id, VOCABULARY.sep_id


def shortened(first: list[int], second: list[int], most: int) -> tuple[list[int], list[int]]:
    """What the original's _truncate_seq_pair makes of a pair, one piece after another."""
    first, second = list(first), list(second)
    while len(first) + len(second) > most:
        (first if len(first) > len(second) else second).pop()
    return first, second


@given(st.lists(st.integers(5, 99), max_size=30), st.lists(st.integers(5, 99), max_size=30), st.integers(3, 40))
def test_a_pair_is_cut_as_in_the_original(first, second, longest):
    left, right = shortened(first, second, longest - 3)
    assert joined([first, second], VOCABULARY, longest) == TokenSequence(
        [CLS, *left, SEP, *right, SEP], len(left) + 2, len(left) + len(right) < len(first) + len(second)
    )


@pytest.mark.parametrize("size, cut", [(0, False), (6, False), (7, True)])
def test_a_single_text_is_cut_at_its_end(size, cut):
    ids = [CLS, *range(5, 5 + min(size, 6)), SEP]
    assert joined([list(range(5, 5 + size))], VOCABULARY, 8) == TokenSequence(ids, len(ids), cut)
