"""Reads a record's columns as texts, words, numbers and class names; and numbers the classes."""

import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from bert_jax.config.task import COLUMN_IN_BRACES, TaskConfig
from bert_jax.config.wording import counted
from bert_jax.records import limits
from bert_jax.records.record import Record
from bert_jax.system.errors import Setting, UsageError, json_kind, listed, quoted

MOST_DIGITS = 18
"""Most digits of a whole number that is read from text."""
_ITEM = (
    r"""b?'(?:[^'\\]|\\.)*'|b?"(?:[^"\\]|\\.)*"|[-+]?[\d.][\d.eE+-]*|[Tt]rue|[Ff]alse|None|null|nan|\.{3}|(?<=['"]):"""
)
_CALL = r"[A-Za-z_][\w.]*"
PRINTED_LIST = re.compile(
    rf"""(?:{_CALL}\((?=[\[({{])|[\[{{]|\((?=.*,))(?=.*[\d'"=]|.*(?:True|False)|[\s\[\](){{}}]*$)
    (?>{_ITEM}|{_CALL}(?=[(\[{{=])|(?<==)[\w.:<>|]+|[\s,=\[\](){{}}])*+(?<=[\])}}])|(?:(?:frozen)?set)?\(\)""",
    re.DOTALL | re.VERBOSE,
)
"""A list, tuple, set, object or array as Python, NumPy, PyTorch or JSON print it: ['a', 'b'], ('a',), [0 1], {'a'},
array(['a'], dtype=object), [] or set(). [a], {a} and (1) don't count, since they may be labels or texts."""
_UNQUOTED_LIST = re.compile(r"\[[^][,]*,[^][]*\]|\([^(),]*,[^()]*\)|\{[^{},]*,[^{}]*\}")
"""Several labels without quotes: [a, b], (a, b), or {a,b} as in PostgreSQL."""
_WHOLE = re.compile(r"\s*-?\d+\s*")
_MOST_TYPED = 40
"""A message gives the flag that names all labels if there are fewer than so many."""
_LARGEST = 1e18
"""Largest number that can be learned: the square of an error must be finite in float32."""


def text(record: Record, template: str, remedy: str | None = None) -> str:
    """The text of a column, or of several: `{title}. {body}`; empty if it is null.

    Raises UsageError for a column that is missing, not a text, or too long. `remedy` ends the message about a missing
    column; None: the message names the flags of the commands that read rows.
    """
    if "{" not in template:
        return _text(record, template, remedy)
    return COLUMN_IN_BRACES.sub(lambda name: _text(record, name[1], remedy), template)


def word_list(record: Record, name: str) -> list[str]:
    """A column of words, or of their tags. Raises UsageError for anything else."""
    value = list_or_value(record, name)
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise UsageError(
            f"{record.place}: {name!r} is {_described(value)} and not a list of words; give a word a line, as files of "
            "CoNLL have them, or a list in JSON lines"
        )
    return value


def whole_number(record: Record, name: str, value: object, repairs: Counter[str]) -> int:
    """The value found under `name` as a whole number.

    A number that is written as a text is read and counted in `repairs`. Raises UsageError for any other value.
    """
    if isinstance(value, str) and len(value) <= MOST_DIGITS and _WHOLE.fullmatch(value):
        repairs["offsets given as texts, read as numbers"] += 1
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{record.place}: {name!r} is {_described(value)} and not a whole number")
    return value


def number(record: Record, name: str) -> float:
    """A column of numbers. Raises UsageError for anything else, and for numbers too large to be learned."""
    value = record.value(name)
    try:
        parsed = math.nan if isinstance(value, str) and "_" in value else float(value)
    except (TypeError, ValueError, OverflowError):
        parsed = math.nan
    if not abs(parsed) <= _LARGEST or isinstance(value, bool):
        raise UsageError(f"{record.place}: {name!r} is {_described(value)} and not a number from -1e18 to 1e18")
    return parsed


def class_label(record: Record, name: str) -> str:
    """The name of a class: a text, or a number or truth value as JSON writes it. Raises UsageError for other values."""
    value = list_or_value(record, name)
    is_class = value.is_integer() if isinstance(value, float) else isinstance(value, str | int)
    if not is_class or not label_text(value):
        raise UsageError(f"{record.place}: {name!r} is {_described(value)}, and a class is a text or a whole number")
    return label_text(value)


def label_text(value: object) -> str:
    """A label as it is compared: a truth value as JSON writes it, a whole number without a decimal point."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()


def list_or_value(record: Record, name: str) -> Any:
    """The value of a column that may hold a list. A text with a list in JSON, as tables hold lists, is that list.

    Raises UsageError for a list as Python or NumPy print it, which can't be read without doubt.
    """
    value = record.value(name)
    if not isinstance(value, str) or not PRINTED_LIST.fullmatch(value.strip()):
        return value
    with suppress(ValueError, RecursionError):
        if isinstance(read := json.loads(value), list):
            return read
    raise UsageError(
        f"{record.place}: {name!r} is the text {quoted(value)}, a list as a program prints it; write lists in JSON, "
        '["a", "b"], in a table too'
    )


def label_names(record: Record, config: TaskConfig) -> list[str]:
    """The labels of a record of kind `labels`, in any of the forms that `task.label` describes. Raises UsageError.

    A list of 0 and 1 has a flag for each label. If it isn't as long as task.labels, it has names of labels instead;
    all of its values must be labels, and none may occur twice.
    """
    labels = config.labels or ()
    if not record.has(config.label) and labels and all(map(record.has, labels)):
        return [name for name in labels if _holds(record, name)]
    value = record.value(config.label)
    if isinstance(value, str):
        names = [name for part in value.split(config.label_separator) if (name := part.strip())]
        value = names if set(names) <= set(labels) else list_or_value(record, config.label)
        if isinstance(value, str) and not _UNQUOTED_LIST.fullmatch(value.strip()):
            return names
    flags = isinstance(value, list) and bool(value) and all(type(one) is not str and one in (0, 1) for one in value)
    if not isinstance(value, list) or not (flags or all(type(one) in (str, int) for one in value)):
        raise UsageError(
            f"{record.place}: {config.label!r} is {_described(value)}; several labels a row are a list, a text with "
            f"{config.label_separator!r} between labels ({Setting('task.label_separator')}), or a column of 0 "
            f"and 1 for each of {Setting('task.labels')}"
        )
    names = [str(one).strip() for one in value]
    if not flags:
        return names
    named = all(type(one) is int for one in value) and set(names) <= set(labels) and len(set(names)) == len(names)
    if named and len(value) == len(labels):
        raise UsageError(
            f"{record.place}: {config.label!r} is {value}: these may be names of labels, or 0 and 1 for each label; "
            f"give names as texts, {json.dumps(names)}, or true and false for each label"
        )
    if not named and len(value) != len(labels):
        raise UsageError(
            f"{record.place}: {config.label!r} has {counted(len(value), 'values')} of 0 and 1, and "
            f"{Setting('task.labels')} names {counted(len(labels), 'labels')}; name one for each value"
        )
    return names if named else [name for name, one in zip(labels, value, strict=True) if one]


def _holds(record: Record, name: str) -> bool:
    """Whether the record has 1 in a column of 0 and 1. Raises UsageError for other values."""
    value = record.value(name)
    flag = str(value).strip().lower()
    if flag not in ("0", "1", "0.0", "1.0", "false", "true"):
        raise UsageError(f"{record.place}: {name!r} is {_described(value)}; a column of a label holds 0 or 1")
    return flag in ("1", "1.0", "true")


def _text(record: Record, name: str, remedy: str | None) -> str:
    value = record.value(name, remedy)
    if not isinstance(value, str | None):
        raise UsageError(f"{record.place}: {name!r} is {json_kind(value)} and not a text")
    if value and len(value) > limits.TEXT_CHARACTERS:
        raise UsageError(
            f"{record.place}: {name!r} has {len(value):,} characters and a text of a row has at most "
            f"{limits.TEXT_CHARACTERS:,}; cut it or leave the row out"
        )
    return value or ""


def _described(value: object) -> str:
    return f"{value!r:.60}" if isinstance(value, str | int | float) else json_kind(value)


class Labels:
    """The names of labels, in the order of the model's outputs."""

    def __init__(self, names: Sequence[str]):
        """Raises UsageError if there are fewer than two names, or if two are equal."""
        if len(set(names)) < max(len(names), 2):
            there = listed(names) if names else "none"
            raise UsageError(f"there are no two different labels to tell apart, only {there}; give more rows")
        self.names = tuple(names)
        self._numbers = {name: number for number, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)

    def number(self, name: str, place: str) -> int:
        """The number of the label `name`. Raises UsageError, with the `place`, for an unknown one."""
        if name not in self._numbers:
            flag = f"{Setting('task.labels')}"
            if len(self) < _MOST_TYPED and not any(each.startswith("-") for each in (*self.names, name)):
                flag = f"{flag} {shlex.join((*self.names, name))}"
            raise UsageError(
                f"{place}: the label {quoted(name)} is none of the {len(self)} that are known, "
                f"{listed(self.names)}; correct it, or name all labels (those of the training rows are taken) by {flag}"
            )
        return self._numbers[name]


def sorted_labels(names: Iterable[str]) -> tuple[str, ...]:
    """The distinct `names`, sorted as text.

    If all are whole numbers of at most MOST_DIGITS digits, they are sorted by value, and equal values as text.
    """
    different = set(names)
    numbers = all(len(name) <= MOST_DIGITS and name.removeprefix("-").isdecimal() for name in different)
    return tuple(sorted(different, key=(lambda name: (int(name), name)) if numbers else None))
