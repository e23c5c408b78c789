"""Byte-level BPE that is trained here."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trained_tokenizers import trained

from bert_jax.text.extension import extend, replaced_pieces
from bert_jax.text.tokenizer import load_tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return trained("byte_bpe", lowercase=False)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_no_text_is_unknown_or_lost(tokenizer, text):
    ids = tokenizer.encode(text)
    assert not {*ids} & {*tokenizer.vocabulary.special_ids}
    assert tokenizer.decode(ids) == text.removeprefix(" ")


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_spans_cover_the_text(tokenizer, text):
    spans = tokenizer.encode_spans(text)
    assert [span.id for span in spans] == tokenizer.encode(text)
    assert all(0 <= span.begin <= span.end <= len(text) for span in spans)
    seen = {place for span in spans for place in range(span.begin, span.end)}
    assert all(place in seen for place, one in enumerate(text) if one.isalnum())


def test_a_word_is_the_same_wherever_it_stands(tokenizer):
    assert tokenizer.encode("dog") == tokenizer.encode("a dog")[-1:]
    assert tokenizer.piece_text(tokenizer.encode("dog")[0]) == "dog"
    assert tokenizer.spelled(tokenizer.encode("dog")[0]) == "▁dog"


def test_words_are_added_after_the_old_pieces(tokenizer, tmp_path):
    extension = extend(tokenizer, ["dog", "zebra", "two words", "zebra", "semi;colon"])
    assert (extension.added, extension.known, extension.split) == (1, 2, 2)
    longer = extension.tokenizer
    assert longer.vocabulary.pieces[:320] == tokenizer.vocabulary.pieces
    assert longer.encode("a zebra") == [*tokenizer.encode("a"), 320]
    assert longer.encode("the zebras' dog")[-2:] == tokenizer.encode("the zebras' dog")[-2:]
    assert replaced_pieces(tokenizer, longer)[320] == tokenizer.encode("zebra")
    longer.save(tmp_path)
    assert load_tokenizer(tmp_path).encode("zebra") == [320]
