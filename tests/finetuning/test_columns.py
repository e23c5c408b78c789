import time
from collections import Counter

import pytest

from bert_jax.finetuning.columns import (
    PRINTED_LIST,
    Labels,
    class_label,
    number,
    sorted_labels,
    text,
    whole_number,
    word_list,
)
from bert_jax.records.record import Record
from bert_jax.system.errors import UsageError


def record(**values):
    return Record("f, line 3", values)


def test_a_text_is_a_column_or_made_of_several():
    both = record(first="A", second="b {x}", none=None)
    assert [text(both, "first"), text(both, "{first}: {second}"), text(both, "none")] == ["A", "A: b {x}", ""]
    assert text(Record("f", {"#1 String": "x"}), "#1 String") == "x"


@pytest.mark.parametrize(
    "read, value, words_of_it",
    [
        (text, 3, "'x' is a number and not a text"),
        (word_list, "a b", "'x' is 'a b' and not a list of words"),
        (word_list, ["a", 1], "'x' is an array and not a list of words"),
        (number, "nan", "'x' is 'nan' and not a number"),
        (number, None, "'x' is null and not a number"),
        (number, True, "'x' is True and not a number"),
        pytest.param(number, 10**400, "'x' is 1000", id="number-10**400"),
        (number, "1_000", "'x' is '1_000' and not a number"),
        (class_label, 1.5, "'x' is 1.5, and a class is a text or a whole number"),
        (number, -1e39, "'x' is -1e+39 and not a number from -1e18 to 1e18"),
        (class_label, " ", "'x' is ' ', and a class is a text"),
        (class_label, "[27]", "'x' is an array, and a class is a text"),
        (class_label, "['a']", "'x' is the text \"['a']\", a list as a program prints it; write lists in JSON"),
        (word_list, "('a', 'b')", "a list as a program prints it"),
    ],
)
def test_values_of_another_kind_are_refused_with_their_place(read, value, words_of_it):
    with pytest.raises(UsageError) as refusal:
        read(record(x=value), "x")
    assert str(refusal.value).startswith("f, line 3") and words_of_it in str(refusal.value)


PRINTED = [
    "('a',)",
    "()",
    "{'a', \"it's\"}",
    "['a' 'b'\n 'c']",
    "[]",
    "set()",
    "frozenset({'a'})",
    "array([], dtype=object)",
    "[np.str_('a'), np.str_('b')]",
    "Index(['a'], dtype='object')",
    "tensor([0, 1], device='cuda:0')",
    "[{'text': 'a', 'start': 0}]",
    "[True, False]",
    "['a', None, nan]",
    "['a' 'b' ... 'z']",
    "[0. 1e-3]",
]
LABELS_AND_TEXTS = [
    "[a]",
    "(1999)",
    "[...]",
    "(e1,e2)",
    "main()",
    "('tis true, she said)",
    '("Hello," she said)',
    '("Yes")',
    "[[link]]",
    "[Applause, laughter]",
    "he said [1], then",
    "(see 1, 2)",
    "'a'",
    "",
]


@pytest.mark.parametrize(
    "text, printed", [*((text, True) for text in PRINTED), *((text, False) for text in LABELS_AND_TEXTS)]
)
def test_lists_as_programs_print_them_are_told_from_labels_and_texts_in_brackets(text, printed):
    assert bool(PRINTED_LIST.fullmatch(text)) == printed


@pytest.mark.parametrize(
    "text", ["[" + "1" * 50_000 + "x]", "[" * 50_000, "[" + "'a" * 50_001 + "]", "(" + "1." * 50_000]
)
def test_long_texts_in_brackets_cost_little(text):
    begun = time.perf_counter()
    assert not PRINTED_LIST.fullmatch(text) and time.perf_counter() - begun < 1


@pytest.mark.parametrize("value, name", [("yes ", "yes"), (True, "true"), (1, "1"), (2.0, "2"), ("01", "01")])
def test_classes_are_called_by_texts(value, name):
    assert class_label(record(x=value), "x") == name


def test_offsets_given_as_texts_are_read_and_counted():
    repairs = Counter()
    assert [whole_number(record(), "at", value, repairs) for value in (3, " 12 ", "-1")] == [3, 12, -1]
    assert repairs == {"offsets given as texts, read as numbers": 2}
    for value in ("3.5", 3.5, None, True):
        with pytest.raises(UsageError, match="f, line 3: 'at' is .* and not a whole number"):
            whole_number(record(), "at", value, repairs)


def test_labels_have_an_order_and_numbers():
    assert sorted_labels(["b", "a", "b"]) == ("a", "b") and sorted_labels(["10", "9", "-1"]) == ("-1", "9", "10")
    zeros = ["0" * count + "1" for count in range(10)]
    assert sorted_labels(zeros) == tuple(reversed(zeros))  # and not in the order of their hashes
    assert sorted_labels(["9", "8" * 5000]) == ("8" * 5000, "9")  # names: too long for numbers
    labels = Labels(("no", "yes"))
    assert labels.number("yes", "f") == 1 and len(labels) == 2
    with pytest.raises(UsageError, match="f, line 7: the label 'maybe' is none of the 2 that are known, 'no', 'yes'"):
        labels.number("maybe", "f, line 7")
    with pytest.raises(UsageError, match="by --task.labels no yes 'not sure'$"):
        labels.number("not sure", "f, line 7")
    for names, name in ((("O", "-LRB-"), "x"), (tuple(map(str, range(50))), "x")):  # no flag, or none to type
        with pytest.raises(UsageError, match="by --task.labels$"):
            Labels(names).number(name, "f, line 7")
    for names in ((), ("a",), ("a", "a")):
        with pytest.raises(UsageError, match="no two different labels"):
            Labels(names)
