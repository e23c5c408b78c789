"""Minimal pairs: of two sentences that differ little, a model should score the acceptable one higher (BLiMP,
Warstadt et al. 2020, arXiv:1912.00582)."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import tee
from typing import NamedTuple

from bert_jax.finetuning.columns import text
from bert_jax.inference.scoring import ScoredText
from bert_jax.records.compressed_files import SUFFIXES
from bert_jax.records.formats import has_columns
from bert_jax.records.sources import task_records
from bert_jax.run.results import Results
from bert_jax.system.bucket import Place, place_of
from bert_jax.system.errors import UsageError, listed
from bert_jax.system.files import matching_files

GROUPS = ("field", "linguistics_term")
"""BLiMP's columns of groups."""
_ALL = ("", "")
"""The group of all pairs."""
_LEFT_OUT = "pairs left out, as a sentence has no score"
_REMEDY = "name columns that are there by --columns, and those of groups by --groups"


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
            lacks = "has no file of pairs" if is_folder else "names no file: there is nothing at that path"
            raise UsageError(f"{pattern!r} {lacks}; give files of pairs, such as pairs/*.jsonl.gz")
        for file in files:
            name = (file.with_suffix("") if file.suffix in SUFFIXES else file).stem
            if named.setdefault(name, file) != file:
                raise UsageError(f"{named[name]} and {file} have one name, {name!r}, in the results; rename one")
    return named


def read_pairs(
    files: dict[str, Place], columns: Sequence[str], groups: Sequence[str] | None, repairs: Counter[str]
) -> Iterator[MinimalPair]:
    """Yields the pairs of `files`. `groups`: the columns of groups; None: those of GROUPS that a row has.

    `columns`: those of the acceptable and of the other sentence. `repairs` counts what is mended in the files. Raises
    UsageError with file and line for a row that lacks a column or has something else than a text in it.
    """
    for name, path in files.items():
        for record in task_records(str(path), repairs):
            good, bad = (text(record, column, _REMEDY) for column in columns)
            named = [group for group in GROUPS if record.has(group)] if groups is None else groups
            yield MinimalPair(name, good, bad, {group: text(record, group, _REMEDY) for group in named})


def pair_accuracies(
    files: Iterable[str],
    pairs: Iterable[MinimalPair],
    stream: Callable[[Iterable[str]], Iterator[ScoredText]],
    repairs: Counter[str],
    normalized: bool = False,
) -> Results:
    """How often `stream` gives the acceptable sentence of a pair the higher score; equal scores count half.

    The accuracy is the mean over `files`, and that of a group the mean over the files of the group's pairs.
    `normalized`: scores are divided by the number of tokens. Sentences of the same tokens have equal scores. `repairs`
    counts pairs of equal sentences, and pairs that are left out because a sentence has no score. Raises UsageError if a
    file has no other pair.
    """
    pairs, read = tee(pairs)
    texts = stream(sentence for pair in pairs for sentence in (pair.good, pair.bad))
    outcomes: dict[tuple[str, str], dict[str, list[float]]] = {_ALL: {}}  # 1, 0 or 0.5 of each pair, by group and file
    for pair, good, bad in zip(read, texts, texts, strict=True):
        if good.score is None or bad.score is None:
            repairs[_LEFT_OUT] += 1
            continue
        repairs["pairs of equal sentences, which are ties"] += good.text == bad.text
        better = good.score / len(good.ids) - bad.score / len(bad.ids) if normalized else good.score - bad.score
        # The same tokens in different batches may have scores that differ by rounding.
        outcome = 0.5 if better == 0 or good.ids == bad.ids else float(better > 0)
        for group in (_ALL, *pair.groups.items()):
            outcomes.setdefault(group, {}).setdefault(pair.file, []).append(outcome)
    all_pairs = [outcome for of_file in outcomes[_ALL].values() for outcome in of_file]
    shares = {group: {name: sum(each) / len(each) for name, each in of.items()} for group, of in outcomes.items()}
    own = shares.pop(_ALL)
    if lacking := [name for name in files if name not in own]:
        raise UsageError(f"no pair of {listed(lacking)} could be scored; give files with pairs of texts")
    groups: dict[str, dict[str, float]] = {}
    for (column, value), of_files in sorted(shares.items()):
        groups.setdefault(column, {})[value] = sum(of_files.values()) / len(of_files)
    accuracy = sum(own.values()) / len(own)
    results = Results(task="minimal pairs", metric="accuracy", score=accuracy, files=own, groups=groups)
    counts = {"pairs": len(all_pairs), "ties": all_pairs.count(0.5), "left_out": repairs[_LEFT_OUT]}
    return results.updated({"accuracy": accuracy, **counts})
