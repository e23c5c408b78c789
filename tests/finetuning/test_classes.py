"""Figures of classes and their confusion in results.json, for few classes and for very many."""

from collections import Counter

import pytest

from bert_jax.finetuning.classes import SHOWN, class_results, class_table, confusion_of, read_confusion
from bert_jax.finetuning.metrics import class_metrics
from bert_jax.system.files import write_json
from bert_jax.system.json_file import MOST_BYTES, read_object


def test_classes_that_were_not_learned_are_named_and_aggregated():
    names = [f"class {number}" for number in range(20)]
    golds = [name for number, name in enumerate(names) for _ in range(20 - number)]
    predicted = ["class 19" if name != "class 19" else "class 0" for name in golds]
    right = Counter(gold for gold, guess in zip(golds, predicted, strict=True) if gold == guess)
    found = class_results(names, Counter(golds), Counter(predicted), right)
    assert found["unlearned"] == (
        "never predicted: 18 of 20 classes, by rows 'class 1' (19), 'class 2' (18), 'class 3' (17), 'class 4' (16), "
        "'class 5' (15), ...; predicted but never right: 2 of 20 classes, by rows 'class 0' (20), 'class 19' (1)"
    )
    assert found["classes"][0] == {"label": "class 0", "rows": 20, "predicted": 1} | dict.fromkeys(
        ("precision", "recall", "f1"), 0.0
    )


def test_what_a_class_is_taken_for_stands_beside_it():
    found = class_metrics([0, 0, 0, 1, 2], [1, 2, 1, 1, 2], ("cat", "dog", "eel"))
    title, rows = class_table(found)
    assert title == "Classes, the worst first"
    assert rows[0] == ["cat", "3", "0", "0.0000", "0.0000", "0.0000", "dog 2, eel 1"]
    assert rows[1] == ["dog", "1", "3", "0.3333", "1.0000", "0.5000", ""]


@pytest.mark.parametrize("letter", ["x", "\U0001f600", "\x07"])
def test_the_largest_results_are_read_by_their_readers(letter, tmp_path):
    names = [f"{letter * 60}{number}" for number in range(40_000)]
    golds = list(range(40_000)) * 2
    predicted = [*golds[1:], 0]
    right = Counter(names[gold] for gold, guess in zip(golds, predicted, strict=True) if gold == guess)
    sides = [[names[number] for number in side] for side in (golds, predicted)]
    found = class_results(names, *map(Counter, sides), right) | {"confusion": confusion_of(*sides)}
    write_json(tmp_path / "results.json", found)
    assert MOST_BYTES / 4 < (tmp_path / "results.json").stat().st_size < MOST_BYTES / 2
    read = read_object(tmp_path / "results.json")
    title, rows = class_table(read)
    assert len(rows) == SHOWN and "more in results.json" in title and read_confusion(read)


def test_the_table_of_all_pairs_of_earlier_releases_is_read_the_worst_class_first():
    old = {"confusion": {"labels": ["no", "yes"], "counts": [[2, 0], [3, 1]]}}
    assert list(read_confusion(old).items()) == [("yes", {"no": 3, "yes": 1}), ("no", {"no": 2})]


@pytest.mark.parametrize(
    "wrong",
    [None, 5, [], {"a": 1}, {"a": {"b": "x"}}, {"labels": ["a"], "counts": [["x"]]}, {"labels": 3, "counts": [[1]]}],
)
def test_what_another_program_wrote_is_no_confusion(wrong):
    assert read_confusion({"confusion": wrong}) == {}
    assert class_table({"classes": wrong, "confusion": wrong})[1] == []
