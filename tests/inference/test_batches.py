import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.batching.grouping import padded_length
from bert_jax.batching.sequences import joined
from bert_jax.inference.batches import batches
from bert_jax.layout import TokenSequence
from bert_jax.text.vocabulary import SPECIAL_PIECES, Vocabulary

VOCABULARY = Vocabulary([*SPECIAL_PIECES, *map(str, range(100))])
CLS, SEP, PAD = VOCABULARY.cls_id, VOCABULARY.sep_id, VOCABULARY.pad_id


def rows_of(lengths) -> list[TokenSequence]:
    """A sequence of each length, filled with its number."""
    return [TokenSequence([number + 10] * length, length) for number, length in enumerate(lengths)]


@given(st.lists(st.integers(2, 50), max_size=100))
def test_every_row_is_in_one_batch_and_nothing_else_is(lengths):
    check_batches(lengths)


def test_rows_of_several_windows_keep_their_places():
    check_batches([50, 3] * 1500)


def check_batches(lengths):
    """Every row is in one batch, under its place, with nothing but padding after it."""
    seen = {}
    for batch in batches(rows_of(lengths), PAD, 50, 256):
        for number, place in enumerate(batch.places):
            assert place not in seen
            seen[place] = int(batch.tokens.length[number, 0])
            real = batch.tokens.sequence[number] > 0
            assert real.sum() == seen[place]
            assert (batch.tokens.ids[number] == np.where(real, place + 10, PAD)).all()
        assert not batch.tokens.sequence[len(batch.places) :].any() and not batch.tokens.segment.any()
    assert seen == dict(enumerate(lengths))


@given(st.lists(st.integers(2, 50), min_size=1, max_size=100))
def test_shapes_are_few_and_no_batch_is_too_large(lengths):
    allowed = {(count, length) for length in (16, 24, 32, 48, 50) for count in (1, 4, 16, 256 // length)}
    for batch in batches(rows_of(lengths), PAD, 50, 256):
        assert batch.tokens.ids.shape in allowed and batch.tokens.ids.size <= 256
        assert batch.tokens.ids.shape[1] == padded_length(int(batch.tokens.length.max()), (16, 24, 32, 48, 50))


def test_similar_lengths_go_together():
    lengths = [*range(2, 130)] * 8
    padded = sum(batch.tokens.ids.size for batch in batches(rows_of(lengths), PAD, 512, 2048))
    assert padded < 1.25 * sum(lengths) and 128 * len(lengths) > 1.9 * sum(lengths)


def test_the_second_segment_is_marked():
    [batch] = batches([joined([[7, 8], [9]], VOCABULARY, 16), joined([[7]], VOCABULARY, 16)], PAD, 16, 64)
    assert batch.tokens.segment[:2, :8].tolist() == [[0, 0, 0, 0, 1, 1, 0, 0], [0] * 8]
    assert batch.tokens.ids[0, :6].tolist() == [CLS, 7, 8, SEP, 9, SEP]


def test_rows_are_read_a_window_at_a_time():
    read = itertools.count()
    endless = (TokenSequence([next(read)] * 100, 100) for _ in itertools.count())
    first = next(batches(endless, PAD, 512, 2048))
    assert len(first.places) == 16 and next(read) == 656  # 65,536 tokens
