"""Vocabularies of every kind that are trained here."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trained_tokenizers import KINDS, SIZES, TEXTS, trained

from bert_jax.system.errors import UsageError
from bert_jax.text.spelling import BYTES
from bert_jax.text.vocabulary import SPECIAL_PIECES
from bert_jax.text.vocabulary_training import FAIRSEQ_PIECES, count_words


@pytest.mark.parametrize("kind", KINDS)
def test_a_vocabulary_has_its_size_and_begins_with_the_special_pieces(kind):
    tokenizer = trained(kind)
    pieces = tokenizer.vocabulary.pieces
    assert len(pieces) == SIZES[kind] and pieces[:5] == (FAIRSEQ_PIECES if kind == "byte_bpe" else SPECIAL_PIECES)
    assert tokenizer.kind == kind and tokenizer.vocabulary.separators == (2 if kind == "byte_bpe" else 1)
    unknown = tokenizer.vocabulary.unknown_id
    assert not any(unknown in ids for ids in tokenizer.encode_batch(TEXTS))
    if kind == "byte_bpe":
        assert {*pieces[5:261]} == {*BYTES}
    if kind == "wordpiece":
        assert not {"##中", "##,"} & {*pieces}  # they always stand alone


def test_training_is_the_same_in_every_process(tmp_path):
    kinds = ["wordpiece", "unigram", "byte_bpe"]
    code = (
        f"import sys; sys.path = {sys.path!r}; from pathlib import Path; from trained_tokenizers import trained; "
        f"[trained(kind).write_vocabulary(Path({str(tmp_path)!r}) / kind) for kind in {kinds}]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    for kind in kinds:
        trained(kind).write_vocabulary(tmp_path / "this")
        assert (tmp_path / "this").read_bytes() == (tmp_path / kind).read_bytes(), kind


@pytest.mark.parametrize(
    ("kind", "size", "words"),
    [
        ("wordpiece", 20, "less than the"),
        ("unigram", 20, "less than the"),
        ("byte_bpe", 260, "less than the 261 special pieces and bytes"),
        *((kind, 9000, "more than the text can give; |set --voc") for kind in KINDS),
    ],
)
def test_a_size_that_cannot_be_is_refused(kind, size, words):
    with pytest.raises(UsageError, match=words):
        trained(kind, size)


@pytest.mark.parametrize(("kind", "size"), [("wordpiece", 24), ("unigram", 15)])
def test_rare_characters_become_unknown(kind, size):
    common = trained(kind, size, texts=("many words " * 100 + "报",), character_coverage=0.99)
    assert "报" not in common.vocabulary.ids and "w" in common.vocabulary.ids


def test_a_word_of_a_million_letters_takes_no_part_in_training_of_a_wordpiece():
    texts = ("some words and some more words",) * 3
    longer = trained("wordpiece", 24, texts=(*texts, "somewrdan" * 100_000))
    assert longer.vocabulary.pieces == trained("wordpiece", 24, texts=(*texts, "")).vocabulary.pieces


def test_long_stretches_of_a_script_without_spaces_take_part_in_training_of_a_wordpiece():
    text = "ภาษาไทยคนไทยเขียนติดกัน" * 40
    pieces = trained("wordpiece", 60, texts=(text,) * 3).vocabulary.pieces
    assert any(len(piece.removeprefix("##")) > 2 for piece in pieces[5:])


def test_long_words_are_cut_and_all_are_counted_for_sentencepiece():
    counts = count_words(["a b a", "中" * 2500])
    assert counts["a"] == 2 and counts["中" * 1000] == 2 and counts["中" * 500] == 1 and len(counts) == 4


@pytest.fixture(scope="module")
def of_bytes():
    return trained("byte_bpe", lowercase=False)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_no_text_is_unknown_or_lost(of_bytes, text):
    ids = of_bytes.encode(text)
    assert not {*ids} & {*of_bytes.vocabulary.special_ids}
    assert of_bytes.decode(ids) == text.removeprefix(" ")


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_spans_cover_the_text(of_bytes, text):
    spans = of_bytes.encode_spans(text)
    assert [span.id for span in spans] == of_bytes.encode(text)
    assert all(0 <= span.begin <= span.end <= len(text) for span in spans)
    seen = {place for span in spans for place in range(span.begin, span.end)}
    assert all(place in seen for place, one in enumerate(text) if one.isalnum())


def test_a_word_is_the_same_wherever_it_stands(of_bytes):
    assert of_bytes.encode("dog") == of_bytes.encode("a dog")[-1:]
    assert of_bytes.piece_text(of_bytes.encode("dog")[0]) == "dog"
    assert of_bytes.spelled(of_bytes.encode("dog")[0]) == "▁dog"
