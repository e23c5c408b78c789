"""What is printed of the results of a training."""

import pytest

from bert_jax.cli.results_tables import print_results, print_task_results
from bert_jax.finetuning.metrics import class_metrics
from bert_jax.run.remarks import behind_words
from bert_jax.run.results import Results

RESULTS = {"task": "x", "metric": "accuracy", "score": 0.75, "accuracy": 0.75, "dev_rows": 4, "steps": 8}
HALF = {"baseline": {"accuracy": 0.5}}
NUMBERS = {"metric": "pearson", "squared_error": 3.0, "baseline": {"pearson": 0.0, "squared_error": 2.0}}
TAGS = {"metric": "entity_f1", "baseline": {"accuracy": 0.9, "entity_f1": 0.0}}
LEARNED_NOTHING = ": little or nothing was learned from the texts. Try another learning rate"


@pytest.mark.parametrize(
    "changes, sentence",
    [
        (HALF, ""),
        ({"baseline": {"accuracy": 0.75}}, "The model is no better than the baseline, which gives the most frequent"),
        (HALF | {"constant_prediction": "[b]even"}, "The model predicts '[b]even' for every row"),
        (HALF | {"constant_prediction": []}, "The model predicts [] for every row"),
        (NUMBERS | {"score": -0.1}, "no better than the baseline, which gives the mean of the numbers for every row"),
        ({"score": 1.0, "baseline": {"accuracy": 1.0}, "constant_prediction": "even"}, ""),  # so are all dev rows
        (TAGS, "Giving every word the most frequent tag would be right more often than the model"),
    ],
)
def test_a_model_that_learned_nothing_is_named(changes, sentence, capsys):
    print_task_results(Results.model_validate(RESULTS | changes))
    printed = capsys.readouterr().out
    assert (LEARNED_NOTHING in printed) == bool(sentence) and sentence in printed


def test_numbers_of_a_wrong_scale_are_named_and_not_called_unlearned(capsys):
    print_task_results(Results.model_validate(RESULTS | NUMBERS))
    printed = capsys.readouterr().out
    assert "The squared error is larger than that of the mean" in printed and LEARNED_NOTHING not in printed


def test_a_class_that_is_never_predicted_is_said_below_the_scores(capsys):
    found = class_metrics([0, 0, 1, 2], [0, 0, 1, 1], ("cat", "dog", "[eel]")).content
    print_task_results(Results.model_validate(RESULTS | found | HALF))
    printed = capsys.readouterr().out
    assert "Never predicted: 1 of 3 classes, by rows '[eel]' (1). More epochs (--task.epochs)" in printed
    lines = [line.replace("│", " ").split() for line in printed.splitlines()]
    assert ["[eel]", "1", "0", "0.0000", "0.0000", "0.0000", "dog", "1"] in lines


def test_the_share_of_unknown_pieces_is_said_once(capsys):
    results = {"steps": 1, "held_out_sequences": 2, "baseline": {}, "beats_baseline": True}
    print_results(Results.model_validate(results | {"unknown_share": 0.001}), phases=1)
    assert "0.10% of the pieces" in capsys.readouterr().out
    print_results(Results.model_validate(results | {"unknown_share": 0.9}), phases=1)  # of which a warning tells
    assert "of the pieces" not in capsys.readouterr().out


@pytest.mark.parametrize("beats", [False, True])
def test_a_model_no_better_than_frequencies_is_said(capsys, beats):
    results = {"steps": 1, "held_out_sequences": 2, "baseline": {"mlm_loss": 6.6}, "mlm_loss": 6.7, "mlm_accuracy": 0.1}
    results["baseline"]["mlm_accuracy"] = 0.1
    print_results(Results.model_validate(results | {"beats_baseline": beats}), phases=2)
    shown = capsys.readouterr().out
    assert ("no better than guessing by frequency alone" in shown) != beats
    assert ("more steps (--phases.1.steps)" in shown) != beats  # the phases before the last can't be changed any more
    print_results(Results.model_validate(results | {"beats_baseline": beats}), phases=2, other_text="text:foreign.txt")
    shown = " ".join(capsys.readouterr().out.split())
    assert "2 sequences of text:foreign.txt" in shown and "more steps" not in shown
    assert ("predicts this text no better than guessing" in shown) != beats


BASELINES = {"tf-idf": {"ndcg@10": 0.75, "recall@1": 0.5}, "BM25": {"ndcg@10": 0.875, "recall@1": 0.625}}
SEARCHED = {"task": "x", "metric": "ndcg@10", "dev_rows": 4, "steps": 8, "baseline": BASELINES["BM25"]}
SEARCHED |= {"baselines": BASELINES, "recall@1": 0.25}


@pytest.mark.parametrize("score, trained", [(0.9, True), (0.5, True), (0.5, False)])
def test_vectors_stand_beside_each_comparison_of_words(score, trained, capsys):
    measured = {"training_rows": 9 if trained else None, "score": score, "ndcg@10": score, "64/ndcg@10": score / 2}
    print_task_results(Results.model_validate(SEARCHED | measured))
    printed = capsys.readouterr().out
    lines = [line.replace("│", " ").replace("┃", " ").split() for line in printed.splitlines()]
    assert ["score", "tf-idf", "BM25"] in lines
    assert ["ndcg@10", f"{score:.4f}", "0.7500", "0.8750"] in lines and ["64/ndcg@10", f"{score / 2:.4f}"] in lines
    behind = "BM25, which compares words alone, has ndcg@10 0.875; the model has 0.500."
    assert (behind in printed) == (score == 0.5) and "nothing was learned" not in printed
    assert ("more epochs" in printed) == (score == 0.5 and trained)


@pytest.mark.parametrize("trained", [True, False])
def test_settings_are_advised_only_for_a_training(trained):
    cut = {"texts": 10, "cut": 5, "pieces": 64}
    remark = behind_words("ndcg@10", 0.5, BASELINES, cut, trained)
    assert "5 of 10 texts were cut to 64 pieces, and BM25 reads them whole" in remark
    assert ("--task.max-length" in remark) == trained and remark.endswith("." if trained else "whole.")
