"""The classes of a task in results.json, the worst first: the figures of each, and which is taken for which."""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from bert_jax.system.errors import quoted
from bert_jax.system.files import as_json

_MOST_BYTES = 3_000_000
"""Limit on the text of all figures, and on that of the confusion: readers of results.json refuse 16 MB."""
SHOWN, _NAMED = 30, 5
"""Most classes in a table, and in a sentence."""
HEADINGS = ("class", ">rows", ">predicted", ">precision", ">recall", ">F1", "taken for")
Confusion = dict[str, dict[str, int]]
"""For each true class how often each class is predicted, without the pairs that don't occur."""


def class_results(
    names: Sequence[str], golds: Counter[str], predicted: Counter[str], right: Counter[str]
) -> dict[str, Any]:
    """`classes`: the figures of each of `names`; `unlearned`: those never predicted or never right, in words, or "".

    The counters say how often each class is right, is predicted, and both. Ratios of 0 to 0 are 0.
    """
    figures: list[dict[str, Any]] = [
        {
            "label": name,
            "rows": golds[name],
            "predicted": predicted[name],
            "precision": right[name] / max(predicted[name], 1),
            "recall": right[name] / max(golds[name], 1),
            "f1": 2 * right[name] / max(golds[name] + predicted[name], 1),
        }
        for name in names
    ]
    figures.sort(key=lambda each: (not each["rows"], each["f1"], -each["rows"]))
    unlearned = _unlearned([each for each in figures if each["rows"]])
    return {"classes": _fitting(figures), "unlearned": "; ".join(unlearned)}


def _unlearned(figures: Sequence[dict[str, Any]]) -> Iterator[str]:
    never = [each for each in figures if not each["predicted"]]
    wrong = [each for each in figures if each["predicted"] and not each["recall"]]
    for what, some in (("never predicted", never), ("predicted but never right", wrong)):
        named = [f"{quoted(each['label'])} ({each['rows']:,})" for each in some[:_NAMED]] + ["..."]
        if some:
            listed = ", ".join(named[: len(some)])
            yield f"{what}: {len(some):,} of {len(figures):,} classes, by rows {listed}"


def confusion_of(golds: Sequence[str], predicted: Sequence[str]) -> Confusion:
    """The class with the most errors comes first, and in it the commonest prediction."""
    rows: Confusion = {}
    for (true, guess), count in Counter(zip(golds, predicted, strict=True)).most_common():
        rows.setdefault(true, {})[guess] = count
    return dict(_fitting(sorted(rows.items(), key=_errors, reverse=True)))


def _errors(row: tuple[str, dict[str, int]]) -> int:
    return sum(row[1].values()) - row[1].get(row[0], 0)


def _fitting(items: Sequence[Any]) -> list[Any]:
    """The first items whose JSON has together at most _MOST_BYTES."""
    sizes = itertools.accumulate(len(as_json([item]).encode()) for item in items)
    return [item for item, size in zip(items, sizes, strict=True) if size <= _MOST_BYTES]


def read_confusion(results: dict[str, Any]) -> Confusion:
    """The confusion of results.json, or of the table of all pairs that earlier releases wrote; {} if it has none."""
    try:
        found = results["confusion"]
        if isinstance(found.get("counts"), list):
            labels, lines = found["labels"], found["counts"]
            found = {true: dict(zip(labels, line, strict=True)) for true, line in zip(labels, lines, strict=True)}
        rows = {str(true): {str(guess): int(n) for guess, n in row.items() if n} for true, row in found.items()}
        return dict(sorted(rows.items(), key=_errors, reverse=True))
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        return {}


def class_table(results: dict[str, Any]) -> tuple[str, list[list[str]]]:
    """A title, and a row for each of the worst classes under HEADINGS, of which ">" aligns numbers; no row if there are
    no classes."""
    confusion, rows, title = read_confusion(results), [], "Classes, the worst first"
    try:
        for each in itertools.islice(results["classes"], SHOWN):
            wrong = [one for one in confusion.get(each["label"], {}).items() if one[0] != each["label"]]
            counts = (f"{each[name]:,}" for name in ("rows", "predicted"))
            shares = (f"{each[name]:.4f}" for name in ("precision", "recall", "f1"))
            rows.append([str(each["label"]), *counts, *shares, ", ".join(f"{name} {n:,}" for name, n in wrong[:2])])
        more = len(results["classes"]) - len(rows)
    except (KeyError, TypeError, ValueError):  # another program's
        return "", []
    return title + f" ({more:,} more in results.json)" * (more > 0), rows
