import math

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from bert_jax.finetuning import retrieval
from bert_jax.finetuning.retrieval import (
    ranked,
    retrieval_baselines,
    retrieval_errors,
    retrieval_metrics,
    retrieval_of,
    similarity_baselines,
    similarity_errors,
    similarity_metrics,
)
from bert_jax.run.results import Mistake

PAIRS = [("one", "a"), ("two", "b"), ("one", "c"), ("two", "b"), ("a", "d")]


def vectors(rows: int, seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(rows, 8)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def test_pairs_of_the_same_query_are_one_query_with_several_right_candidates():
    rows = retrieval_of(PAIRS)
    assert rows.queries == ["one", "two", "a"] and rows.candidates == ["a", "b", "c", "d"]
    assert rows.relevant == [[0, 2], [1], [3]]
    assert rows.query_copies == [-1, -1, 0]  # "a" is a candidate, but of another query
    assert retrieval_of([("same", "same")]).query_copies == [-1]


def test_metrics_are_those_of_ranks_counted_by_hand():
    queries = np.eye(2, dtype=np.float32)
    candidates = np.array([[0.9, 0.1], [0.8, 0.9], [0.7, 0.2], [0.1, 0.8]], np.float32)
    found = ranked(queries, candidates, [[1, 2], [3]])
    assert [ranks.tolist() for ranks in found.ranks] == [[2, 3], [2]]
    assert found.best_right.tolist() == [1, 3] and found.best_wrong.tolist() == [0, 1]
    metrics = retrieval_metrics(found)
    second, third = 1 / np.log2(3), 1 / np.log2(4)
    assert metrics["ndcg@10"] == pytest.approx(((second + third) / (1 + second) + second) / 2)
    assert metrics["recall@1"] == 0.0 and metrics["recall@10"] == 1.0


def test_recall_of_more_right_candidates_than_places_can_be_1():
    candidates = np.linspace(1, 0, 40)[:, None]
    found = retrieval_metrics(ranked(np.ones((1, 1)), candidates, [list(range(20))]))
    assert found == {"ndcg@10": pytest.approx(1.0), "recall@1": 1.0, "recall@10": 1.0}
    found = retrieval_metrics(ranked(np.ones((1, 1)), candidates, [[*range(5), *range(20, 40)]]))
    assert found["recall@1"] == 1.0 and found["recall@10"] == 0.5


@pytest.mark.parametrize("value", [1.0, 0.0, np.nan])
def test_equal_vectors_find_nothing(value):
    equal = np.full((30, 8), value, np.float32)
    found = ranked(equal, equal, [[number] for number in range(30)])
    assert set(retrieval_metrics(found).values()) == {0.0}
    assert len(retrieval_errors(retrieval_of((f"q{n}", f"p{n}") for n in range(30)), found)) == 10


def test_scores_that_differ_by_rounding_alone_are_equal():
    candidates = np.ones((30, 1)) + np.linspace(0, 1e-7, 30)[:, None]
    assert ranked(np.ones((1, 1)), candidates, [[29]]).ranks[0].tolist() == [30]


def test_the_own_text_of_a_query_is_left_out():
    queries, candidates = vectors(1), np.concatenate([vectors(1), vectors(4, seed=1)])
    scores = queries @ candidates.T
    best = int(scores[0, 1:].argmax()) + 1
    assert ranked(queries, candidates, [[best]]).ranks[0].tolist() == [2]
    assert ranked(queries, candidates, [[best]], [0]).ranks[0].tolist() == [1]


def test_blocks_of_queries_change_nothing(monkeypatch):
    queries, candidates, relevant = vectors(7), vectors(20, seed=1), [[number, 9] for number in range(7)]
    whole = ranked(queries, candidates, relevant)
    monkeypatch.setattr(retrieval, "_SCORES_AT_ONCE", 50)
    parts = ranked(queries, candidates, relevant)
    assert [ranks.tolist() for ranks in whole.ranks] == [ranks.tolist() for ranks in parts.ranks]
    assert whole.best_wrong.tolist() == parts.best_wrong.tolist()
    scores = queries @ candidates.T
    for number, ranks in enumerate(whole.ranks):
        order = np.argsort(-scores[number]).tolist()
        assert ranks.tolist() == sorted(order.index(one) + 1 for one in relevant[number])


def test_similarity_is_measured_by_correlations():
    assert similarity_metrics([1, 2, 3, 4], np.array([0.1, 0.2, 0.3, 0.9])) == {
        "spearman": pytest.approx(1.0),
        "pearson": pytest.approx(1.25 / (5 * 0.3875) ** 0.5),
    }
    for undefined in (1.0, np.nan):
        found = similarity_metrics([1, 2, 3], np.array([1.0, 1.0, undefined]))
        assert found == {"spearman": 0.0, "pearson": 0.0}


def test_the_worst_queries_are_listed_with_what_was_found_instead():
    rows = retrieval_of([("near", "x"), ("far", "y"), ("right", "z")])
    candidates = np.array([[0.9, 0.1, 0.0], [0.0, 0.1, 0.0], [1.0, 0.9, 1.0]])
    errors = retrieval_errors(rows, ranked(np.eye(3), candidates, rows.relevant, rows.query_copies))
    assert errors == [
        Mistake(text="far", right="rank 3: y", predicted="z"),
        Mistake(text="near", right="rank 2: x", predicted="z"),
    ]


def test_the_pairs_of_most_different_places_are_listed():
    pairs = [("a", "b"), ("c", "d"), ("e", "f"), ("g", "h")]
    errors = similarity_errors(pairs, [5.0, 1.0, 2.0, 2.0], np.array([0.25, 0.1, 0.3, 0.3]))
    right, predicted = "score 5, above 100% of the pairs", "cosine 0.250, above 33%"
    assert errors[0] == Mistake(text="a | b", right=right, predicted=predicted)
    assert [error.text for error in errors] == ["a | b", "e | f", "g | h"]
    assert not similarity_errors(pairs, [1, 2, 3, 4], np.array([0.1, 0.2, 0.3, 0.4]))


TEXTS = [
    "The cat sat on the mat.",
    "A dog sat in the garden, and the dog barked!",
    "Rain fell on the garden all day",
    "the mat was wet",
    "Nothing of this kind",
]


def test_words_that_a_query_shares_find_its_text_and_without_them_nothing_is_found():
    pairs = [("dog?", TEXTS[1]), ("RAIN all day", TEXTS[2]), ("was it wet", TEXTS[3]), ("whose kind", TEXTS[4])]
    strangers = [(f"query{number}", f"text{number}") for number in range(20)]
    for some, value in ((pairs, 1.0), (strangers, 0.0)):
        for metrics in retrieval_baselines(retrieval_of(some)).values():
            assert metrics == dict.fromkeys(("ndcg@10", "recall@1", "recall@10"), value)
    pairs = [("猫在哪里", "一只猫坐着"), ("狗呢", "这是狗"), ("เสือ", "นี่คือเสือ")]  # each character is a word
    assert retrieval_baselines(retrieval_of(pairs))["BM25"]["recall@1"] == 1.0


def test_bm25_is_the_formula():
    counts = retrieval._word_counts(TEXTS, retrieval._all_words(TEXTS))
    scores = (counts @ retrieval._bm25_weights(counts).T).toarray()
    words = [text.lower().replace(".", "").replace(",", "").replace("!", "").split() for text in TEXTS]
    mean = sum(map(len, words)) / len(words)

    def score(query: list[str], text: list[str]) -> float:
        total = 0.0
        for word in query:
            having, often = sum(word in other for other in words), text.count(word)
            rarity = math.log(1 + (len(words) - having + 0.5) / (having + 0.5))
            total += rarity * often / (often + 1.2 * (1 - 0.75 + 0.75 * len(text) / mean))
        return total

    assert scores == pytest.approx(np.array([[score(query, text) for text in words] for query in words]))


def test_tf_idf_is_scikit_learns_and_the_order_of_the_two_texts_is_nothing_to_a_score():
    pairs, scores = list(zip(TEXTS, TEXTS[1:], strict=False)), [1.0, 3.0, 2.0, 0.0]
    firsts, seconds = zip(*pairs, strict=True)
    known = TfidfVectorizer(token_pattern=r"\w+").fit([*firsts, *seconds])
    cosines = known.transform(firsts).multiply(known.transform(seconds)).sum(axis=1)
    found, back = similarity_baselines(pairs, scores), similarity_baselines([pair[::-1] for pair in pairs], scores)
    assert found["tf-idf"] == pytest.approx(similarity_metrics(scores, np.asarray(cosines).ravel()))
    assert found["BM25"] == pytest.approx(back["BM25"]) and found["tf-idf"] == pytest.approx(back["tf-idf"])
