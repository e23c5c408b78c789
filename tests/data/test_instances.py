import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.data.instances import build_instance, pair_segments
from bert_jax.data.sentences import Sentences, encode_documents
from bert_jax.system.batch import MASKABLE, WORD_START

CLS, SEP = 2, 3
FIRST_ID = 10
LENGTHS = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=12), min_size=2, max_size=8)
"""Documents as the lengths of their sentences."""


def numbered(lengths) -> Sentences:
    """Every token its own position plus FIRST_ID, so that where it came from can be read off."""
    sentences = [size for document in lengths for size in document]
    return Sentences(
        np.arange(sum(sentences), dtype=np.int32) + FIRST_ID,
        np.cumsum([0, *sentences]),
        np.cumsum([0, *map(len, lengths)]),
    )


def pairs_of(text, length, short=0.1, seed=0):
    return list(pair_segments(text, length, short, np.random.default_rng(seed)))


def sentences_of(text, span):
    """Numbers of the sentences that a span of tokens touches."""
    return set(np.searchsorted(text.ends, np.arange(span.begin, span.end), side="right") - 1)


@given(LENGTHS, st.integers(8, 64), st.integers(0, 2**32))
@settings(deadline=None)
def test_pairs_fit_have_two_segments_and_leave_no_sentence_out(lengths, length, seed):
    text = numbered(lengths)
    document_of = np.repeat(np.arange(len(lengths)), [len(document) for document in lengths])
    seen, cut = set(), 0
    for pair, excess in pairs_of(text, length, seed=seed):
        assert pair.first.length > 0 and pair.second.length > 0
        assert pair.first.length + pair.second.length <= length - 3
        cut += excess
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


@given(LENGTHS, st.integers(0, 2**32))
@settings(deadline=None)
def test_without_cutting_every_token_is_in_some_instance(lengths, seed):
    text = numbered(lengths)
    seen = set()
    for pair, excess in pairs_of(text, 10_000, short=0.0, seed=seed):
        assert excess == 0
        seen |= set(range(*pair.first)) | set(range(*pair.second))
    assert seen == set(range(len(text.tokens)))


def test_random_segments_come_from_another_document():
    text = numbered([[5] * 10] * 20)
    for pair, _ in pairs_of(text, 64):
        if pair.label == 1:
            assert pair.first.begin // 50 != pair.second.begin // 50


def test_half_of_the_pairs_with_a_choice_are_random():
    text = numbered([[8] * 40] * 60)
    labels = [pair.label for pair, _ in pairs_of(text, 64, short=0.0)]
    assert len(labels) > 400
    assert 0.45 < np.mean(labels) < 0.62  # a document's last sentence alone is always paired at random


def test_truncation_evens_out_the_longer_segment_first_at_both_ends():
    text = numbered([[100], [30]])
    fronts = []
    for seed in range(300):
        for pair, excess in pairs_of(text, 53, short=0.0, seed=seed):
            assert {pair.first.length, pair.second.length} == {25}
            assert excess == 80
            longer = pair.first if pair.first.begin < 100 else pair.second
            fronts.append(longer.begin)
    assert 35 < np.mean(fronts) < 40 and np.std(fronts) > 2  # 75 tokens off, each at a fair coin's end


def test_ties_take_from_the_second_segment():
    text = numbered([[6], [6]])
    for pair, _ in pairs_of(text, 3 + 11, short=0.0):
        assert (pair.first.length, pair.second.length) == (6, 5)


def test_short_sequences_are_as_many_as_asked():
    text = numbered([[2] * 200] * 100)
    full = [max(pair.first.length + pair.second.length for pair, _ in pairs_of(numbered([[2] * 200] * 2), 64, 0.0))]
    assert full == [61 - 61 % 2] or full == [61]
    short = np.mean([pair.first.length + pair.second.length < 50 for pair, _ in pairs_of(text, 64, short=1.0)])
    assert short > 0.5


def test_a_pair_becomes_an_instance_with_its_words_marked():
    starts_word = np.ones(200, bool)
    starts_word[[11, 12, 15]] = False
    text = numbered([[5], [4]])
    pair = next(pair for pair, _ in pairs_of(text, 64, short=0.0) if pair.first.begin == 0)
    instance = build_instance(pair, text.tokens, starts_word, CLS, SEP)
    assert instance.ids.tolist() == [CLS, 10, 11, 12, 13, 14, SEP, 15, 16, 17, 18, SEP]
    both, inside = MASKABLE | WORD_START, MASKABLE
    assert instance.units.tolist() == [0, both, inside, inside, both, both, 0, both, both, both, both, 0]
    assert (instance.first_length, instance.pair_label) == (7, 1)


def test_documents_and_sentences_without_pieces_are_left_out():
    words = {"a": [1], "b c": [2, 3], "": []}
    text = encode_documents([["a", ""], [""], ["", "b c", "a"]], lambda batch: [words[sentence] for sentence in batch])
    assert text.tokens.tolist() == [1, 2, 3, 1]
    assert text.ends.tolist() == [0, 1, 3, 4]
    assert text.documents.tolist() == [0, 1, 3]


@pytest.mark.parametrize("documents", [[], [[]], [[""]]])
def test_nothing_is_nothing(documents):
    text = encode_documents(documents, lambda batch: [[] for _ in batch])
    assert len(text.tokens) == 0 and text.documents.tolist() == [0]
    assert pairs_of(text, 64) == []
