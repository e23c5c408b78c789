"""Too few documents to hold one out: the end of each is held out."""

import numpy as np
import pytest
from conftest import story
from prepared_sets import build, read_all

from bert_jax.config.data import DataConfig
from bert_jax.instances.held_out import LEAST_END_BYTES, is_held_out, split_end, training_documents

DATA = DataConfig(held_out=0.01)


def size(lines):
    return sum(len(line.encode()) + 1 for line in lines)


@pytest.mark.parametrize("count, share", [(20, 0.1), (1_000, 0.1), (3_000, 0.095), (30_000, 0.011)])
def test_an_end_is_a_tenth_of_a_short_document_and_the_set_share_of_a_long_one(count, share):
    document = [f"Line number {number:4} of this document." for number in range(count)]
    begin, end = split_end(document, DATA.replace(held_out=0.011), 0)
    assert begin + end == document and 0.7 * share < size(end) / size(document) <= share * 1.1
    assert size(end) <= max(LEAST_END_BYTES, 0.011 * size(document)) + 1


def test_the_end_of_one_paragraph_is_its_last_sentences():
    text = " ".join(f"Sentence number {number} stands here." for number in range(40))
    begin, end = split_end([text], DATA, 0)
    assert " ".join(begin + end).split() == text.split() and len(end) == 3


@pytest.mark.parametrize("document", [["One sentence only."], ["First.", "Second."], []])
def test_a_document_of_few_sentences_has_no_end(document):
    assert split_end(document, DATA, 0) == (document, [])


def test_one_document_without_blank_lines_is_divided_and_said(recipe_for, tmp_path, capsys):
    lines = [line for seed in range(30) for line in story(seed)]
    recipe = recipe_for("\n".join(lines), pair="none")
    prepared = build(recipe, tmp_path / "out")
    said = " ".join(capsys.readouterr().err.split())
    assert "too few documents to hold some out for evaluation; the end of each is held out instead" in said
    begin, end = split_end(lines, recipe.data, 0)
    alone = build(recipe_for("\n".join(end), pair="none", held_out=0.0), tmp_path / "end")
    without = build(recipe_for("\n".join(begin), pair="none", held_out=0.0), tmp_path / "begin")
    assert (prepared.train.tokens, prepared.train.instances) == (without.train.tokens, without.train.instances)
    assert prepared.held_out.tokens == alone.train.tokens > 0
    assert np.array_equal(read_all(tmp_path / "out").ids, read_all(tmp_path / "begin").ids)
    assert np.array_equal(prepared.piece_counts, without.piece_counts)


HELD_OUT = next(lines for seed in range(99) if is_held_out(lines := story(seed, 12), 0.3))
"""A document whose hash is among those that are held out."""


def test_of_documents_that_are_all_held_out_the_beginnings_are_trained_on(recipe_for, tmp_path):
    recipe = recipe_for("\n".join(HELD_OUT), pair="none", held_out=0.3)
    prepared = build(recipe, tmp_path / "out")
    begin, end = split_end(HELD_OUT, recipe.data, 0)
    assert (prepared.train.documents, prepared.held_out.documents) == (1, 1) and end
    others = [lines for seed in range(9) if not is_held_out(lines := story(seed), 0.3)]
    documents = [(0, HELD_OUT), (1, HELD_OUT), *((1, lines) for lines in others)]
    found = list(training_documents(documents, recipe.data.replace(source=("text:a", "text:b"))))
    assert found == [(0, begin), *((1, lines) for lines in others)]


def test_an_end_of_paragraphs_that_stand_elsewhere_is_dropped(recipe_for, tmp_path):
    shared = "This paragraph stands in the beginning and at the end, and is long enough to be compared."
    lines = [shared, *(line for seed in range(20) for line in story(seed)), shared]
    prepared = build(recipe_for("\n".join(lines), pair="none"), tmp_path / "out")
    assert (prepared.held_out.documents, prepared.held_out_dropped) == (0, 1)
