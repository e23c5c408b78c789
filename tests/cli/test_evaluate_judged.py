"""bert-jax evaluate RUN --data beir:FOLDER and bert-jax finetune vectors --task.train beir:FOLDER, as typed."""

import json

import numpy as np
import pytest
from judged_folders import DOCUMENTS, JUDGMENTS, QUERIES, write_judged_folder

import bert_jax

NAMES = ("ndcg@10", "recall@100", "mrr@10")


@pytest.fixture
def folder(tmp_path):
    write_judged_folder(tmp_path / "set", [(query, name, grade) for query, name, grade in JUDGMENTS if query != "q1"])
    return write_judged_folder(tmp_path / "set", JUDGMENTS, "train")


@pytest.fixture
def evaluated(done):
    """The last line that evaluate prints."""
    return lambda *words: json.loads(done("evaluate", *words, "--json").out.splitlines()[-1])


def test_vectors_of_embed_are_measured_of_a_run_and_of_its_export(vectors_run, folder, tmp_path, evaluated, done):
    pytrec_eval = pytest.importorskip("pytrec_eval")
    bert = bert_jax.load(vectors_run.path)
    queries = bert.embed(QUERIES.values(), role="query")
    scores = queries @ bert.embed([f"{t or ''} {text}".strip() for t, text in DOCUMENTS.values()], role="passage").T
    ranks = {
        query: {name: float(score) for name, score in zip(DOCUMENTS, row, strict=True) if name != query}
        for query, row in zip(QUERIES, scores, strict=True)
    }
    judgments = {"q2": {"d2": 1, "gone": 3}, "q3": {"d5": 1}}
    expected = pytrec_eval.RelevanceEvaluator(judgments, {"ndcg_cut.10"}).evaluate(ranks)
    found = evaluated(vectors_run.path, "--data", f"beir:{folder}")
    assert found["ndcg@10"] == pytest.approx(np.mean([one["ndcg_cut_10"] for one in expected.values()]))
    assert found["task"] == f"beir:{folder}#test" and found["dev_rows"] == 2 and found["measured_on"]["documents"] == 6
    assert set(NAMES) <= found.keys() and set(NAMES) == found["baselines"]["bm25"].keys() and "8/mrr@10" in found
    done("export", vectors_run.path, tmp_path / "exported")
    of_export = evaluated(tmp_path / "exported", "--data", f"beir:{folder}")
    assert [of_export[name] for name in NAMES] == pytest.approx([found[name] for name in NAMES])


def test_a_table_names_the_split_and_what_was_left_out(tiny_run, folder, done):
    shown = done("evaluate", tiny_run.path, "--data", f"beir:{folder}#train")
    assert f"beir:{folder}#train, 3 judged queries" in shown.out.replace("\n", "") and "bm25" in shown.out
    assert "1 row of queries.jsonl without a judgment in train, left out" in shown.err
    assert "not trained for vectors" in shown.err


@pytest.mark.long
def test_judgments_are_learned_from_and_measured_over_the_whole_corpus(tiny_run, folder, tmp_path, evaluated, done):
    flags = ["--workdir", tmp_path / "run", "--task.train", f"beir:{folder}", "--task.dev", f"beir:{folder}#test"]
    flags += ["--task.max-length", 16, "--task.batch-size", 2]
    said = done("finetune", "vectors", "--init", tiny_run.path, *flags).err
    assert "judged texts as BEIR has them (prefix)" in said
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["training_rows"] == 4 and results["dev_rows"] == 2 and results["metric"] == "ndcg@10"
    for words in ((), ("--data", f"beir:{folder}")):
        again = evaluated(tmp_path / "run", *words)
        assert [again[name] for name in NAMES] == pytest.approx([results[name] for name in NAMES])
        assert again["measured_on"] == results["measured_on"] and again["baselines"] == results["baselines"]
