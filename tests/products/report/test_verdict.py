import json

import pytest
from reports import write_metrics

from bert_jax.products.report.run_summary import RunSummary
from bert_jax.products.report.verdict import verdict
from bert_jax.run.results import Results


def told(path) -> dict[str, str]:
    """The remarks on a run, joined by kind."""
    found: dict[str, str] = {}
    for sentence in verdict(RunSummary(path)):
        found[sentence.kind] = f"{found.get(sentence.kind, '')}{sentence.text} "
    return found


def with_results(run, **changes):
    results = json.loads(run.results_file.read_text()) | changes
    run.results_file.write_text(json.dumps(results))


def with_held_out(run, losses):
    lines = [{"step": 3 * number, "split": "eval", "loss": loss} for number, loss in enumerate(losses, 1)]
    run.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in lines))


BETTER = {"mlm_accuracy": 0.75, "beats_baseline": True, "nsp_accuracy": 0.7}


@pytest.mark.parametrize(
    ("changes", "baseline", "kind", "words"),
    [
        ({"beats_baseline": False}, {}, "problem", "learned nothing from the context"),
        (BETTER, {"mlm_accuracy": 0.25}, "good", "is 0.750; the baseline, always the most frequent piece, has 0.250"),
        (BETTER, {"nsp_accuracy": 0.7}, "problem", "NSP accuracy is 0.700 and no better than the baseline"),
        (BETTER, {"nsp_accuracy": 0.6}, "problem", None),
        (
            {"mlm_accuracy": 0.24, "mlm_loss": 5.0, "beats_baseline": True},
            {"mlm_accuracy": 0.25, "mlm_loss": 6.0},
            "note",
            "not yet above the baseline's 0.250; the loss is better",
        ),
        ({"skipped_steps": 7}, {}, "problem", "7 steps skipped"),
        ({"started_from": {"bits_per_character": 0.5}}, {}, "problem", "is worse than the one that it began with"),
        ({"started_from": {"bits_per_character": 99.0}}, {}, "note", "99.000 bits per character before the training"),
    ],
)
def test_results_are_judged_beside_the_baseline(tiny_copy, changes, baseline, kind, words):
    with_results(tiny_copy, **changes, **({"baseline": {"mlm_accuracy": 0.25} | baseline} if baseline else {}))
    said = told(tiny_copy.path)
    assert words in said[kind] if words else kind not in said


def test_before_the_end_the_baseline_is_estimated_from_the_text(tiny_copy):
    tiny_copy.results_file.unlink()
    summary = RunSummary(tiny_copy.path)
    exact = json.loads((tiny_copy.path / "checkpoints" / "00000012" / "manifest.json").read_text())["evaluation"]
    assert summary.baseline_is_estimated and 0 < summary.baseline["mlm_accuracy"] < 1
    assert summary.held_out("mlm_accuracy") == pytest.approx(exact["mlm_accuracy"])


@pytest.mark.parametrize(
    ("losses", "kind", "words"),
    [
        ([5.0, 3.0, 2.0, 2.5, 2.6], "problem", "risen from 2.000 at step 9 to 2.600; the model overfits"),
        ([5.0, 4.0, 3.0, 2.0], "note", "still falling, from 4.000 at step 6 to 2.000"),
        ([2.0, 6.0, 5.0, 4.0, 3.5], "note", "still falling"),
        ([5.0, 2.0, 2.05, 2.0, 2.06], "note", "levelled off at 2.060, above its lowest value, 2.000 at step 6"),
        ([5.0, 2.01, 2.005, 2.0], "note", "levelled off at 2.000."),
        ([5.0, 2.0], "note", "2 held-out measurements"),
    ],
)
def test_the_trend_of_the_held_out_loss(tiny_copy, losses, kind, words):
    with_held_out(tiny_copy, losses)
    assert words in told(tiny_copy.path)[kind]


def test_a_loss_that_rises_in_training_too_is_not_called_overfitting(tiny_copy):
    losses = enumerate([5.0, 3.0, 4.0, 6.0, 7.0], 1)
    lines = [{"step": step, "split": split, "loss": loss} for step, loss in losses for split in ("train", "eval")]
    tiny_copy.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "so has the loss in training: lower the peak learning rate" in told(tiny_copy.path)["problem"]


def test_held_out_losses_that_became_infinite_are_a_problem_and_no_trend(tiny_copy):
    with_held_out(tiny_copy, [5.0, 4.0, 3.99, 3.98, None, None])
    tiny_copy.results_file.unlink()
    said = told(tiny_copy.path)
    assert "not finite in the last 2 evaluations" in said["problem"] and "levelled off" not in "".join(said.values())
    assert RunSummary(tiny_copy.path).held_out("loss") is None


def test_results_of_an_earlier_step_than_the_newest_evaluation_are_not_shown(tiny_copy):
    with_results(tiny_copy, mlm_accuracy=0.123)
    assert RunSummary(tiny_copy.path).held_out("mlm_accuracy") == 0.123
    line = {"step": 20, "split": "eval", "loss": 3.0, "mlm_accuracy": 0.8}
    with open(tiny_copy.metrics_file, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    summary = RunSummary(tiny_copy.path)
    assert summary.held_out("mlm_accuracy") == 0.8 and summary.results == Results()
    assert "results.json is missing, damaged or of an earlier step" in told(tiny_copy.path)["note"]


def test_losses_that_are_not_finite_are_a_problem(tiny_copy):
    write_metrics(tiny_copy.metrics_file, [1.0, None, None])
    assert "No finite loss in 2 lines" in told(tiny_copy.path)["problem"]


def test_a_failure_at_the_last_start_is_told(tiny_copy):
    tiny_copy.results_file.unlink()
    event = {"time": "2026-01-01T00:00:00+00:00", "event": "failed", "message": "no memory is left"}
    with open(tiny_copy.path / "events.jsonl", "a") as file:
        file.write(json.dumps(event) + "\n")
    assert "no memory is left" in told(tiny_copy.path)["problem"]


@pytest.mark.parametrize(
    ("score", "kind", "words"),
    [
        (0.5, "note", "BM25, which compares words alone, has ndcg@10 0.875; the model has 0.500."),
        (0.9, "good", "Held-out nDCG@10 is 0.900; BM25, which compares words alone, has 0.875."),
    ],
)
def test_vectors_are_judged_beside_comparisons_of_words(vectors_run, score, kind, words):
    with_results(vectors_run, score=score, **{"ndcg@10": score})
    said = told(vectors_run.path)
    assert words in said[kind] and "problem" not in said


def test_damaged_baselines_are_left_out(vectors_run):
    with_results(vectors_run, baselines={"x" * 99: {"ndcg@10": 0.25, "recall@1": None}})
    summary = RunSummary(vectors_run.path)
    assert summary.word_baselines == {"x" * 40: {"ndcg@10": 0.25}}
    assert summary.best_baseline("ndcg@10") == ("x" * 40, 0.25) and summary.best_baseline("recall@1") is None
    with_results(vectors_run, baselines={"BM25": "high"}, errors=5)
    assert not RunSummary(vectors_run.path).word_baselines
    said = told(vectors_run.path)["note"]
    assert "Values in results.json that can't be read are left out: baselines, errors." in said
