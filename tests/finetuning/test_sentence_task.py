from collections import Counter

import numpy as np
import pytest

from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.sentence_task import ChoiceTask, ClassTask, LabelsTask, MarkedTask, NumberTask
from bert_jax.records.record import Record
from bert_jax.system.errors import UsageError

PAIR = TaskConfig(name="x", kind="class", texts=("a", "b"), labels=("no", "yes"), max_length=10)


def records(*rows):
    return [Record(f"f, line {number}", row) for number, row in enumerate(rows, 1)]


def written(tokenizer, example):
    return [" ".join(tokenizer.vocabulary.pieces[number] for number in row.ids) for row in example.sequences]


def test_a_pair_is_one_row_with_its_class(wordpiece):
    task, repairs = ClassTask(PAIR, wordpiece), Counter()
    [[example]] = task.encode(records({"a": "The cat sees", "b": "A DOG", "label": "yes"}), repairs, train=True)
    assert written(wordpiece, example) == ["[CLS] the cat sees [SEP] a dog [SEP]"]
    assert (example.sequences[0].first_length, example.target, example.size) == (5, 1, 8)
    assert not +repairs


def test_what_is_too_long_is_cut_and_counted_and_what_is_empty_is_not_learned_from(wordpiece):
    task, repairs = ClassTask(PAIR, wordpiece), Counter()
    rows = records(
        {"a": "the cat sees a dog", "b": "a cat sees the dog", "label": "no"},
        {"a": "\u200b", "b": "dog", "label": "no"},
        {"a": "dog", "b": None, "label": "no"},
    )
    long, *empty = task.encode(rows, repairs, train=True)
    assert written(wordpiece, long[0]) == ["[CLS] the cat sees a [SEP] a cat sees [SEP]"] and empty == [[], []]
    assert repairs == {"rows with an empty text": 2, "sequences longer than 10 pieces, cut": 1}
    asked = task.encode(rows, Counter(), train=False)
    assert [written(wordpiece, one[0]) for one in asked[1:]] == [["[CLS] [SEP] dog [SEP]"], ["[CLS] dog [SEP] [SEP]"]]


def test_logits_become_a_class_with_probabilities(wordpiece):
    task = ClassTask(PAIR, wordpiece)
    said = task.predict(records({})[0], [], [np.array([0.0, np.log(3)], np.float32)])
    assert said == {"predicted_label": "yes", "probabilities": {"no": pytest.approx(0.25), "yes": pytest.approx(0.75)}}
    measured = task.measure([1, 0], [said, said]).content
    assert measured["accuracy"] == 0.5 and measured["confusion"] == {"no": {"yes": 1}, "yes": {"yes": 1}}


def test_a_number_is_read_and_said(wordpiece):
    task = NumberTask(TaskConfig(name="x", kind="number", label="score"), wordpiece)
    [[example]] = task.encode(records({"sentence": "cat", "score": "3.5"}), Counter(), train=True)
    said = task.predict(records({})[0], [example], [np.array([1.25], np.float32)])
    assert example.target == 3.5 and said == {"predicted_number": 1.25}
    assert task.measure([1.0, 2.0], [said, {"predicted_number": 3.0}]).metrics["pearson"] == pytest.approx(1.0)


CHOICE = TaskConfig(name="x", kind="choice", texts=("{premise} {question}",), choices=("first", "second"))


def test_every_choice_is_a_row_of_its_own(wordpiece):
    task, repairs = ChoiceTask(CHOICE, wordpiece), Counter()
    row = {"premise": "the cat", "question": "sees", "first": "a dog", "second": "a house", "label": 1}
    found = task.encode(records(row, row | {"second": ""}), repairs, train=True)
    assert written(wordpiece, found[0][0]) == [
        "[CLS] the cat sees [SEP] a dog [SEP]",
        "[CLS] the cat sees [SEP] a house [SEP]",
    ]
    assert (found[0][0].target, found[1]) == (1, []) and +repairs == {"rows with an empty text": 1}
    said = task.predict(records(row)[0], found[0], [np.array([np.log(4), 0.0])])
    assert said == {"predicted_choice": 0, "probabilities": [pytest.approx(0.8), pytest.approx(0.2)]}
    assert task.measure([0, 1], [said, said]).content == {"accuracy": 0.5}


@pytest.mark.parametrize("label, number", [(0, 0), ("1", 1), ("second", 1)])
def test_a_choice_is_numbered_from_0_or_named_by_its_column(wordpiece, label, number):
    assert ChoiceTask(CHOICE, wordpiece).gold(records({"label": label})[0]) == number


@pytest.mark.parametrize("label", [2, "third", -1])
def test_a_label_that_is_no_choice_is_refused(wordpiece, label):
    with pytest.raises(UsageError, match=f"line 1: the label '{label}' is no choice; they are numbered from 0 to 1"):
        ChoiceTask(CHOICE, wordpiece).gold(records({"label": label})[0])


LABELS = TaskConfig(name="x", kind="labels", labels=("rain", "safety"))


@pytest.mark.parametrize(
    "names, values, gold",
    [
        ("rain safety", {"label": ["safety"]}, (0, 1)),
        ("rain safety", {"label": []}, (0, 0)),
        ("rain safety", {"label": "safety, rain"}, (1, 1)),
        ("rain safety", {"label": ""}, (0, 0)),
        ("rain safety", {"label": '["safety"]'}, (0, 1)),
        ("rain safety", {"label": "[1, 0]"}, (1, 0)),
        ("rain safety", {"rain": "0", "safety": "1"}, (0, 1)),
        ("rain safety", {"rain": True, "safety": 0.0}, (1, 0)),
        # a list of 0 and 1 has flags, or names of labels
        ("0 1 2", {"label": [0, 0, 1]}, (0, 0, 1)),
        ("0 1 2", {"label": [0.0, 1.0, 0.0]}, (0, 1, 0)),
        ("0 1 2", {"label": [True, False, True]}, (1, 0, 1)),
        ("0 1 2", {"label": [0, 1]}, (1, 1, 0)),
        ("0 1 2", {"label": [2]}, (0, 0, 1)),
    ],
)
def test_labels_are_read_in_all_their_forms(wordpiece, names, values, gold):
    config, record = LABELS.replace(labels=tuple(names.split())), Record("f, line 1", {"sentence": "the cat"} | values)
    task = LabelsTask(config, wordpiece)
    assert task.is_labelled(config, record) and task.gold(record) == gold
    [[example]] = task.encode([record], Counter(), train=True)
    assert example.target == gold


@pytest.mark.parametrize(
    "values, words",
    [
        ({"label": [1, 0, 0]}, "has 3 values of 0 and 1, and --task.labels names 2 labels"),
        ({"label": ["snow"]}, "the label 'snow' is none of the 2 that are known"),
        ({"label": "['rain', 'safety']"}, r"1: 'label' is the text \"\['rain', 'safety'\]\", a list as a program"),
        ({"label": "[rain, snow]"}, r"'label' is '\[rain, snow\]'; several labels a row are a list"),
        ({"label": "(rain, snow)"}, r"'label' is '\(rain, snow\)'; several labels a row are a list"),
        ({"label": "{rain,snow}"}, "'label' is '{rain,snow}'; several labels a row are a list"),
        ({"label": "[rain],[snow]"}, r"the label '\[rain\]' is none of the 2"),
        ({"label": 3.5}, "'label' is 3.5; several labels a row are a list"),
        ({"rain": "2", "safety": "1"}, "'rain' is '2'; a column of a label holds 0 or 1"),
    ],
)
def test_labels_that_do_not_fit_are_refused(wordpiece, values, words):
    with pytest.raises(UsageError, match=words):
        LabelsTask(LABELS, wordpiece).gold(Record("f, line 1", values))


def test_a_list_that_may_be_names_or_0_and_1_is_refused(wordpiece):
    task = LabelsTask(LABELS.replace(labels=("0", "1")), wordpiece)
    gold = lambda value: task.gold(Record("f, line 1", {"label": value}))
    assert [*map(gold, ([1, 1], [0, 0], [False, True], ["0"]))] == [(1, 1), (0, 0), (0, 1), (1, 0)]
    with pytest.raises(UsageError, match=r"line 1: 'label' is \[1, 0\].*; give names as texts, \[\"1\", \"0\"\]"):
        gold([1, 0])
    with pytest.raises(UsageError, match="has 4 values of 0 and 1, and --task.labels names 2 labels"):
        gold([1, 0, 0, 1])


def test_labels_are_predicted_and_measured(wordpiece):
    task = LabelsTask(LABELS, wordpiece)
    said = [task.predict(Record("", {}), [], [np.array(logits)]) for logits in ([3.0, -1.0], [1.0, 1.0], [-1.0, -2.0])]
    assert [one["predicted_labels"] for one in said] == [["rain"], ["rain", "safety"], []]
    assert said[0]["probabilities"]["rain"] == pytest.approx(1 / (1 + np.exp(-3)))
    found = task.measure([(1, 0), (0, 1), (0, 0)], said).content
    assert found["micro_f1"] == pytest.approx(0.8) and found["exact_match"] == 2 / 3
    figures = [(each["label"], each["rows"], each["predicted"]) for each in found["classes"]]
    assert figures == [("rain", 1, 2), ("safety", 1, 1)]
    assert task.baseline([(1, 0), (1, 1)]) == [{"predicted_labels": ["rain"]}] * 2


CONFIG = TaskConfig(
    name="wic",
    kind="marked",
    texts=("sentence1", "sentence2"),
    marks=("start1", "end1", "start2", "end2"),
    labels=("false", "true"),
    max_length=12,
)


def record(first, second, words=("dogs", "cat"), **values):
    starts = [text.index(word) for text, word in zip((first, second), words)]
    offsets = {"start1": starts[0], "end1": starts[0] + len(words[0])}
    offsets |= {"start2": starts[1], "end2": starts[1] + len(words[1])}
    return Record("f, line 1", {"sentence1": first, "sentence2": second, "label": True} | offsets | values)


def marked(tokenizer, example):
    ids = example.sequences[0].ids
    return [" ".join(tokenizer.vocabulary.pieces[number] for number in ids[begin:end]) for begin, end in example.marks]


def test_marked_words_are_found_among_the_pieces(tokenizer):
    [[example]] = MarkedTask(CONFIG, tokenizer).encode([record("old dogs", "the cat.")], Counter(), train=True)
    said = [
        "".join(letter for letter in words if letter.isascii() and letter.isalpha())
        for words in marked(tokenizer, example)
    ]
    assert said == ["dogs", "cat"] and example.target == 1
    ids = example.sequences[0].ids
    assert ids[example.sequences[0].first_length - 1] == ids[-1] == tokenizer.vocabulary.sep_id


def test_a_long_text_keeps_what_is_around_its_word(wordpiece):
    task, repairs = MarkedTask(CONFIG, wordpiece), Counter()
    before, after = "the old house in " * 3, " the new house in" * 3
    for text in ("dogs" + after, before + "dogs" + after, before + "dogs"):
        [[example]] = task.encode([record(text, text.replace("dogs", "cat"))], repairs, train=True)
        assert marked(wordpiece, example) == ["dog ##s", "cat"] and len(example.sequences[0].ids) == 12
    assert +repairs == {"sequences longer than 12 pieces, cut": 3}


def test_of_a_phrase_longer_than_what_is_kept_the_kept_part_is_marked(wordpiece):
    phrase = "the old house in " * 5
    for words in ((phrase, "cat"), ("cat", phrase), (phrase, phrase)):
        one = record(*(f"dog {word} dog" for word in words), words=words)
        [[example]] = MarkedTask(CONFIG, wordpiece).encode([one], Counter(), train=False)
        for word, said in zip(words, marked(wordpiece, example)):
            assert said and said in word


def test_offsets_may_be_texts_and_a_dropped_word_is_counted(wordpiece):
    task, repairs = MarkedTask(CONFIG, wordpiece), Counter()
    [[example]] = task.encode([record("a dogs", "cat", start1="2", end1="6")], repairs, train=True)
    assert marked(wordpiece, example) == ["dog ##s", "cat"]
    assert repairs["offsets given as texts, read as numbers"] == 2
    dropped = record("a \u200b", "cat", words=("\u200b", "cat"))
    assert task.encode([dropped], repairs, train=True) == [[]]
    assert task.encode([dropped], repairs, train=False)[0][0].marks == ((0, 1), (3, 4))
    assert repairs["rows whose marked word has no piece"] == 2
    [[example]] = MarkedTask(CONFIG, wordpiece.with_class_token("last")).encode([dropped], Counter(), train=False)
    assert marked(wordpiece, example) == ["[CLS]", "cat"]


@pytest.mark.parametrize("offsets", [{"start1": -1}, {"end1": 99}, {"start1": 6}, {"start1": 3, "end1": 3}])
def test_marks_outside_of_the_text_are_refused(wordpiece, offsets):
    with pytest.raises(UsageError, match="f, line 1: the marked word is at characters .* of a text of 6"):
        MarkedTask(CONFIG, wordpiece).encode([record("a dogs", "cat", **offsets)], Counter(), train=False)
