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

COLUMNS = ("sentence_good", "sentence_bad")
"""BLiMP's columns of the two sentences."""
GROUPS = ("field", "linguistics_term")
"""BLiMP's columns of groups."""
LEFT_OUT = "pairs left out"
"""How the names of such repairs begin."""


class MinimalPair(NamedTuple):
    """An acceptable sentence and one that isn't."""

    file: str
    """The name of its file without suffixes."""
    good: str
    bad: str
    groups: dict[str, str]
    """The groups that it belongs to, by column."""


class JudgedPair(NamedTuple):
    """A minimal pair with the scores of its sentences."""

    pair: MinimalPair
    good: float
    bad: float

    @property
    def outcome(self) -> float:
        """1 if the acceptable sentence has the higher score, 0.5 if both have the same, otherwise 0."""
        return (self.good > self.bad) + (self.good == self.bad) / 2


def pair_files(patterns: Sequence[str]) -> dict[str, Place]:
    """The files that paths, folders and patterns name, by their names without suffixes.

    Of a folder these are the files of rows directly in it. Raises UsageError if one names no file, and if two files
    have one name.
    """
    named: dict[str, Place] = {}
    for pattern in patterns:
        is_folder = place_of(pattern).is_dir()
        files = [*matching_files(f"{pattern}/*" if is_folder else pattern)]
        files = [file for file in files if has_columns(str(file))] if is_folder else files
        if not files:
            expected = "no .jsonl, .csv or .tsv file is in the folder" if is_folder else "no file matches"
            raise UsageError(f"{expected} {pattern!r}; give files of pairs, such as pairs/*.jsonl.gz")
        for file in files:
            name = (file.with_suffix("") if file.suffix in SUFFIXES else file).stem
            if named.setdefault(name, file) != file:
                raise UsageError(f"{named[name]} and {file} have one name, {name!r}, in the results; rename one")
    return named


def read_pairs(
    files: dict[str, Place], columns: tuple[str, str], groups: tuple[str, ...] | None, repairs: Counter[str]
) -> Iterator[MinimalPair]:
    """Yields the pairs of `files`. `groups`: the columns of groups; None: those of GROUPS that a row has.

    Pairs with an empty sentence, or of two equal ones, are left out and counted in `repairs`. Raises UsageError with
    file and line for a row without these columns, or with something else than a text in them.
    """
    for name, path in files.items():
        for record in task_records(str(path), repairs):
            good, bad = (_text(record, column, "columns") for column in columns)
            if good == bad or not good.strip() or not bad.strip():
                repairs[f"{LEFT_OUT}: {'equal' if good == bad else 'empty'} sentences"] += 1
                continue
            named = [group for group in GROUPS if record.has(group)] if groups is None else groups
            yield MinimalPair(name, good, bad, {group: _text(record, group, "groups") for group in named})


def _text(record: Record, column: str, setting: str) -> str:
    value = record.value(column, f"name columns that are there by {Setting(setting)}")
    if not isinstance(value, str):
        raise UsageError(f"{record.place}: {column!r} is {json_kind(value)} and not a text; mend the row")
    return value


def judged_pairs(
    pairs: Iterable[MinimalPair],
    stream: Callable[[Iterable[str]], Iterator[ScoredText]],
    normalized: bool,
    repairs: Counter[str],
) -> Iterator[JudgedPair]:
    """Yields pairs with the scores that `stream` gives their sentences; `normalized`: divided by the number of tokens.

    Pairs whose sentences have the same tokens have equal scores. Those with a sentence that has no score are left out
    and counted in `repairs`.
    """
    pairs, scored = tee(pairs)
    texts = stream(text for pair in pairs for text in (pair.good, pair.bad))
    for pair, good, bad in zip(scored, texts, texts, strict=False):
        if good.score is None or bad.score is None:
            repairs[f"{LEFT_OUT}: a sentence without a score"] += 1
            continue
        scores = [each.score / (len(each.ids) if normalized else 1) for each in (good, bad) if each.score is not None]
        # Equal rows of different batches may differ in rounding.
        yield JudgedPair(pair, scores[0], scores[0] if good.ids == bad.ids else scores[1])


class PairAccuracies:
    """Accuracies by file and by group, over judged pairs that are added one by one."""

    def __init__(self) -> None:
        self.pairs, self.ties = 0, 0
        self._outcomes: dict[tuple[str, str], dict[str, list[float]]] = {}
        """Sum and number of outcomes by file, of each group: its column and its value, or two empty texts for all."""

    def add(self, judged: JudgedPair) -> None:
        """Counts a pair."""
        self.pairs += 1
        self.ties += judged.good == judged.bad
        for group in (("", ""), *judged.pair.groups.items()):
            counts = self._outcomes.setdefault(group, {}).setdefault(judged.pair.file, [0.0, 0.0])
            counts[0] += judged.outcome
            counts[1] += 1

    def results(self, files: Iterable[str]) -> Results:
        """The accuracy of each of `files`, and the means over files: of all, and of each group's own pairs.

        Raises UsageError if no pair of a file was counted.
        """
        by_file = {
            group: {name: right / all for name, (right, all) in of.items()} for group, of in self._outcomes.items()
        }
        own = by_file.pop(("", ""), {})
        if lacking := [name for name in files if name not in own]:
            raise UsageError(f"no pair of {listed(lacking)} could be scored; give files with pairs of different texts")
        groups: dict[str, dict[str, float]] = {}
        for (column, value), of_files in sorted(by_file.items()):
            groups.setdefault(column, {})[value] = sum(of_files.values()) / len(of_files)
        accuracy = sum(own.values()) / len(own)
        values = {"task": "minimal pairs", "metric": "accuracy", "score": accuracy, "accuracy": accuracy}
        return Results.model_validate(
            {**values, "files": own, "groups": groups, "pairs": self.pairs, "ties": self.ties}
        )
