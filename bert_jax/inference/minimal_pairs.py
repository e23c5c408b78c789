"""Minimal pairs: of two sentences that differ little, a model should score the acceptable one higher (BLiMP,
Warstadt et al. 2020, arXiv:1912.00582)."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import tee
from typing import NamedTuple

from bert_jax.inference.scoring import ScoredText
from bert_jax.records.compressed_files import SUFFIXES
from bert_jax.records.formats import has_columns
from bert_jax.records.record import Record
from bert_jax.records.sources import task_records
from bert_jax.run.results import Results
from bert_jax.system.bucket import Place, place_of
from bert_jax.system.errors import Setting, UsageError, json_kind, listed
from bert_jax.system.files import matching_files

GROUPS = ("field", "linguistics_term")
"""BLiMP's columns of groups."""
_LEFT_OUT = "pairs left out: "


class MinimalPair(NamedTuple):
    """An acceptable sentence and one that isn't."""

    file: str
    """The name of its file without suffixes."""
    good: str
    bad: str
    groups: dict[str, str]
    """The groups that it belongs to, by column."""


def pair_files(patterns: Sequence[str]) -> dict[str, Place]:
    """The files that paths, folders and patterns name, by their names without suffixes; of a folder, its files of rows.

    Raises UsageError if one names no file, and if two files have one name.
    """
    named: dict[str, Place] = {}
    for pattern in patterns:
        is_folder = place_of(pattern).is_dir()
        files = [*matching_files(f"{pattern}/*" if is_folder else pattern)]
        files = [file for file in files if not is_folder or has_columns(str(file))]
        if not files:
            raise UsageError(f"{pattern!r} has no file of pairs; give some, such as pairs/*.jsonl.gz")
        for file in files:
            name = (file.with_suffix("") if file.suffix in SUFFIXES else file).stem
            if named.setdefault(name, file) != file:
                raise UsageError(f"{named[name]} and {file} have one name, {name!r}, in the results; rename one")
    return named


def read_pairs(
    files: dict[str, Place], columns: Sequence[str], groups: Sequence[str] | None, repairs: Counter[str]
) -> Iterator[MinimalPair]:
    """Yields the pairs of `files`. `groups`: the columns of groups; None: those of GROUPS that a row has.

    Pairs with an empty sentence are left out. `repairs` counts them, and pairs of equal sentences. Raises UsageError
    with file and line for a row without these columns, or with something else than a text in them.
    """
    if len(set(columns)) == 1:
        raise UsageError(f"{Setting('columns', ' '.join(columns))} is one column twice; name two")
    for name, path in files.items():
        for record in task_records(str(path), repairs):
            good, bad = (_text(record, column, "columns") for column in columns)
            if not good.strip() or not bad.strip():
                repairs[f"{_LEFT_OUT}an empty sentence"] += 1
                continue
            if good == bad:
                repairs["pairs of equal sentences, which are ties"] += 1
            named = [group for group in GROUPS if record.has(group)] if groups is None else groups
            yield MinimalPair(name, good, bad, {group: _text(record, group, "groups") for group in named})


def _text(record: Record, column: str, setting: str) -> str:
    value = record.value(column, f"name columns that are there by {Setting(setting)}")
    if not isinstance(value, str):
        raise UsageError(f"{record.place}: {column!r} is {json_kind(value)} and not a text; mend the row")
    return value


def pair_accuracies(
    files: Iterable[str],
    pairs: Iterable[MinimalPair],
    stream: Callable[[Iterable[str]], Iterator[ScoredText]],
    repairs: Counter[str],
    normalized: bool = False,
) -> Results:
    """The share of pairs whose acceptable sentence has the higher score by `stream`, where equal scores count half: on
    each of `files`, the mean over files, and the same of each group's pairs.

    `normalized`: scores are divided by the number of tokens. Sentences of the same tokens have equal scores. Pairs of
    which a sentence has no score are left out and counted in `repairs`. Raises UsageError if a file has no other pair.
    """
    pairs, read = tee(pairs)
    texts = stream(text for pair in pairs for text in (pair.good, pair.bad))
    outcomes: dict[tuple[str, str], dict[str, list[float]]] = {}  # sum and number by group and file; ("", ""): of all
    ties = 0
    for pair, good, bad in zip(read, texts, texts, strict=True):
        if good.score is None or bad.score is None:
            repairs[f"{_LEFT_OUT}a sentence without a score"] += 1
            continue
        better = good.score / len(good.ids) - bad.score / len(bad.ids) if normalized else good.score - bad.score
        tie = better == 0 or good.ids == bad.ids  # rows of different batches may differ in rounding
        ties += tie
        for group in (("", ""), *pair.groups.items()):
            counts = outcomes.setdefault(group, {}).setdefault(pair.file, [0.0, 0.0])
            counts[0] += 0.5 if tie else better > 0
            counts[1] += 1
    shares = {group: {name: right / all for name, (right, all) in of.items()} for group, of in outcomes.items()}
    own = shares.pop(("", ""), {})
    if lacking := [name for name in files if name not in own]:
        raise UsageError(f"no pair of {listed(lacking)} could be scored; give files with pairs of texts")
    groups: dict[str, dict[str, float]] = {}
    for (column, value), of_files in sorted(shares.items()):
        groups.setdefault(column, {})[value] = sum(of_files.values()) / len(of_files)
    accuracy = sum(own.values()) / len(own)
    counted = {"pairs": int(sum(count for _, count in outcomes[("", "")].values())), "ties": ties}
    counted["left_out"] = sum(count for kind, count in repairs.items() if kind.startswith(_LEFT_OUT))
    results = Results(task="minimal pairs", metric="accuracy", score=accuracy, files=own, groups=groups)
    return results.updated({"accuracy": accuracy, **counted})
