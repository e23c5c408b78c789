"""Spans of a text reach the tokens that a slow, plain search finds, through lines, sentences, cleaning and cutting."""

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prepared_sets import build, read_all
from trained_tokenizers import trained

from bert_jax.config.data import DataConfig
from bert_jax.layout import ENTITY_START, PHRASE_START, WORD_START
from bert_jax.records.corpus import open_corpus
from bert_jax.system.errors import UsageError
from bert_jax.text.segmentation import split_sentences
from bert_jax.text.text_spans import TextSpan, plain, spanned, split_marked, tokens_of, with_spans
from bert_jax.text.vocabulary import SPECIAL_PIECES, Vocabulary
from bert_jax.text.wordpiece import WordPieceTokenizer

PIECES = ["a", "b", "c", "##a", "##b", "##c", "ab", "中", "国", "人", ",", "."]
TOKENIZER = WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, *PIECES]))
OTHERS = st.sampled_from(["中", "国", "人", ",", "á", "a\u0301b", "A\u200bb"])
WORDS = st.text("abcABC", min_size=1, max_size=4) | OTHERS
SPACES = st.sampled_from([" ", "  ", "\t ", "\u00a0"])


@st.composite
def spanned_texts(draw):
    """A text, spans of whole words in it, and what is spelled by each."""
    words = draw(st.lists(WORDS, min_size=1, max_size=12))
    text, places = "", []
    for word in words:
        text += draw(SPACES)
        places.append((len(text), len(text) + len(word)))
        text += word
    spans, at = [], 0
    while at < len(words):
        size = draw(st.integers(0, 3))
        if size and at + size <= len(words):
            spans.append([places[at][0], places[at + size - 1][1], draw(st.sampled_from(["phrase", "entity"]))])
        at += max(size, 1)
    return text, spans


@given(spanned_texts())
@settings(max_examples=200, deadline=None)
def test_spans_of_whole_words_are_the_tokens_of_what_they_span(case):
    text, spans = case
    dropped = Counter()
    marked = with_spans(text, spans, "here", dropped)
    assert not dropped and plain(marked) == text
    found = spanned(marked.strip())
    assert found.text == text.strip() and not found.cut and len(found.spans) == len(spans)
    pieces = TOKENIZER.encode_spans(found.text)
    ids = [piece.id for piece in pieces]
    assert ids == TOKENIZER.encode(text)
    tokens = tokens_of(found.spans, pieces, TOKENIZER.starts_word[ids])
    spelled = sorted(TOKENIZER.encode(text[begin:end]) for begin, end, _ in spans)
    assert sorted(ids[first:after] for first, after in tokens) == spelled


@pytest.mark.parametrize("kind, size", [("unigram", 29), ("bpe", 60)])
def test_sentencepiece_finds_spans_in_scripts_with_and_without_spaces(kind, size):
    sentences = ["the old house of the garden stands", "the garden of the old house", "中国人在花园", "花园在中国"]
    tokenizer = trained(kind, size, tuple(sentences) * 40)
    for text, begin, end in [("The  old house of", 5, 14), ("the garden", 0, 10), ("the 花园在中国", 4, 9)]:
        pieces = tokenizer.encode_spans(text)
        ids = [piece.id for piece in pieces]
        ((first, after),) = tokens_of([TextSpan(begin, end, "phrase")], pieces, tokenizer.starts_word[ids])
        assert tokenizer.decode(ids[first:after]) == " ".join(text[begin:end].lower().split())


@pytest.mark.parametrize(
    "spans, kept, why",
    [
        ([[0, 9, "entity"]], 0, "spans past the text"),
        ([[-1, 2, "entity"]], 0, "spans past the text"),
        ([[3, 2, "entity"]], 0, "spans out of order"),
        ([[3, 5, "entity"], [0, 2, "entity"]], 1, "spans out of order"),
        ([[0, 2, "entity"], [1, 4, "entity"]], 1, "spans that cross the one before"),
        ([[2, 2, "entity"], [2, 3, "phrase"]], 0, "spans without text"),
        ([[0, 5, "entity"], [0, 2, "phrase"]], 2, None),
    ],
)
def test_spans_that_cannot_be_are_counted(spans, kept, why):
    dropped = Counter()
    found = spanned(with_spans("ab abc", spans, "here", dropped))
    assert len(found.spans) == kept and dropped.total() == len(spans) - kept and (why is None or dropped[why])


@pytest.mark.parametrize(
    "value, told",
    [
        ("x", "is 'x'; expected a list"),
        ([[0, 2]], "the span [0, 2]; expected [begin, end, kind]"),
        ([[0, 2.0, "entity"]], "expected [begin, end, kind]"),
        ([[False, 2, "entity"]], "expected [begin, end, kind]"),
        ([[0, 2, "PER"]], "a span of kind 'PER'; a kind is phrase or entity"),
        ([[0, 2, ["entity"]]], "a span of kind ['entity']"),
    ],
)
def test_what_is_no_span_is_one_line(value, told):
    with pytest.raises(UsageError) as error:
        with_spans("ab abc", value, "a.jsonl, line 3: 'spans'", Counter())
    assert told in str(error.value) and "a.jsonl, line 3" in str(error.value) and "\n" not in str(error.value)


def test_sentences_take_their_spans_along_and_those_across_are_counted():
    text = "Old Tom sat. The cat ran off. He saw."
    spans = [[0, 12, "phrase"], [0, 7, "entity"], [8, 20, "entity"], [21, 29, "phrase"]]
    parts = split_marked(with_spans(text, spans, "here", Counter()), lambda whole: split_sentences(whole, "en"))
    found = [spanned(part) for part in parts]
    assert [part.text for part in found] == ["Old Tom sat.", "The cat ran off.", "He saw."]
    texts = [sorted((part.text[span.begin : span.end], span.kind) for span in part.spans) for part in found]
    assert texts == [[("Old Tom", "entity"), ("Old Tom sat.", "phrase")], [("ran off.", "phrase")], []]
    assert [part.cut for part in found] == [1, 0, 0]


def test_only_whole_words_are_taken():
    pieces = TOKENIZER.encode_spans("abc ab")
    starts = TOKENIZER.starts_word[[piece.id for piece in pieces]]
    spans = [TextSpan(*edges, "phrase") for edges in ((0, 2), (1, 3), (0, 6), (2, 4), (3, 6))]
    assert tokens_of(spans, pieces, starts).tolist() == [[0, 3], [2, 3]]


def records(path, texts):
    """JSON lines with every "old house" as an entity and every "small" as a phrase."""
    lines = []
    for text in texts:
        found = [(at, at + 9, "entity") for at in range(len(text)) if text.startswith("old house", at)]
        found += [(at, at + 5, "phrase") for at in range(len(text)) if text.startswith("small", at)]
        lines.append(json.dumps({"text": text, "meta": {"names": sorted(found)}}))
    path.write_text("\n".join(lines) + "\n")
    return f"jsonl:{path}#text"


TWO_LINES = "Number {} is the old house. It is small, says Tom.\nThe Old house fell; an old house stands."
TEXTS = [TWO_LINES.format(at) for at in range(60)]


def test_prepared_data_have_the_units_of_the_spans(recipe, tmp_path):
    source = records(tmp_path / "a.jsonl", [*TEXTS, "small\nworld"])
    data = recipe.data.replace(source=(source,), layout="paragraphs", spans="meta.names", held_out=0.1)
    made = build(recipe._replace(data=data, pair="none"), tmp_path / "spans")
    build(recipe._replace(data=data.replace(spans=None), pair="none"), tmp_path / "bare")
    spanned_set, without = (read_all(tmp_path / name) for name in ("spans", "bare"))
    assert np.array_equal(spanned_set.ids, without.ids) and np.array_equal(spanned_set.ends, without.ends)
    units, documents = spanned_set.units, made.train.documents
    assert made.train.units["entities"] in (2 * documents, 2 * documents - 2) and made.held_out.units["phrases"] > 0
    inner = (units & WORD_START > 0) & ~(units & ENTITY_START > 0)
    assert inner.sum() == made.train.units["entities"]  # "house" of each "old house"
    assert (units & PHRASE_START > 0).sum() == (units & WORD_START > 0).sum()  # "small" is one word
    assert all(mark not in sentence for sentence in made.example_sentences for mark in "\ufdd0\ufdd1\ufdd2\ufdd3")


def test_a_lexicon_gives_way_to_spans(recipe, tmp_path):
    source = records(tmp_path / "a.jsonl", TEXTS)
    (tmp_path / "names.txt").write_text("the old\nTom\n")
    data = recipe.data.replace(
        source=(source,), layout="paragraphs", spans="meta.names", entities=str(tmp_path / "names.txt"), held_out=0.0
    )
    found = build(recipe._replace(data=data), tmp_path / "out").train.units
    assert found["entities"] == len(TEXTS) * 4  # two spans, "Tom" and the "The Old" that has no span


def test_spans_that_are_dropped_are_said(recipe, tmp_path):
    path = tmp_path / "a.jsonl"
    lines = [{"text": text, "spans": [[0, 2, "entity"], [7, 999, "entity"], [20, 40, "phrase"]]} for text in TEXTS]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"text": "No spans.", "spans": null}\n')
    data = recipe.data.replace(source=(f"jsonl:{path}#text",), layout="paragraphs", spans="spans", held_out=0.0)
    shown = dict(build(recipe._replace(data=data), tmp_path / "out").train.table(32, 5))
    assert shown["spans past the text"] == shown["spans across sentences, not taken"] == f"{len(TEXTS)}"
    assert shown["spans that are not whole words, not taken"] == f"{len(TEXTS)}"


def test_a_field_that_is_not_there_is_one_line(tmp_path):
    source = records(tmp_path / "a.jsonl", TEXTS)
    with pytest.raises(UsageError, match="no column 'spans'.*name another by --data.spans"):
        open_corpus(DataConfig(source=source, spans="spans"))
    (tmp_path / "a.txt").write_text("A text.\n")
    with pytest.raises(UsageError, match="--data.spans=spans names a field of JSON lines, but --data.source="):
        open_corpus(DataConfig(source=f"text:{tmp_path}/a.txt", spans="spans"))
