import json

import pytest

from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.columns import label_text
from bert_jax.finetuning.dataset import make_task, read_training
from bert_jax.finetuning.row_reading import RowSet, reading_of_rows
from bert_jax.records.record import Record
from bert_jax.records.table_files import has_csv_quotes
from bert_jax.system.errors import UsageError


def remarks(tmp_path, wordpiece, rows, **settings):
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    config = TaskConfig(name="x", train=str(file), **{"kind": "class"} | settings)
    learned = read_training(config, wordpiece)
    return " ".join(reading_of_rows(learned.task, {"train": RowSet(str(file), learned.records)}).remarks)


@pytest.mark.parametrize(
    "labels, remark",
    [
        (("a", "b"), ""),
        (("Anger", "anger"), "'Anger' (12), 'anger' (12) differ in spelling alone"),
        (("yes", "true"), "differ in spelling alone"),
        (("good", "\u200bgood"), "'good' (12), '\\u200bgood' (12) differ in spelling alone"),
        (tuple(f"0.{number}" for number in range(24)), "labels are numbers: for measurements set"),
        (("-", *("a", "b") * 8), ""),
        (("nan", *("a", "b") * 8), "'nan' (2), which programs write for a missing one: leave rows without a label"),
        (("-1", "0", "1"), ""),  # a third each: a class like the others
        (("-1", *("0", "1") * 8), "2 rows have the label '-1': if they have none, name the others by --task.labels"),
        (("a ", "b"), "train: 12 labels have blanks around them, which are taken off"),
        (("Label", *("a", "b") * 12), "train: line 1 has the column's name 'label' as its label: take it out"),
    ],
)
def test_odd_labels_are_remarked(tmp_path, wordpiece, labels, remark):
    rows = [{"sentence": f"the cat {'sees ' * n}", "label": labels[n % len(labels)]} for n in range(24)]
    found = remarks(tmp_path, wordpiece, rows)
    assert remark in found and bool(remark) == bool(found)


def test_texts_that_have_several_labels_or_no_line_breaks_or_are_lists_are_remarked(tmp_path, wordpiece):
    rows = [{"sentence": f"the cat {'sees ' * (n % 20)}", "label": str(n // 20)} for n in range(22)]
    assert "train: 4 of 22 rows have texts that have another label too" in remarks(tmp_path, wordpiece, rows)
    for form, said in (
        ("the cat\\n{}", "21 of 22 texts hold a backslash and n"),
        ("['the {}', 'cat']", "22 of 22 texts are lists written as text"),
    ):
        rows = [{"sentence": form.format("sees " * n), "label": str(n % 2)} for n in range(22)]
        assert said in remarks(tmp_path, wordpiece, rows)


@pytest.mark.parametrize("numbers, said", [(range(1, 4), True), (range(4), False), (["d", "b", "c"], False)])
def test_choices_that_seem_to_be_numbered_from_1_are_remarked(tmp_path, wordpiece, numbers, said):
    rows = [{"sentence": f"the cat {'sees ' * n}", **dict.fromkeys("abcd", "dogs")} for n in range(24)]
    labelled = [row | {"label": numbers[n % len(numbers)]} for n, row in enumerate(rows)]
    found = remarks(tmp_path, wordpiece, labelled, kind="choice", choices=tuple("abcd"))
    remark = "no train row has the choice 0, the first: subtract 1 from your numbers, if they begin with 1"
    assert (remark in found) == (said or "d" in numbers)
    assert remark not in remarks(tmp_path, wordpiece, labelled[:12], kind="choice", choices=tuple("abcd"))


@pytest.mark.parametrize(
    "column, value, odd",
    [
        ("decision", "rejected", True),
        ("answer", "Ignore", True),  # beside a value that Prodigy doesn't write
        ("is_approved", False, True),
        ("valid", 0, True),
        ("decision", "open", False),
        ("count", 0, False),
    ],
)
def test_rows_that_seem_to_be_rejected_are_remarked(tmp_path, wordpiece, column, value, odd):
    rows = [{"sentence": f"dog {n}", "label": "ab"[n % 2], column: value if n % 4 == 0 else "yes"} for n in range(24)]
    remark = f"train: 6 rows have {label_text(value)!r} in {column!r}: leave out what doesn't hold"
    assert (remark in remarks(tmp_path, wordpiece, rows)) == odd


def test_a_column_of_the_dev_rows_alone_is_named_with_their_file(tmp_path, wordpiece):
    task = make_task(TaskConfig(name="x", kind="vectors", texts=("query", "positive"), label="score"), wordpiece)
    train, dev = (Record("line 1", {"query": "a", "positive": "b"} | more) for more in ({}, {"similarity": 0.5}))
    with pytest.raises(UsageError, match="^dev.jsonl has a column 'similarity' that isn't used"):
        reading_of_rows(task, {"train": RowSet("train.jsonl", [train]), "dev": RowSet("dev.jsonl", [dev])})


def test_a_column_beside_pairs_is_an_error_until_it_is_ignored(tmp_path, wordpiece):
    rows = [{"query": f"the cat {n}", "positive": f"a dog {n}", "negative": "the house"} for n in range(4)]
    settings = dict(kind="vectors", texts=("query", "positive"), label="score")
    with pytest.raises(UsageError, match="a column 'negative' that isn't used"):
        remarks(tmp_path, wordpiece, rows, **settings)
    assert not remarks(tmp_path, wordpiece, rows, **settings, ignore=("negative",))


@pytest.mark.parametrize(
    "tags, dev_tags, different",
    [
        (["I-PER O"] * 60 + ["I-PER B-PER"], ["I-PER O"] * 20, False),  # IOB1, whose B- is rare
        (["B-PER O", "I-PER O"] * 30, ["B-PER O"] * 20, False),
        (["B-PER O"] * 60, ["I-PER O"] * 20, True),
        (["S-PER O"] * 60, ["B-PER O"] * 20, True),
    ],
)
def test_sets_with_tags_of_different_schemes_are_remarked(wordpiece, tags, dev_tags, different):
    labels = sorted({tag for each in tags + dev_tags for tag in each.split()})
    config = TaskConfig(name="x", kind="tags", texts=("words",), label="tags", labels=tuple(labels))
    task = make_task(config, wordpiece)
    sets = {
        name: RowSet(name, [Record("line 1", {"words": ["cat", "dog"], "tags": each.split()}) for each in of_set])
        for name, of_set in {"train": tags, "dev": dev_tags}.items()
    }
    assert ("tags of different schemes" in " ".join(reading_of_rows(task, sets).remarks)) == different


@pytest.mark.parametrize(
    "content, is_csv",
    [
        ("a\tb\nx\t1\n", False),
        ('a\tb\n"x"\t1\n', False),
        ('"a"\t"b"\n"x"\t1\n', True),
        ('a\tb\n"x ""y"""\t1\n', True),
        ('a\tb\n"x ""y"""\t1\n5" disk\t2\n', False),
        ('a\tb\n"x\ny"\t1\n', True),
        ('a\tb\n"x\t1\ny"\t1\n', False),  # two rows with a quote each
    ],
)
def test_quotes_are_those_of_a_csv_writer_if_the_whole_file_says_so(content, is_csv):
    assert has_csv_quotes(content.splitlines(True), "\t") == is_csv
