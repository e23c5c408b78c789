"""Segments of sequences: pairs of them, and whole sentences."""

from typing import NamedTuple

import numpy as np
from conftest import DOCUMENTS, numbered
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.instances.segments import pack_sentences, pair_segments


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


def sequences_of(text, length, short=0.0, seed=0, **how):
    """Each sequence as its segments of (begin, end)."""
    segments = pack_sentences(text, length, short, np.random.default_rng(seed), **how)
    assert segments.tokens_cut == 0 and not segments.pair_label.any() and (segments.counts > 0).all()
    spans = iter(zip(segments.begin.tolist(), segments.end.tolist(), strict=True))
    sequences = [[next(spans) for _ in range(count)] for count in segments.counts]
    assert next(spans, None) is None
    return sequences


def size(sequence):
    """Tokens with [CLS] and a [SEP] a segment."""
    return 1 + sum(end - begin + 1 for begin, end in sequence)


@given(DOCUMENTS, st.integers(8, 64), st.sampled_from([0.0, 0.3, 1.0]), st.integers(0, 2**32))
@settings(deadline=None)
def test_every_token_is_there_once_in_sequences_that_fit(lengths, length, short, seed):
    text = numbered(lengths)
    sequences = sequences_of(text, length, short, seed)
    assert all(size(sequence) <= length for sequence in sequences)
    tokens = [token for sequence in sequences for begin, end in sequence for token in range(begin, end)]
    assert sorted(tokens) == list(range(len(text.tokens)))


@given(DOCUMENTS, st.integers(0, 2**32))
@settings(deadline=None)
def test_sequences_take_whole_sentences_as_long_as_they_fit(lengths, seed):
    text = numbered(lengths)
    sequences = sequences_of(text, 64, seed=seed)
    ends = set(text.ends.tolist())
    documents = set(text.ends[text.documents].tolist())
    for sequence, following in zip(sequences, sequences[1:] + [None]):
        assert all(begin in ends and end in ends for begin, end in sequence)
        assert all(begin in documents for begin, _ in sequence[1:])  # a new segment is a new document
        if following:
            begin = following[0][0]
            next_sentence = text.ends[np.searchsorted(text.ends, begin) + 1] - begin
            assert size(sequence) + next_sentence + (begin in documents) > 64
            assert begin == sequence[-1][1] or begin in documents


@given(DOCUMENTS, st.integers(0, 2**32))
@settings(deadline=None)
def test_a_sequence_may_end_with_its_document(lengths, seed):
    text = numbered(lengths)
    sequences = sequences_of(text, 64, seed=seed, across_documents=False)
    documents = text.ends[text.documents]
    for ((begin, end),) in sequences:  # one segment each, of one document
        assert np.searchsorted(documents, begin, side="right") == np.searchsorted(documents, end)
    assert sum(end - begin for ((begin, end),) in sequences) == len(text.tokens)


@given(DOCUMENTS, st.integers(8, 64), st.booleans(), st.integers(0, 2**32))
@settings(deadline=None)
def test_a_sequence_may_end_where_it_is_full(lengths, length, across_documents, seed):
    text = numbered(lengths)
    sequences = sequences_of(text, length, seed=seed, across_documents=across_documents, whole_sentences=False)
    documents = set(text.ends[text.documents].tolist())
    for sequence, following in zip(sequences, sequences[1:] + [None]):
        assert all(begin in documents for begin, _ in sequence[1:])
        if following and (across_documents or following[0][0] not in documents):
            last = following[0][0] in documents  # no room for a [SEP] and the first token of the next document
            assert length - last <= size(sequence) <= length
    tokens = [token for sequence in sequences for begin, end in sequence for token in range(begin, end)]
    assert sorted(tokens) == list(range(len(text.tokens)))


def test_a_longer_sentence_is_cut_into_pieces():
    assert sequences_of(numbered([[25]]), 12) == [[(0, 10)], [(10, 20)], [(20, 25)]]


def test_short_sequences_without_pairs_are_as_many_as_asked():
    text = numbered([[2] * 2000])
    assert {size(sequence) for sequence in sequences_of(text, 64)[:-1]} == {64}
    short = np.mean([size(sequence) < 60 for sequence in sequences_of(text, 64, short=0.5)])
    assert 0.3 < short < 0.8


def test_seeds_give_documents_in_other_orders():
    text = numbered([[5]] * 20)
    assert sequences_of(text, 64, seed=1) != sequences_of(text, 64, seed=2)
