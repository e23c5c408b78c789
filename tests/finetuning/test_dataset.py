import json

import pytest

from bert_jax.config.settings import SettingsError
from bert_jax.config.task import TaskConfig
from bert_jax.config.task_kind import TASK_KINDS
from bert_jax.finetuning.dataset import (
    TASK_CLASSES,
    balanced_weights,
    make_task,
    read_labelled,
    read_training,
    written_as,
)
from bert_jax.finetuning.objective import TASK_LOSSES
from bert_jax.finetuning.task import IGNORED, Example, Task
from bert_jax.model.task import HeadShape
from bert_jax.records import limits
from bert_jax.system.errors import UsageError

CONFIG = TaskConfig(name="x", kind="class")
ROWS = "sentence\tlabel\nthe cat\tgood\na dog sees the old house\tbad\nthe dog\tgood\n"


def test_every_kind_has_a_class_and_a_loss_and_says_what_it_counts_by_row():
    assert TASK_CLASSES.keys() == TASK_KINDS.keys()
    assert {kind.loss for kind in TASK_KINDS.values()} == TASK_LOSSES.keys() | {"contrast"}
    for name, kind in TASK_CLASSES.items():
        assert name == "vectors" or kind.row_outcomes is not Task.row_outcomes


def with_files(tmp_path, train=ROWS, dev=ROWS, config=CONFIG, suffix="tsv"):
    paths = [tmp_path / f"{name}.{suffix}" for name in ("train", "dev")]
    for path, content in zip(paths, (train, dev)):
        path.write_text(content, encoding="utf-8")
    return config.replace(train=str(paths[0]), dev=str(paths[1]))


@pytest.mark.parametrize(
    "given, labels, targets",
    [(None, ("bad", "good"), [1, 0, 1]), (("good", "fair", "bad"), ("good", "fair", "bad"), [0, 2, 0])],
)
def test_labels_are_those_of_the_training_rows_unless_they_are_given(tmp_path, wordpiece, given, labels, targets):
    learned = read_training(with_files(tmp_path, config=CONFIG.replace(labels=given)), wordpiece)
    assert learned.task.config.labels == labels and [one.target for one in learned.examples] == targets
    assert read_labelled(learned.task).golds == targets and learned.rows == 3
    again = make_task(learned.task.config, wordpiece)  # as from a run, without the rows
    assert HeadShape.of(again.config).outputs == len(labels) and again.config == learned.task.config


def test_weights_of_classes_are_balanced_or_given_and_named(tmp_path, wordpiece, capsys):
    rows = ROWS + "the dog sees\tgood\nthe \tfair\n"  # of class: 1 bad, 1 fair, 3 good
    for given, weights, named in (
        ("balanced", (5 / 3, 5 / 3, 5 / 9), "bad: 1.67, fair: 1.67, good: 0.556"),
        ((1.0, 2.5, 0.5), (1.0, 2.5, 0.5), "bad: 1, fair: 2.5, good: 0.5"),
    ):
        task = read_training(with_files(tmp_path, rows, config=CONFIG.replace(class_weights=given)), wordpiece).task
        assert task.config.class_weights == pytest.approx(weights)
        assert f"weights of the classes in the loss: {named}\n" in capsys.readouterr().err
    with pytest.raises(
        SettingsError, match="=1.0 3.0 has 2 of them for 3 labels; give one for each, in the order of bad, f"
    ):
        read_training(with_files(tmp_path, rows, config=CONFIG.replace(class_weights=(1.0, 3.0))), wordpiece)


@pytest.mark.parametrize(
    "targets, count, weights",
    [
        ([0, 2, 2], 3, [1.5, 1, 0.75]),  # as scikit-learn, with 1 for a class without rows
        ([[IGNORED, 0, 0], [1, IGNORED, 0]], 2, [2 / 3, 2]),  # of tags
    ],
)
def test_balanced_weights_are_inverse_to_counts(targets, count, weights):
    examples = [Example((), target=target) for target in targets]
    assert balanced_weights(examples, count) == pytest.approx(weights)


@pytest.mark.parametrize(
    "train, set_format, source, given, written",
    [
        ("sts.csv.gz", "tsv", "other.csv", None, ("tsv", ("a", "b"), None)),  # called as the trained ones
        ("sts.csv.gz", "tsv", "other.csv", "csv", ("csv", None, None)),
        ("sts.csv.gz", "tsv", "other.jsonl", None, ("jsonl", None, None)),
        ("sts.csv.gz", "tsv", "other", None, ("tsv", ("a", "b"), None)),
        ("cola.tsv", None, "other.tsv.gz", None, ("tsv", ("a", "b"), None)),
        ("ner.txt", "conll", "other.txt", None, ("conll", ("a", "b"), None)),
        ("tfds:glue/cola:train", None, "other.tsv", None, ("tsv", None, None)),
        ("ner.conll.gz", None, "ner.test.annotated", None, ("conll", ("a", "b"), None)),
    ],
)
def test_other_files_are_read_as_their_names_say_or_as_the_trained_ones(train, set_format, source, given, written):
    task = CONFIG.replace(train=train, format=set_format, columns=("a", "b"))
    assert written_as(task, source, given)[:3] == written


def test_columns_and_separators_are_given_or_those_of_the_training_rows():
    task = CONFIG.replace(train="cola.tsv", columns=("a", "b"))
    assert written_as(task, "other.jsonl", "tsv", ("b", "a"))[:3] == ("tsv", ("b", "a"), None)
    assert written_as(task, "other.tsv", columns=())[:3] == ("tsv", None, None)  # with a line of names
    task = CONFIG.replace(train="a.csv", separator=";")
    assert written_as(task, "b.csv").separator == ";" and written_as(task, "b.jsonl").separator is None
    assert written_as(task, "b.csv", separator="tab").separator == "\t"
    for bad in ("", ";;", "a", '"'):
        with pytest.raises(UsageError, match=f"--task.separator={bad!r} can't stand between columns"):
            written_as(task, "b.csv", separator=bad)


def test_what_measures_is_missed_before_anything_is_learned(tmp_path, wordpiece, monkeypatch):
    config = CONFIG.replace(kind="number")
    rows = ROWS.replace("good", "1").replace("bad", "0")
    learned = read_training(with_files(tmp_path, rows, rows, config), wordpiece)
    monkeypatch.setattr("bert_jax.system.errors.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="needs scipy, which isn't installed; pip .*tasks"):
        read_labelled(learned.task)


def test_a_part_of_the_rows_is_the_same_every_time_from_all_along_them_and_has_all_labels(tmp_path, wordpiece):
    rows = ROWS[:15] + "".join(f"cat{' cat' * (number % 40)}\t{number // 4:02}\n" for number in range(400))
    part = read_training(with_files(tmp_path, rows, config=CONFIG.replace(train_rows=90)), wordpiece)
    again = read_training(with_files(tmp_path, rows, config=CONFIG.replace(train_rows=90)), wordpiece)
    whole = read_training(with_files(tmp_path, rows), wordpiece).examples
    assert len(part.examples) == 90 and part.content_hash == again.content_hash
    assert len(part.task.config.labels) == 100
    places = [place for place, example in enumerate(whole) if example in part.examples]
    assert part.examples[:5] != whole[:5] and min(places) < 40 and max(places) > 360
    with pytest.raises(UsageError, match="--task.train-rows=401 and there are 400"):
        read_training(with_files(tmp_path, rows, config=CONFIG.replace(train_rows=401)), wordpiece)


def test_what_was_mended_is_said_in_one_line(tmp_path, wordpiece, capsys):
    unknown = "\u4e2d\u6587 \u5b57 cat\tgood\n"
    rows = "\ufeff" + ROWS + "\u200b\tbad\n" + "the cat " * 100 + "\tgood\n" + unknown
    learned = read_training(with_files(tmp_path, rows), wordpiece)
    assert len(learned.examples) == 5
    assert capsys.readouterr().err == (
        f"{tmp_path}/train.tsv: 1 byte-order mark taken off; 1 row of which the vocabulary knows less than half; "
        "1 row with an empty text, not learned from; 1 sequence longer than 128 pieces, cut\n"
    )
    read_training(with_files(tmp_path), wordpiece)
    assert not capsys.readouterr().err


def test_rows_without_a_label_are_left_out_and_counted_if_so_set(tmp_path, wordpiece, capsys):
    config = CONFIG.replace(unlabelled="skip")
    learned = read_training(with_files(tmp_path, ROWS + "cat\t\ndog\n", ROWS + "cat\t \n", config=config), wordpiece)
    assert learned.rows == 3 and len(read_labelled(learned.task).golds) == 3
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[2] for line in said] == [
        "1 row with fewer fields than columns left out; 1 row without a label left out",
        "1 row without a label left out",
    ]


def test_a_text_too_long_to_be_cut_in_pieces_is_refused(tmp_path, wordpiece, monkeypatch):
    monkeypatch.setattr(limits, "TEXT_CHARACTERS", 1000)
    with pytest.raises(UsageError, match=r"line 5: 'sentence' has 4,000 characters and a text .* at most 1,000; cut"):
        read_training(with_files(tmp_path, ROWS + "cat " * 1000 + "\tgood\n"), wordpiece)


@pytest.mark.parametrize(
    "train, dev, words",
    [
        (ROWS + "cat\t\n", ROWS, "train.tsv: 1 of 4 rows have no label, 'label' is empty (line 5); give each one"),
        (ROWS + "cat\n" * 7, ROWS, "there are columns (line 5; line 6; line 7; line 8; line 9; ...); a line break"),
        (ROWS, ROWS + "cat\tfair\n", "dev.tsv, line 5: the label 'fair' is none of the 2 that are known"),
        (ROWS, "sentence\ncat\n", "dev.tsv has no 'label' in any row, and nothing can be measured"),
        (ROWS.replace("sentence", "text"), ROWS, "line 2 has no column 'sentence': there is 'text', 'label'"),
        ("sentence\tlabel\ncat\tgood\n", ROWS, "no two different labels to tell apart, only 'good'"),
        ("sentence\tlabel\n", ROWS, "train.tsv has no rows; give another"),
        ("sentence\tlabel\n\u200b\ta\n\u200b\tb\n", ROWS, "train.tsv has no row to learn from"),
    ],
)
def test_bad_rows_are_refused_with_their_place(tmp_path, wordpiece, train, dev, words):
    with pytest.raises(UsageError) as refusal:
        read_labelled(read_training(with_files(tmp_path, train, dev), wordpiece).task)
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


def test_rows_have_to_be_named(wordpiece):
    with pytest.raises(UsageError, match="--task.train names no rows; give a file or a set like tfds:glue/cola:train"):
        read_training(CONFIG, wordpiece)


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"dev": "0%"}, "--task.dev=0% is no share"),
        ({"dev": "51%"}, "--task.dev=51% is no share .*more than 0% and at most 50%"),
        ({"dev": "10%", "other_dev": ("x=20%",)}, "x=20% names a share, which only --task.dev may be"),
        ({"dev": "a.tsv", "other_dev": ("a.tsv",)}, "isn't NAME=ROWS"),
        ({"dev": "a.tsv", "other_dev": ("a=b", "a=c")}, "has a name twice"),
        ({"other_dev": ("a=b",)}, "measured beside --task.dev, which names no rows"),
    ],
)
def test_dev_rows_that_can_not_be_are_refused(settings, words):
    with pytest.raises(SettingsError, match=words):
        CONFIG.replace(train="rows.tsv", **settings)


def of_share(tmp_path, rows: list[str], share: str, **changes) -> TaskConfig:
    path = tmp_path / "rows.tsv"
    path.write_text("sentence\tlabel\n" + "".join(f"{row}\n" for row in rows), encoding="utf-8")
    return CONFIG.replace(train=str(path), dev=share, **changes)


def test_a_share_of_the_training_rows_is_measured_on_and_not_trained_on(tmp_path, wordpiece):
    """The share depends on the texts alone, and equal texts stay together, though their labels differ."""
    words = "the cat dog house river stone window garden teacher letter".split()
    rows = [f"{one} {other}\t{label}" for one in words for other in words for label in ("good", "bad")]
    config = of_share(tmp_path, rows, "20%")
    learned = read_training(config, wordpiece)
    dev = read_labelled(learned.task).records
    texts = {record.values["sentence"] for record in dev}
    assert len(dev) == 40 and len(texts) == 20 and len(learned.examples) == 160
    assert texts.isdisjoint(record.values["sentence"] for record in learned.records)
    config = of_share(tmp_path, rows[::-1], "20%")
    dev = read_labelled(make_task(learned.task.config, wordpiece)).records
    assert {record.values["sentence"] for record in dev} == texts
    assert len(read_training(config, wordpiece).examples) == 160
    with pytest.raises(UsageError, match="50% of 2 rows of .*rows.tsv with 1 different text leaves none to measure on"):
        read_training(of_share(tmp_path, ["the cat\tgood", "the cat\tbad"], "50%"), wordpiece)


def test_a_class_of_the_share_alone_is_refused_and_no_row_is_on_both_sides(tmp_path, wordpiece):
    """A -1 is no label beside the known labels 0 and 1, and without it the rows would be divided in another way."""
    words = "the cat dog house river stone window garden teacher letter".split()
    rows = [f"{one} {other}\t{number % 2}" for number, one in enumerate(words) for other in words]
    learned = read_training(of_share(tmp_path, rows, "20%"), wordpiece)
    share = read_labelled(learned.task).records[0].values["sentence"]
    rows = [f"{share}\t-1" if row.startswith(f"{share}\t") else row for row in rows]
    with pytest.raises(UsageError, match="the label '-1' is none of the 2 that are known"):
        read_training(of_share(tmp_path, rows, "20%"), wordpiece)
    config = of_share(tmp_path, rows, "20%", labels=("0", "1"))
    learned = read_training(config, wordpiece)
    dev = {record.values["sentence"] for record in read_labelled(learned.task).records}
    assert dev.isdisjoint(record.values["sentence"] for record in learned.records) and share not in dev


def test_texts_with_several_questions_stay_on_one_side(tmp_path, wordpiece):
    path = tmp_path / "rows.jsonl"
    answer = {"text": ["cat"], "answer_start": [4]}
    rows = [{"question": f"who {n}", "context": f"the cat {n % 10}", "answers": answer} for n in range(40)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = TaskConfig(
        kind="span", texts=("question", "context"), label="answers", max_length=384, train=str(path), dev="30%"
    )
    learned = read_training(config, wordpiece)
    dev = {record.values["context"] for record in read_labelled(learned.task).records}
    assert len(dev) == 3 and dev.isdisjoint(record.values["context"] for record in learned.records)
