import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.records.signatures import band_keys, digests, minhashes, word_counts

ENGLISH = "the quick brown fox jumps over the lazy dog and runs through the old town until it is dark".split()


def with_changes(count, seed=0):
    rng = np.random.default_rng(seed)
    words = [f"w{number}" for number in rng.integers(0, 10**9, 400)]
    changed = words.copy()
    for place in rng.choice(len(words), count, replace=False):
        changed[place] = f"other{place}"
    return " ".join(words), " ".join(changed)


def similarity(ours, theirs):
    return (minhashes(ours) == minhashes(theirs)).mean(1)


def shingles(text):
    words = text.split()
    return {tuple(words[begin : begin + 5]) for begin in range(len(words) - 4)}


@pytest.mark.parametrize("count", [0, 4, 20, 40])
def test_similarity_is_jaccard_s_of_shingles_of_five_words(count):
    pairs = [with_changes(count, seed) for seed in range(8)]
    found = similarity(*zip(*pairs))
    true = [len(shingles(a) & shingles(b)) / len(shingles(a) | shingles(b)) for a, b in pairs]
    assert np.abs(found - true).max() < 0.15 and abs(found.mean() - np.mean(true)) < 0.03


def test_case_and_punctuation_make_no_difference_and_words_do():
    plain = " ".join(ENGLISH)
    same = minhashes([plain, plain.title().replace(" ", ", ") + "!", "“" + plain + "”"])
    assert same.shape == (3, 128) and (same == same[0]).all()
    assert similarity([plain], [" ".join(reversed(ENGLISH))]) == 0


@given(st.lists(st.text(), min_size=1, max_size=6))
def test_a_signature_depends_on_its_own_text_alone(texts):
    together = minhashes(texts)
    for number, text in enumerate(texts):
        assert (together[number] == minhashes([text])[0]).all()


def test_characters_are_words_in_scripts_without_spaces():
    counted = {"我爱北京天安门": 7, "ภาษาไทย": 7, "two words": 2, "mixed 中文 text": 4, "...": 1, "नमस्ते दुनिया": 2}
    assert word_counts(list(counted)).tolist() == list(counted.values())
    chinese = "清晨的阳光照在古老的城墙上人们开始了新的一天街道两旁的店铺陆续打开了门"
    (near,) = similarity([chinese], [chinese.replace("古老", "破旧")])
    assert 0.4 < near < 0.9


@pytest.mark.parametrize("texts", [["one two", "one three"], ["?!", "..."], ["one two three four", "one two three"]])
def test_short_texts_are_similar_only_if_they_are_equal(texts):
    assert similarity(texts[:1], texts[1:]) == 0
    assert similarity(texts, texts).tolist() == [1, 1]


def test_digests_are_equal_for_equal_texts_only():
    first, second, third = digests(["one two", "one Two", "one two"])
    assert (first == third).all() and (first != second).any()


def test_bands_have_equal_keys_where_their_four_numbers_and_places_are_equal():
    numbers = np.arange(16, dtype=np.uint32)
    rows = np.stack([numbers, np.where(numbers == 5, 0, numbers), np.roll(numbers, 4)])
    first, changed, moved = band_keys(rows)
    assert (first == changed).tolist() == [True, False, True, True]
    assert not set(first) & set(moved) and len({*first}) == 4
