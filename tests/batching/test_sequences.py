import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.batching.sequences import joined, unpooled_tokens
from bert_jax.config.vectors import Prompt
from bert_jax.layout import TokenSequence
from bert_jax.text.vocabulary import SPECIAL_PIECES, Vocabulary
from bert_jax.text.wordpiece import WordPieceTokenizer

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


@pytest.mark.parametrize(("class_token", "count"), [("first", 3), ("last", 2)])
def test_the_prompts_own_tokens_and_a_first_class_token_are_not_pooled(class_token, count):
    tokenizer = WordPieceTokenizer(VOCABULARY).with_class_token(class_token)
    assert unpooled_tokens(Prompt("1 2 ", False), tokenizer, 9) == count
