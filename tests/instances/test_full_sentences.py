import numpy as np
from conftest import DOCUMENTS, numbered
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.instances.full_sentences import pack_sentences


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


def test_short_sequences_are_as_many_as_asked():
    text = numbered([[2] * 2000])
    assert {size(sequence) for sequence in sequences_of(text, 64)[:-1]} == {64}
    short = np.mean([size(sequence) < 60 for sequence in sequences_of(text, 64, short=0.5)])
    assert 0.3 < short < 0.8


def test_seeds_give_documents_in_other_orders():
    text = numbered([[5]] * 20)
    assert sequences_of(text, 64, seed=1) != sequences_of(text, 64, seed=2)
