"""Byte-level BPE that is trained here."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.system.errors import UsageError
from bert_jax.text.byte_alphabet import BYTES
from bert_jax.text.byte_level_bpe import SPECIAL_PIECES, train_byte_level_bpe
from bert_jax.text.extension import extend, replaced_pieces
from bert_jax.text.tokenizer import Tokenizer, load_tokenizer

WORDS = "the quick brown fox foxes jumped jumping over lazy dogs dog again größere Übungen 山河".split()
TEXTS = [f"{first} {second}, {third}'s {first}." for first in WORDS for second in WORDS for third in WORDS[::3]]


def train(size=300, **cleaning):
    return train_byte_level_bpe(TEXTS, size, **{"lowercase": False, "strip_accents": None} | cleaning)


@pytest.fixture(scope="module")
def tokenizer():
    return train()


def test_special_pieces_and_bytes_come_first(tokenizer):
    assert isinstance(tokenizer, Tokenizer) and tokenizer.kind == "byte_bpe"
    pieces = tokenizer.vocabulary.pieces
    assert len(pieces) == 300 and pieces[:5] == SPECIAL_PIECES and {*pieces[5:261]} == {*BYTES}
    assert tokenizer.vocabulary.pad_id == 1 and tokenizer.vocabulary.separators == 2


def test_training_is_the_same_in_every_process(tokenizer, tmp_path):
    code = (
        "from pathlib import Path; from bert_jax.text.byte_level_bpe import train_byte_level_bpe; "
        f"made = train_byte_level_bpe({TEXTS!r}, 300, lowercase=False, strip_accents=None); "
        f"made.write_vocabulary(Path({str(tmp_path / 'other')!r}))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    tokenizer.write_vocabulary(tmp_path / "this")
    assert (tmp_path / "this").read_bytes() == (tmp_path / "other").read_bytes()


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


def test_case_and_accents_are_treated_as_asked():
    tokenizer = train(lowercase=True)
    assert tokenizer.encode("DOG Ubungen") == tokenizer.encode("dog Übungen")
    assert train().encode("DOG") != train().encode("dog")


def test_words_are_added_after_the_old_pieces(tokenizer, tmp_path):
    made = extend(tokenizer, ["dog", "zebra", "two words", "zebra", "semi;colon"])
    assert (made.added, made.known, made.split) == (1, 2, 2)
    longer = made.tokenizer
    assert longer.vocabulary.pieces[:300] == tokenizer.vocabulary.pieces
    assert longer.encode("a zebra") == [*tokenizer.encode("a"), 300]
    assert longer.encode("the zebras' dog")[-2:] == tokenizer.encode("the zebras' dog")[-2:]
    assert replaced_pieces(tokenizer, longer)[300] == tokenizer.encode("zebra")
    longer.save(tmp_path)
    assert load_tokenizer(tmp_path).encode("zebra") == [300]


@pytest.mark.parametrize(("size", "words"), [(260, "less than the 261 special pieces and bytes"), (9000, "set --voc")])
def test_a_size_that_cannot_be_is_refused(size, words):
    with pytest.raises(UsageError, match=words):
        train(size)
