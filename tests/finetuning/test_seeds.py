from bert_jax.finetuning.seeds import seed_runs, summed_up
from bert_jax.run.results import Results


def of_seed(seed: int, score: float) -> Results:
    values = {
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
    return Results.model_validate(values)


def test_baselines_by_words_are_those_of_the_dev_rows_and_metrics_are_means():
    results = summed_up({"a": of_seed(0, 0.5), "b": of_seed(1, 1.0)}).content
    assert results["baselines"] == of_seed(0, 0.5).baselines and results["baseline"] == {"ndcg@10": 0.75}
    assert results["score"] == results["ndcg@10"] == 0.75 and results["64/ndcg@10"] == 0.375
    assert results["run"] == "b"
    assert results["spread"]["64/ndcg@10"] == {"standard deviation": 0.125 * 2**0.5, "least": 0.25, "most": 0.5}


def test_runs_of_seeds_are_found_in_their_order(tmp_path):
    for name in ("seed-10", "seed-9", "seed-x", "other"):
        (tmp_path / name).mkdir()
    for name in ("seed-10", "seed-9", "other"):
        (tmp_path / name / "config.json").write_text("{}")
    assert [run.name for run in seed_runs(tmp_path)] == ["seed-9", "seed-10"]
    assert seed_runs(tmp_path / "seed-9") == seed_runs(tmp_path / "missing") == []
