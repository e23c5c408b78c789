"""How words are split into pieces, and the words whose addition saves the most pieces."""

from collections import Counter

import pytest
from trained_tokenizers import trained

from bert_jax.text.extension import extend
from bert_jax.text.vocabulary import SPECIAL_PIECES, Vocabulary
from bert_jax.text.word_splits import FEWEST_OCCURRENCES, word_splits, words_that_save
from bert_jax.text.wordpiece import WordPieceTokenizer

TEXT = ("un able unable hello world worlds electron photo photon virus corona immune 中 国 " * 3,) * 5
OFTEN = FEWEST_OCCURRENCES


def wordpiece():
    pieces = "photo ##virus ##es corona hello world ##s ( ) - .".split()
    return WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, *pieces]))


def test_figures_are_those_of_running_text():
    found = word_splits(wordpiece(), Counter({"photovirus": 3, "hello": 2, "ѣѣ": 1, "hello.": 4}))
    assert (found.words, found.pieces) == (10, 3 * 2 + 2 + 1 + 4 * 2)
    assert found.unknown == pytest.approx(2 / (30 + 10 + 2 + 24))
    assert found.whole == pytest.approx(2 / 6)  # an unknown word is one piece and not known
    assert found.pieces_a_word == 1.7


def test_words_come_by_the_pieces_that_they_save_and_only_frequent_split_ones():
    words = {"Photovirus,": 6, "photovirus": 4, "(photoviruses)": 7, "worlds": 9, "coronavirus": OFTEN - 1, "hello": 50}
    found = words_that_save(wordpiece(), Counter(words), 10)
    assert [(each.word, each.occurrences, each.pieces, each.saved) for each in found] == [
        ("photoviruses", 7, 3, 14),
        ("photovirus", 10, 2, 10),
        ("worlds", 9, 2, 9),
    ]
    assert [each.word for each in words_that_save(wordpiece(), Counter(words), 1)] == ["photoviruses"]


def test_only_a_wordpiece_has_pieces_for_words_after_punctuation():
    words = Counter({"il-photovirus": 8, "photovirus-worlds": 6})
    found = {each.word: each.occurrences for each in words_that_save(wordpiece(), words, 10)}
    assert found == {"photovirus": 14, "worlds": 6}
    unigram = trained("unigram", 34, TEXT).as_pipeline()
    assert {each.word: each.occurrences for each in words_that_save(unigram, words, 10)} == {"il": 8, "photovirus": 6}


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "bpe", "byte_bpe", "metaspace"])
def test_added_words_save_what_was_said(kind):
    size = {"byte_bpe": 270, "wordpiece": 46}.get(kind, 34)
    tokenizer = trained("unigram" if kind == "metaspace" else kind, size, TEXT)
    tokenizer = tokenizer.as_pipeline() if kind == "metaspace" else tokenizer
    words = Counter({"photovirus": 9, "electronvirus": 8, "Immunevirus": 7, "hello": 3})
    proposed = words_that_save(tokenizer, words, 10)
    assert {each.word.lower() for each in proposed} == {"photovirus", "electronvirus", "immunevirus"}
    longer = extend(tokenizer, [each.word for each in proposed]).tokenizer
    saved = word_splits(tokenizer, words).pieces - word_splits(longer, words).pieces
    assert saved == sum(each.saved for each in proposed)
