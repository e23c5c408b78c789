from bert_jax.finetuning.seeds import summed_up


def of_seed(seed: int, score: float) -> dict:
    return {
        "task": "search",
        "steps": 8,
        "stopped_early": False,
        "seeds": [seed],
        "metric": "ndcg@10",
        "score": score,
        "ndcg@10": score,
        "64/ndcg@10": score / 2,
        "training_rows": 9,
        "dev_rows": 3,
        "baseline": {"ndcg@10": 0.75},
        "baselines": {"tf-idf": {"ndcg@10": 0.5}, "BM25": {"ndcg@10": 0.75}},
    }


def test_baselines_by_words_are_those_of_the_dev_rows_and_metrics_are_means():
    results = summed_up({"a": of_seed(0, 0.5), "b": of_seed(1, 1.0)})
    assert results["baselines"] == of_seed(0, 0.5)["baselines"] and results["baseline"] == {"ndcg@10": 0.75}
    assert results["score"] == results["ndcg@10"] == 0.75 and results["64/ndcg@10"] == 0.375
    assert results["run"] == "b"
