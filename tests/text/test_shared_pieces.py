"""Pieces that vocabularies of different kinds share."""

import numpy as np
import pytest

from bert_jax.text.cleaning import Cleaning
from bert_jax.text.shared_pieces import ABSENT, shared_pieces
from bert_jax.text.vocabulary_training import train_tokenizer

TEXTS = ["The old house stands near the river .", "Houses near rivers, and the oldest house: 1987!", "été naïve ß"] * 40


@pytest.fixture(scope="module")
def kinds():
    cleaning = Cleaning.of_training(lowercase=False)
    sizes = {"byte_bpe": 300, "wordpiece": 85, "bpe": 80, "unigram": 41}
    made = {kind: train_tokenizer(TEXTS, kind, size, cleaning) for kind, size in sizes.items()}
    made["uncased"] = train_tokenizer(TEXTS, "wordpiece", 75, Cleaning.of_training())
    return made


@pytest.mark.parametrize("kind", ["byte_bpe", "wordpiece", "bpe", "unigram", "uncased"])
def test_a_vocabulary_shares_every_piece_with_itself(kinds, kind):
    assert np.array_equal(shared_pieces(kinds[kind], kinds[kind]), np.arange(len(kinds[kind].vocabulary)))


PAIRS = [
    ("wordpiece", "bpe"),
    ("bpe", "byte_bpe"),
    ("byte_bpe", "wordpiece"),
    ("wordpiece", "unigram"),
    ("unigram", "byte_bpe"),
]


@pytest.mark.parametrize("old, new", PAIRS)
def test_shared_pieces_stand_for_the_same_text_at_the_same_place(kinds, old, new):
    shared = shared_pieces(kinds[old], kinds[new])
    common = [number for number, other in enumerate(shared) if other != ABSENT and number > 4]
    assert len(common) > 20
    for number in common:
        ours, theirs = kinds[new].text_bytes(number).strip(), kinds[old].text_bytes(int(shared[number])).strip()
        assert ours == theirs
        assert kinds[new].starts_word[number] == kinds[old].starts_word[shared[number]]
    roles = kinds[new].vocabulary.special_ids, kinds[old].vocabulary.special_ids
    assert tuple(shared[list(roles[0])]) == roles[1]


def test_a_cased_piece_corresponds_to_the_lower_cased_one_and_back(kinds):
    uncased, cased = kinds["uncased"], kinds["wordpiece"]
    of_old = shared_pieces(uncased, cased)
    assert uncased.vocabulary.pieces[of_old[cased.vocabulary.ids["T"]]] == "t"
    back = shared_pieces(cased, uncased)
    assert cased.vocabulary.pieces[back[uncased.vocabulary.ids["t"]]] == "t"  # not T, which is cleaned to it, too
