from collections import Counter

import numpy as np
import pytest
from sklearn import metrics

from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.character_spans import counted_tags
from bert_jax.finetuning.metrics import (
    SHOWN,
    _normalised,
    _words,
    answer_metrics,
    class_metrics,
    class_results,
    class_table,
    confusion_of,
    label_metrics,
    number_metrics,
    scored,
    tag_counts,
    tag_metrics,
)
from bert_jax.finetuning.tag_task import check_entity_tags
from bert_jax.run.results import read_results
from bert_jax.system.errors import UsageError
from bert_jax.system.files import write_json
from bert_jax.system.json_file import MOST_JSON_BYTES


def test_classes_are_measured_with_a_confusion():
    found = class_metrics([1, 1, 1, 0, 0, 0], [1, 1, 0, 1, 0, 0], ("no", "yes")).content
    assert found["confusion"] == {"yes": {"yes": 2, "no": 1}, "no": {"no": 2, "yes": 1}}
    yes = {"label": "yes", "rows": 3, "predicted": 3} | dict.fromkeys(("precision", "recall", "f1"), 2 / 3)
    assert yes in found["classes"] and found["unlearned"] == ""
    three = class_metrics([0, 1, 2], [0, 1, 1], ("a", "b", "c")).content
    assert three["confusion"] == {"c": {"b": 1}, "a": {"a": 1}, "b": {"b": 1}}
    assert three["unlearned"] == "never predicted: 1 of 3 classes, by rows 'c' (1)"
    absent = class_metrics([0, 2, 2], [0, 2, 2], ("a", "b", "c")).content
    assert absent["macro_f1"] == 1.0 and [each["label"] for each in absent["classes"]][-1] == "b"
    assert class_metrics([1, 1], [1, 1], ("no", "yes")).metrics["matthews"] == 0.0


def test_numbers_are_measured_by_correlations():
    found = number_metrics([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 10.0])
    assert found["spearman"] == pytest.approx(1.0) and found["pearson"] == pytest.approx(14 / 250**0.5)
    assert found["squared_error"] == 9.0
    assert number_metrics([1.0, 2.0], [3.0, 3.0])["pearson"] == 0.0


def test_entities_count_as_a_whole():
    names = ("B-LOC", "I-LOC", "B-PER", "I-PER", "O")
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-LOC"]]
    found = tag_metrics(gold, [["B-PER", "O", "O", "B-LOC"], ["O", "B-PER"]], names).content
    assert found["accuracy"] == pytest.approx(4 / 6)
    assert found["entity_precision"] == found["entity_recall"] == found["entity_f1"] == pytest.approx(1 / 3)
    place = {"label": "LOC", "rows": 2, "predicted": 1, "precision": 1.0, "recall": 0.5, "f1": pytest.approx(2 / 3)}
    assert [each["label"] for each in found["classes"]] == ["PER", "LOC"] and found["classes"][1] == place
    assert found["unlearned"] == "predicted but never right: 1 of 2 classes, by rows 'PER' (1)"  # it has another end
    words = tag_metrics([["NOUN"]], [["VERB"]], ("NOUN", "VERB")).content
    assert words["confusion"] == {"NOUN": {"VERB": 1}} and not found.get("confusion")
    assert set(words) == {"accuracy", "classes", "confusion", "unlearned"} and words["unlearned"].startswith(
        "never predicted: 1 of 1"
    )


@pytest.mark.filterwarnings("error")  # seqeval's about letters that it doesn't know
def test_entities_may_be_written_with_an_end_and_alone():
    bmes = ("B-X", "M-X", "E-X", "S-X", "O")
    gold = [["B-X", "M-X", "E-X", "B-X", "E-X", "S-X", "O"]]
    assert tag_metrics(gold, gold, bmes).metrics["entity_f1"] == 1.0
    found = tag_metrics(gold, [["B-X", "M-X", "E-X", "B-X", "M-X", "E-X", "O"]], bmes).content
    assert found["entity_precision"] == pytest.approx(1 / 2) and found["entity_recall"] == pytest.approx(1 / 3)
    bilou = [["B-X", "I-X", "L-X", "B-X", "L-X", "U-X", "O"]]
    assert tag_metrics(bilou, bilou, ("B-X", "I-X", "L-X", "U-X", "O")).metrics["entity_f1"] == 1.0


@pytest.mark.parametrize("names", [("O", "B-X", "I-X", "B-Y", "I-Y"), ("NOUN", "VERB", "X")])
def test_counts_of_sentences_give_the_metrics_of_all(names):
    rng = np.random.default_rng(0)
    golds, guesses = ([rng.choice(names, size).tolist() for size in (3, 9, 1, 14, 6)] for _ in range(2))
    golds, guesses = [*golds, golds[1]], [*guesses, golds[1]]
    measured = tag_metrics(golds, guesses, names).metrics
    counts = tag_counts(golds, guesses, names)
    assert counts.keys() == measured.keys() & {"accuracy", "entity_f1"}
    for name, rows in counts.items():
        true, guessed, right = np.sum(rows, axis=0)
        assert 2 * right / (true + guessed) == pytest.approx(measured[name])


@pytest.mark.parametrize(
    "tags, forms",
    [
        ("O B-X I-X", "O B-X I-X"),
        ("O S-X U-X L-X", "O S-X S-X E-X"),
        ("B_PER I_PER O", "B-PER I-PER O"),
        ("B I O", "B-_ I-_ O"),
        ("PER LOC O B-PER", "I-PER I-LOC O B-PER"),
        ("B-PER B-LOC O 0", "B-PER B-LOC O O"),
        ("O 1 2", ""),
        ("O PER-B PER-I", ""),
        ("N V O S", ""),  # of a set of parts of speech
        ("B-X I-X", ""),
    ],
)
def test_entities_are_known_by_their_tags(tags, forms):
    assert counted_tags(tags.split()) == dict(zip(tags.split(), forms.split()))


TAGS = TaskConfig(name="x", kind="tags", train="rows.conll")


ALONE = "rows.conll: accuracy alone is measured and no entity F1, since "


@pytest.mark.parametrize(
    "counts, said",
    [
        ({"O": 356, "B-P": 3, "B-L": 0, "0": 1}, "tags as O, since they name no entity: '0' (1 of 360 words)"),
        ({"O": 2, "1": 3}, "accuracy alone is measured and no entity F1"),
        ({"NOUN": 1, "VERB": 0}, ""),
        ({"0": 5, "B-PER": 1, "I-PER": 1}, f"{ALONE}no tag is O and these tags name no entity: '0' (5 of 7 words)"),
        ({"_": 5, "b-per": 1}, "these tags name no entity: '_' (5 of 6 words), 'b-per' (1 of 6 words)"),
        ({"o": 5, "b_per": 1}, "these tags name no entity: 'o' (5 of 6 words), 'b_per' (1 of 6 words)"),
        ({"OUT": 5, "B-PER": 1}, f"{ALONE}no tag is O and there are only 'OUT', 'B-PER'"),
    ],
)
def test_odd_tags_are_named_with_their_counts(capsys, counts, said):
    check_entity_tags(TAGS.replace(labels=tuple(counts)), Counter(counts))
    told = " ".join(capsys.readouterr().err.split())
    assert said in told and bool(said) == bool(told)


def test_a_metric_of_entities_is_refused_where_tags_name_none():
    with pytest.raises(UsageError, match="--task.metric=entity_f1 .* these don't name any: '1' \\(3 of 5 words\\)"):
        check_entity_tags(TAGS.replace(labels=("1", "O"), metric="entity_f1"), Counter({"O": 2, "1": 3}))


@pytest.mark.parametrize(
    "text, plain",
    [
        ("The  Cat's tail, an ANNEX.", "cats tail annex"),
        ("“the” 10,000 $", "“ ” 10000"),
        ("theater", "theater"),
    ],
)
def test_answers_are_normalised_as_the_official_script_does(text, plain):
    assert _normalised(text, False) == plain


def test_words_of_scripts_without_spaces_are_characters():
    assert _words("《东京大学》 in 1877", True) == ["东", "京", "大", "学", "in", "1877"]
    assert _words("《东京大学》 in 1877", False) == ["《东京大学》", "in", "1877"]
    assert scored(["东京大学"], "东京", True) == (0.0, pytest.approx(2 / 3))
    assert scored(["东京大学"], "《东京大学》", True) == (1.0, 1.0)


@pytest.mark.parametrize(
    "golds, answer, exact, f1",
    [
        (["the cat", "an old cat"], "Cat.", 1.0, 1.0),
        (["old cat sees dog"], "the old dog", 0.0, 2 * (2 / 2) * (2 / 4) / (1 + 2 / 4)),
        (["cat cat"], "cat", 0.0, 2 / 3),
        (["cat"], "", 0.0, 0.0),
        ([], "", 1.0, 1.0),
        ([], "cat", 0.0, 0.0),
        (["the"], "", 1.0, 1.0),
    ],
)
def test_an_answer_is_compared_with_the_best_of_the_right_ones(golds, answer, exact, f1):
    assert scored(golds, answer, False) == (exact, pytest.approx(f1))


def answered(answer, best, odds):
    return {"predicted_answer": answer, "best": [{"text": ""}, {"text": best}], "null_odds": odds}


def test_answers_are_measured_with_and_without_null_answers():
    golds = [["cat"], ["dog"], [], []]
    always = [answered(text, text, None) for text in ("cat", "the old dog", "", "x")]
    assert answer_metrics(golds, always, False) == {"exact_match": 0.5, "f1": pytest.approx((1 + 2 / 3 + 1) / 4)}
    odds = [answered("cat", "cat", -2.0), answered("", "dog", 1.0), answered("x", "x", -1.0), answered("", "y", 3.0)]
    found = answer_metrics(golds, odds, False)
    assert (found["f1"], found["answerable_f1"], found["unanswerable_exact_match"]) == (0.5, 0.5, 0.5)
    # Answers up to 1.0 give cat and dog, and x wrongly; all thresholds from -2.0 to 1.0 are right three times.
    assert (found["best_f1"], found["best_f1_threshold"]) == (0.75, -2.0)
    found = answer_metrics(golds[:1], odds[:1], False)  # of a kind of questions that is not there, there are no metrics
    assert found["answerable_f1"] == 1.0 and not any(name.startswith("unanswerable") for name in found)
    equal = [answered("", text, 1.0) for text in ("cat", "x")]  # a threshold takes all answers of the same odds
    found = answer_metrics([["cat"], []], equal, False)
    assert found["best_f1"] == 0.5 and found["best_f1_threshold"] < 1.0


def test_classes_that_were_not_learned_are_named_and_aggregated():
    names = [f"class {number}" for number in range(20)]
    golds = [name for number, name in enumerate(names) for _ in range(20 - number)]
    predicted = ["class 19" if name != "class 19" else "class 0" for name in golds]
    right = Counter(gold for gold, guess in zip(golds, predicted, strict=True) if gold == guess)
    found = class_results(names, Counter(golds), Counter(predicted), right).content
    assert found["unlearned"] == (
        "never predicted: 18 of 20 classes, by rows 'class 1' (19), 'class 2' (18), 'class 3' (17), 'class 4' (16), "
        "'class 5' (15), ...; predicted but never right: 2 of 20 classes, by rows 'class 0' (20), 'class 19' (1)"
    )
    assert found["classes"][0] == {"label": "class 0", "rows": 20, "predicted": 1} | dict.fromkeys(
        ("precision", "recall", "f1"), 0.0
    )


def test_what_a_class_is_taken_for_stands_beside_it():
    title, rows = class_table(class_metrics([0, 0, 0, 1, 2], [1, 2, 1, 1, 2], ("cat", "dog", "eel")))
    assert title == "Classes, the worst first"
    assert rows[0] == ["cat", "3", "0", "0.0000", "0.0000", "0.0000", "dog 2, eel 1"]
    assert rows[1] == ["dog", "1", "3", "0.3333", "1.0000", "0.5000", ""]


@pytest.mark.parametrize("letter", ["x", "\U0001f600", "\x07"])
@pytest.mark.long(first=1)
def test_the_largest_results_are_read_by_their_readers(letter, tmp_path):
    names = [f"{letter * 600}{number}" for number in range(8_000)]
    golds = list(range(8_000)) * 2
    predicted = [*golds[1:], 0]
    right = Counter(names[gold] for gold, guess in zip(golds, predicted, strict=True) if gold == guess)
    sides = [[names[number] for number in side] for side in (golds, predicted)]
    results = class_results(names, *map(Counter, sides), right).updated({"confusion": confusion_of(*sides)})
    write_json(tmp_path / "results.json", results.content)
    assert MOST_JSON_BYTES / 4 < (tmp_path / "results.json").stat().st_size < MOST_JSON_BYTES / 2
    read, wrong = read_results(tmp_path / "results.json")
    title, rows = class_table(read)
    assert len(rows) == SHOWN and "more in results.json" in title and read == results and not wrong


@pytest.mark.parametrize("classes", [2, 3, 9])
def test_metrics_of_classes_and_labels_are_those_of_scikit_learn(classes):
    generator, names = np.random.default_rng(classes), [f"class {number}" for number in range(classes)]
    golds, predicted = generator.integers(max(classes - 1, 2), size=(2, 70))  # of 3 and 9, the last never occurs
    macro = metrics.f1_score(golds, predicted, average="macro")
    expected = {
        "accuracy": metrics.accuracy_score(golds, predicted),
        "f1": metrics.f1_score(golds, predicted) if classes == 2 else macro,
        "macro_f1": macro,
        "matthews": metrics.matthews_corrcoef(golds, predicted),
    }
    assert class_metrics(golds.tolist(), predicted.tolist(), names).metrics == pytest.approx(expected, rel=1e-12)
    held, guessed = generator.integers(2, size=(2, 70, classes))
    held[:, 0] = guessed[:, 0] = 0
    expected = {
        f"{mean}_f1": metrics.f1_score(held, guessed, average=mean, zero_division=0.0) for mean in ("micro", "macro")
    }
    found = label_metrics(held.tolist(), guessed.tolist(), names).metrics
    assert found == pytest.approx(expected | {"exact_match": np.mean(np.all(held == guessed, axis=1))}, rel=1e-12)
