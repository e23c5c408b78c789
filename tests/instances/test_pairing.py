from typing import NamedTuple

import numpy as np
from conftest import DOCUMENTS, numbered
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.instances.pairing import pair_segments


class Span(NamedTuple):
    begin: int
    end: int

    @property
    def length(self):
        return self.end - self.begin


class Pair(NamedTuple):
    first: Span
    second: Span
    label: int


def pairs_of(text, length, short=0.1, seed=0):
    """The pairs, and how many tokens were cut off them."""
    segments = pair_segments(text, length, short, np.random.default_rng(seed))
    assert (segments.counts == 2).all()
    spans = list(map(Span, segments.begin.tolist(), segments.end.tolist()))
    return list(map(Pair, spans[::2], spans[1::2], segments.pair_label.tolist())), segments.tokens_cut


def sentences_of(text, span):
    """Numbers of the sentences that a span of tokens touches."""
    return set(np.searchsorted(text.ends, np.arange(span.begin, span.end), side="right") - 1)


@given(DOCUMENTS, st.integers(8, 64), st.integers(0, 2**32))
@settings(deadline=None)
def test_pairs_fit_have_two_segments_and_leave_no_sentence_out(lengths, length, seed):
    text = numbered(lengths)
    document_of = np.repeat(np.arange(len(lengths)), [len(document) for document in lengths])
    seen = set()
    pairs, cut = pairs_of(text, length, seed=seed)
    for pair in pairs:
        assert pair.first.length > 0 and pair.second.length > 0
        assert pair.first.length + pair.second.length <= length - 3
        first, second = sentences_of(text, pair.first), sentences_of(text, pair.second)
        assert len({document_of[number] for number in first}) == 1
        assert len({document_of[number] for number in second}) == 1
        seen |= first | (second if pair.label == 0 else set())
        if pair.label == 0:
            assert document_of[min(first)] == document_of[min(second)]
            assert pair.second.begin >= pair.first.end
    # Truncation may take a whole sentence of a long segment, but then its tokens are counted.
    missing = set(range(len(text.ends) - 1)) - seen
    assert sum(text.ends[number + 1] - text.ends[number] for number in missing) <= cut


@given(DOCUMENTS, st.integers(0, 2**32))
@settings(deadline=None)
def test_without_cutting_every_token_is_in_some_instance(lengths, seed):
    text = numbered(lengths)
    seen = set()
    pairs, cut = pairs_of(text, 10_000, short=0.0, seed=seed)
    assert cut == 0
    for pair in pairs:
        seen |= set(range(*pair.first)) | set(range(*pair.second))
    assert seen == set(range(len(text.tokens)))


def test_random_segments_come_from_another_document():
    text = numbered([[5] * 10] * 20)
    for pair in pairs_of(text, 64)[0]:
        if pair.label == 1:
            assert pair.first.begin // 50 != pair.second.begin // 50


def test_half_of_the_pairs_with_a_choice_are_random():
    text = numbered([[8] * 40] * 60)
    labels = [pair.label for pair in pairs_of(text, 64, short=0.0)[0]]
    assert len(labels) > 400
    assert 0.45 < np.mean(labels) < 0.62  # a document's last sentence alone is always paired at random


def test_truncation_evens_out_the_longer_segment_first_at_both_ends():
    text = numbered([[100], [30]])
    fronts, cuts = [], []
    for seed in range(300):
        pairs, cut = pairs_of(text, 53, short=0.0, seed=seed)
        cuts.append(cut / len(pairs))
        for pair in pairs:
            assert {pair.first.length, pair.second.length} == {25}
            longer = pair.first if pair.first.begin < 100 else pair.second
            fronts.append(longer.begin)
    assert np.median(cuts) == 80  # ten draws may all give the first segment's own document
    assert 35 < np.mean(fronts) < 40 and np.std(fronts) > 2  # 75 tokens off, each at a fair coin's end


def test_ties_take_from_the_second_segment():
    text = numbered([[6], [6]])
    for pair in pairs_of(text, 3 + 11, short=0.0)[0]:
        assert (pair.first.length, pair.second.length) == (6, 5)


def test_short_sequences_are_as_many_as_asked():
    text = numbered([[2] * 200] * 100)
    full = [max(pair.first.length + pair.second.length for pair in pairs_of(numbered([[2] * 200] * 2), 64, 0.0)[0])]
    assert full == [61 - 61 % 2] or full == [61]
    short = np.mean([pair.first.length + pair.second.length < 50 for pair in pairs_of(text, 64, short=1.0)[0]])
    assert short > 0.5


@given(DOCUMENTS, st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_ordered_segments_follow_each_other_and_leave_no_sentence_out(lengths, seed):
    text = numbered(lengths)
    segments = pair_segments(text, 10_000, 0.1, np.random.default_rng(seed), ordered=True)
    begin, end = segments.begin.reshape(-1, 2), segments.end.reshape(-1, 2)
    earlier = np.where(segments.pair_label, 1, 0)
    rows = np.arange(len(begin))
    assert (end[rows, earlier] == begin[rows, 1 - earlier]).all()  # nothing is cut: they touch
    document_of = np.searchsorted(text.ends[text.documents], begin, side="right")
    assert (document_of[:, 0] == document_of[:, 1]).all()
    seen = np.concatenate([np.zeros(0, int), *map(np.arange, begin.ravel(), end.ravel())])
    assert len(set(seen)) == len(seen)
    left_out = np.setdiff1d(text.tokens, seen)  # only sentences of one token
    assert (np.diff(text.ends)[np.searchsorted(text.ends, left_out, side="right") - 1] == 1).all()


def test_half_of_the_ordered_pairs_are_swapped():
    segments = pair_segments(numbered([[5] * 40] * 100), 64, 0.1, np.random.default_rng(0), ordered=True)
    assert abs(segments.pair_label.mean() - 0.5) < 3 * 0.5 / len(segments.pair_label) ** 0.5
