from collections import Counter

import pytest

from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.dataset import TASK_CLASSES, read_records
from bert_jax.finetuning.usable_rows import usable_rows
from bert_jax.records.record import Record
from bert_jax.system.errors import UsageError

CONFIGS = {
    "class": TaskConfig(kind="class", texts=("text",)),
    "labels": TaskConfig(kind="labels", texts=("text",)),
    "number": TaskConfig(kind="number", texts=("text",)),
    "choice": TaskConfig(kind="choice", texts=("text",), choices=("first", "second")),
    "tags": TaskConfig(kind="tags", texts=("text",)),
    "span": TaskConfig(kind="span", texts=("question", "text"), max_length=384),
    "marked": TaskConfig(kind="marked", texts=("text",), marks=("begin", "end")),
    "vectors": TaskConfig(kind="vectors", texts=("query", "positive"), label="score"),
}
WHOLE = {"text": "a", "question": "b", "first": "c", "second": "d", "query": "e", "positive": "f", "label": "g"}


def usable(config, *rows, repairs=None, columns=()):
    records = [Record(f"f, line {number}", row, columns) for number, row in enumerate(rows, 1)]
    repairs = Counter() if repairs is None else repairs
    return [int(one.place[-1]) for one in usable_rows(TASK_CLASSES[config.kind], config, "f", records, repairs)]


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize(
    "column, rejected, accepted, said",
    [
        ("answer", "reject", "accept", "rejected or ignored in Prodigy"),
        ("answer", "ignore", None, "rejected or ignored in Prodigy"),
        ("status", "Discarded", "Validated", "discarded in Argilla"),
        ("was_cancelled", True, False, "cancelled in Label Studio"),
        ("Skipped", "true", "false", "skipped in Labelbox"),
        ("AssignmentStatus", "Rejected", "Approved", "rejected in Mechanical Turk"),
        ("_tainted", "true", "false", "of untrusted contributors in Appen"),
    ],
)
def test_rows_that_annotators_rejected_are_left_out_in_every_kind(kind, column, rejected, accepted, said):
    repairs, rows = Counter(), [WHOLE | {column: value} for value in (accepted, rejected, accepted)]
    assert usable(CONFIGS[kind], *rows, WHOLE, repairs=repairs) == [1, 3, 4]
    assert +repairs == {f"rows {said} left out": 1}
    with pytest.raises(UsageError, match=f"f: all 1 rows are {said}, by the column '{column}'; give others"):
        usable(CONFIGS[kind], rows[1])


def test_a_column_of_answers_that_the_task_reads_or_that_no_tool_writes_leaves_out_nothing():
    rows = [{"text": "a", "answer": answer} for answer in ("reject", "accept")]
    assert usable(CONFIGS["class"].replace(label="answer"), *rows) == [1, 2]
    assert usable(CONFIGS["class"].replace(texts=("{text} {answer}",)), *rows) == [1, 2]
    rows = [WHOLE | {"answer": answer} for answer in ("ignore", "no", ["reject"])]
    assert usable(CONFIGS["class"], *rows) == [1, 2, 3]


@pytest.mark.parametrize(
    "known, labels, left_out",
    [
        (None, ["-2", "-1", "0", "1", "2"], False),
        (None, ["-1", "0", "1"], False),
        (None, ["-1", "1", "2", "3"], False),
        (None, ["-1", "0", "1", "3"], False),
        (None, ["-1", "0", "1", "2"], True),
        (None, [-1.0, 0.0, 1.0, 2.0], True),
        (None, ["-1", "no", "yes"], False),
        # as in an evaluation, whose labels are those of the training rows
        (("0", "1"), ["-1", "0"], True),
        (("no", "yes"), ["-1", "no"], False),
        (("0", "1", "3"), ["-1", "0"], False),
        (("-1", "0", "1"), ["-1", "0"], False),
    ],
)
def test_minus_one_is_no_label_only_beside_0_to_n(known, labels, left_out):
    rows = [{"text": "a", "label": label} for label in labels]
    none = {"-", "-1", "-1.0"} if left_out else set()
    kept = [number for number, label in enumerate(labels, 1) if str(label) not in none]
    assert usable(CONFIGS["class"].replace(labels=known), *rows) == kept


def test_a_dash_of_many_rows_is_no_missing_label():
    rows = [{"text": "a", "label": label} for label in ["-", "hate", "hate"]]
    with pytest.raises(UsageError, match="1 of 3 rows have the label '-'.*; if it is a class, name all of them by"):
        usable(CONFIGS["class"], *rows)
    assert usable(CONFIGS["class"].replace(labels=("-", "hate")), *rows) == [1, 2, 3]
    few = [{"text": "a", "label": label} for label in ["-", *["hate", "none"] * 10]]
    assert len(usable(CONFIGS["class"], *few)) == 20


def test_minus_one_is_no_choice():
    repairs = Counter()
    assert usable(CONFIGS["choice"], WHOLE | {"label": -1}, WHOLE | {"label": 1}, repairs=repairs) == [2]
    assert +repairs == {"rows without a label (-1) left out": 1}


CUT = "rows have fewer fields than there are columns"


@pytest.mark.parametrize(
    "kind, names, row, cut",
    [
        ("class", "label text", "x a", ["b"]),
        ("class", "label text note", "x a n", ["x a", "b n"]),
        ("labels", "text label", "a x", ["a"]),
        ("number", "text label", "a 1", ["a"]),
        ("choice", "text first second label", "a b c 0", ["a b", "c 0"]),
        ("span", "question text label", "q a []", ["q a"]),
        ("vectors", "query positive negatives", "q p n", ["q p", "r n"]),
        ("vectors", "a b score", "q p 1", ["q p", "r 1"]),
    ],
)
def test_a_row_with_fewer_fields_than_columns_is_refused_or_left_out_in_every_kind(tmp_path, kind, names, row, cut):
    path, repairs = tmp_path / "rows.tsv", Counter()
    path.write_text("\n".join("\t".join(line.split()) for line in [names, row, row, *cut, row, row, row]) + "\n")
    config = CONFIGS[kind].replace(train=str(path))
    with pytest.raises(UsageError) as refusal:
        read_records(config, config.train, "train", repairs)
    places = "; ".join(f"line {number}" for number in range(4, 4 + len(cut)))
    assert f"{len(cut)} of {5 + len(cut)} {CUT} ({places}); a line break in a text without" in str(refusal.value)
    config = config.replace(unlabelled="skip")
    kept = read_records(config, config.train, "train", repairs)
    assert len(kept) == 5 and all(len(one.values) == len(row.split()) for one in kept)
    assert +repairs == {"rows with fewer fields than columns left out": len(cut)}


def test_most_rows_of_a_table_may_lack_the_last_columns_if_the_task_does_not_read_them(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("text,label,note\n" + "a,x\n" * 5 + "a,x,n\n" * 2)
    config = CONFIGS["class"].replace(train=str(path))
    assert len(read_records(config, config.train, "train", Counter())) == 7
    path.write_text("text,label,note\n" + "a\n" * 5 + "a,x,n\n" * 2)
    with pytest.raises(UsageError, match=f"5 of 7 {CUT}"):
        read_records(config, config.train, "train", Counter())


def test_a_rejected_row_is_not_read(tmp_path):
    """Its spans may overlap, as annotators leave them."""
    path = tmp_path / "rows.jsonl"
    path.write_text(
        '{"text": "a b", "label": [[0, 2, "X"], [0, 3, "Y"]], "answer": "ignore"}\n'
        '{"text": "a b", "label": [[0, 1, "X"]], "answer": "accept"}\n'
    )
    config = CONFIGS["tags"].replace(train=str(path))
    [record] = read_records(config, config.train, "train", Counter())
    assert record.values["label"] == ["B-X", "O"]
