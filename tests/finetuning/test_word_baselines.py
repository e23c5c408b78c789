import math

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from bert_jax.finetuning import word_baselines
from bert_jax.finetuning.retrieval import retrieval_of, similarity_metrics
from bert_jax.finetuning.word_baselines import retrieval_baselines, similarity_baselines

TEXTS = [
    "The cat sat on the mat.",
    "A dog sat in the garden, and the dog barked!",
    "Rain fell on the garden all day",
    "the mat was wet",
    "Nothing of this kind",
]


def test_words_that_a_query_shares_find_its_text():
    pairs = [("dog?", TEXTS[1]), ("RAIN all day", TEXTS[2]), ("was it wet", TEXTS[3]), ("whose kind", TEXTS[4])]
    for metrics in retrieval_baselines(retrieval_of(pairs)).values():
        assert metrics == {"ndcg@10": 1.0, "recall@1": 1.0, "recall@10": 1.0}


def test_without_shared_words_nothing_is_found():
    pairs = [(f"query{number}", f"text{number}") for number in range(20)]
    for metrics in retrieval_baselines(retrieval_of(pairs)).values():
        assert set(metrics.values()) == {0.0}


def test_a_character_of_chinese_or_thai_is_a_word():
    pairs = [("猫在哪里", "一只猫坐着"), ("狗呢", "这是狗"), ("เสือ", "นี่คือเสือ")]
    assert retrieval_baselines(retrieval_of(pairs))["BM25"]["recall@1"] == 1.0


def test_bm25_is_the_formula():
    counts = word_baselines._word_counts(TEXTS)
    scores = (counts @ word_baselines._bm25_weights(counts).T).toarray()
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


def test_tf_idf_is_scikit_learns():
    pairs, scores = list(zip(TEXTS, TEXTS[1:], strict=False)), [1.0, 3.0, 2.0, 0.0]
    firsts, seconds = zip(*pairs, strict=True)
    known = TfidfVectorizer(token_pattern=r"\w+").fit([*firsts, *seconds])
    cosines = known.transform(firsts).multiply(known.transform(seconds)).sum(axis=1)
    found = similarity_baselines(pairs, scores)
    assert found["tf-idf"] == pytest.approx(similarity_metrics(scores, np.asarray(cosines).ravel()))


def test_the_order_of_the_two_texts_of_a_pair_is_nothing_to_a_score():
    pairs, scores = list(zip(TEXTS, TEXTS[1:], strict=False)), [1.0, 3.0, 2.0, 0.0]
    there, back = similarity_baselines(pairs, scores), similarity_baselines([pair[::-1] for pair in pairs], scores)
    assert there["BM25"] == pytest.approx(back["BM25"]) and there["tf-idf"] == pytest.approx(back["tf-idf"])


def test_texts_that_are_read_in_several_blocks_give_the_same(monkeypatch):
    rows = retrieval_of(zip(TEXTS, TEXTS[1:], strict=False))
    whole = retrieval_baselines(rows)
    monkeypatch.setattr(word_baselines, "_CHARACTERS_AT_ONCE", 40)
    assert retrieval_baselines(rows) == whole
