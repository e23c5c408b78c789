import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bert_jax
from bert_jax.inference import search as module
from bert_jax.inference.search import CorpusBlock, Hit
from bert_jax.system.errors import UsageError

LINES = ["The old cat sees the dog.", "", "A quiet house near the river.", "The old cat sees the dog.", " ", "dog"]
SMALL = st.integers(-2, 2)


@pytest.fixture(scope="module")
def bert(vectors_run):
    return bert_jax.load(vectors_run.path)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(module, "ROWS_IN_BLOCK", 8)
    monkeypatch.setattr(module, "_QUERIES_AT_ONCE", 2)


def best_by_sorting(queries, vectors, top) -> list[list[int]]:
    """Row numbers of the best cosines for each query, by a sort of all of them in float64."""
    queries, vectors = (np.asarray(each, np.float64) for each in (queries, vectors))
    lengths = np.maximum(np.linalg.norm(vectors, axis=1), 1e-12)
    scores = np.round(vectors @ queries.T / lengths[:, None], 6)
    return [sorted(range(1, len(vectors) + 1), key=lambda row: (-each[row - 1], row))[:top] for each in scores.T]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(SMALL, SMALL, SMALL), min_size=1, max_size=60), st.integers(1, 70), st.integers(1, 8))
def test_the_best_are_those_of_a_sort_with_ties_in_order(rows, top, each):
    vectors, queries = np.array(rows, np.float32), np.eye(3, dtype=np.float32)[:2]
    best = module._BestRows(queries, top, "v.npz")
    for begin in range(0, len(rows), each):
        some = vectors[begin : begin + each]
        best.add(CorpusBlock(range(begin + 1, begin + 1 + len(some)), some, None))
    assert [[hit.row for hit in hits] for hits in best.hits] == best_by_sorting(queries, vectors, top)
    assert all(len(hits) == min(top, len(rows)) for hits in best.hits)


def test_a_search_of_many_blocks_is_exact_for_every_query(bert, small_blocks, tmp_path):
    vectors = np.random.default_rng(0).normal(size=(100, 32)).astype(np.float32)
    vectors[70] = vectors[10]
    np.savez(tmp_path / "v.npz", vectors=vectors)
    queries = ["The cat", "a dog", "a house", "the river", "old letters"]
    for width in (None, 16):
        found = bert.search(queries, tmp_path / "v.npz", 7, width)
        expected = best_by_sorting(bert.embed(queries, width), vectors[:, :width], 7)
        assert [[hit.row for hit in hits] for hits in found] == expected
        scores = [hit.score for hit in found[0]]
        assert scores == sorted(scores, reverse=True) and found[0][0].text is None


def test_texts_are_found_with_their_lines_and_duplicates(bert, capsys):
    hits = bert.search("The old cat sees the dog.", LINES)
    assert [hit.row for hit in hits[:2]] == [1, 4] and hits[0].score == hits[1].score == pytest.approx(1, abs=2e-6)
    assert sorted(hit.row for hit in hits) == [1, 3, 4, 6] and isinstance(hits[0], Hit)
    assert all(hit.text == LINES[hit.row - 1] for hit in hits)
    assert "the corpus: 2 empty texts left out" in capsys.readouterr().err
    [again, other] = bert.search(["The old cat sees the dog.", "house"], iter(LINES), top=2)
    assert again == hits[:2] and len(other) == 2


def test_a_stream_of_texts_is_searched_block_by_block(bert, small_blocks):
    texts = (f"{'cat' if number == 77 else 'The quiet river'} {number % 3}" for number in range(200))
    assert bert.search("cat 2", texts, top=1)[0].row == 78


@pytest.mark.parametrize(
    "queries, texts, named, words",
    [
        (["a", " \n"], ["a"], {}, "query 2 is empty; give some words"),
        ([], ["a"], {}, "there is no query; give a text"),
        ("a", ["a"], {"top": 0}, "top=0 is no whole number of at least 1"),
        ("a", ["a"], {"width": 33}, "width=33 is not possible: this model's vectors have 32 numbers; give 1 to 32"),
        ("a", ["", " "], {}, "the corpus has nothing to search"),
        ("a", ["a", {"title": "a", "body": "b"}], {}, "is a row of 'title', 'body'"),
        ("a", [{"title": "a"}], {"columns": ["body"]}, "text 1 is a row of 'title' and has no column 'body'"),
        ("a", ["a"], {"columns": ["body"]}, "text 1 is 'a', which has no columns; leave"),
    ],
)
def test_wrong_input_is_refused(bert, queries, texts, named, words):
    with pytest.raises(UsageError) as refusal:
        bert.search(queries, texts, **named)
    assert words in str(refusal.value)


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e30])
def test_vectors_that_are_not_finite_are_refused_with_their_row(bert, small_blocks, tmp_path, number):
    vectors = np.ones((20, 32), np.float32)
    vectors[12, 3] = number
    np.savez(tmp_path / "v.npz", vectors=vectors)
    with pytest.raises(UsageError, match="v.npz: the vector of row 13 has a number that isn't finite"):
        bert.search("a", tmp_path / "v.npz")


def test_a_diverged_model_is_refused(bert):
    params = jax.tree.map(lambda leaf: leaf * jnp.nan, bert.params)
    diverged = type(bert)(bert.config, params, bert.tokenizer, bert.task)
    with pytest.raises(UsageError, match="the model gives vectors that aren't finite, so its training diverged"):
        diverged.search("a", ["b"])


def test_rows_in_memory_are_searched_by_a_column_and_have_their_ids(bert):
    rows = [
        {"id": 7, "title": "the old river", "text": "a quiet house"},
        {"id": None, "title": "a small cat", "text": "the old river"},
    ]
    for columns, best in (((), 2), (("title",), 1), (("title", "text"), None)):
        hits = bert.search("the old river", rows, columns=columns)
        assert [hit.id for hit in sorted(hits, key=lambda hit: hit.row)] == ["7", ""]
        assert best is None or hits[0].row == best
