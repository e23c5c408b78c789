"""Describes what the rows of a task were taken for: format, columns, labels and texts, with remarks on what is odd."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.character_spans import tag_scheme
from bert_jax.finetuning.columns import PRINTED_LIST, label_text, sorted_labels
from bert_jax.finetuning.dataset import TASK_CLASSES, RowTexts, settings_for, texts_of
from bert_jax.finetuning.judged_texts import is_judged
from bert_jax.finetuning.task import Task
from bert_jax.finetuning.usable_rows import used_columns
from bert_jax.records.formats import format_of
from bert_jax.records.record import Record
from bert_jax.system.errors import Setting, UsageError, first_of, listed, quoted
from bert_jax.system.reading import Fact, Reading

_NUMBER = re.compile(r"\s*[-+]?\d[\d.,]*(?:[eE][-+]?\d+)?\s*")
_SHOWN = 12
"""Most labels that are listed with their counts."""
_SETS = {False: "TFDS", True: "judged texts as BEIR has them"}
_LOOKED_AT = 1_000
"""First rows of a set that are searched for columns."""
_RIVAL = re.compile(r"neg|label|scor|simil|relat|rating|gold|match|dupl|class|target", re.IGNORECASE)
"""Names of columns that tell how two texts are related."""
_REJECTED = re.compile(
    r".*: (?:reject(?:ed)?|ignored?|discard(?:ed)?|skip(?:ped)?|cancell?ed)|"
    r"(?:is_)?(?:accepted|approved|valid): (?:0|false)",
    re.IGNORECASE,
)
"""Matches `column: value` if the value seems to say that the row was rejected."""
_LONGEST_VERDICT = 20
"""Characters of a value that are compared with verdicts."""
_SAME = {"y": "yes", "true": "yes", "1": "yes", "n": "no", "false": "no", "0": "no"}
_MISSING = ("NaN", "nan", "None", "null", "NULL", "<NA>")
"""What pandas, Python and databases write for a missing value."""
_ODD_TEXTS = (
    (_NUMBER, 0.5, "are numbers: name the texts by --task.texts"),
    (re.compile(r'".*"', re.DOTALL), 0.5, "are in quotes: take these off, if they aren't text"),
    (re.compile(r"\s*(?:nan|none|null|n/a|#n/a|<na>)\s*", re.IGNORECASE), 0, "are nan, none or null: leave them out"),
    (re.compile(r".*(?:Ã[\x80-\xbf]|â€).*", re.DOTALL), 0.01, "hold Ã or â€, UTF-8 read as Latin-1: mend the file"),
    (re.compile(r".*(?:<br|</\w|&(?:amp|lt|gt|nbsp|quot);).*", re.DOTALL), 0.05, "hold HTML: take it out"),
    (PRINTED_LIST, 0.5, "are lists written as text: join them, or give JSON lines"),
    (re.compile(r".*\S\\n\S.*", re.DOTALL), 0.05, "hold a backslash and n for a line break: put line breaks there"),
    (re.compile(r"\s*(?:https?://\S+|\S+\.[A-Za-z]\w{2,3})\s*"), 0.5, "are names of files or pages: give texts"),
)
"""Kinds of unusual texts: a pattern, the share of texts above which it is reported, and a description with a remedy."""


class RowSet(NamedTuple):
    """Rows of one source."""

    source: str
    records: Sequence[Record]


def reading_of_rows(task: Task, sets: dict[str, RowSet]) -> Reading:
    """What the sets of rows, "train" and "dev", were taken for.

    Raises UsageError if training rows have an unused column that tells how the texts of a pair are related.
    """
    config = task.config
    used, unused = _columns(config, [record for rows in sets.values() for record in rows.records[:_LOOKED_AT]])
    if config.makes_vectors and "train" in sets:
        for rows in sets.values():
            _check_unused(config, rows, unused)
    texts = {name: [texts_of(config, record) for record in rows.records] for name, rows in sets.items()}
    places = [rows.source for rows in sets.values()]
    formats = {settings_for(each, config).format or format_of(each) or _SETS[is_judged(each)] for each in places}
    shown_by = "prefix" if formats & {*_SETS.values()} else "suffix"
    counts = {name: f"{name} {len(rows.records):,}" for name, rows in sets.items()}
    divided = config.dev_share and sets.keys() > {"dev"}
    facts = [
        Fact(name="format", value=", ".join(sorted(formats)), known_by="--task.format" if config.format else shown_by),
        Fact(name="rows", value=", ".join(counts.values()), known_by=f"--task.dev {config.dev}" if divided else ""),
        *_column_facts(used, unused, next(iter(texts.values()))[0]),
    ]
    remarks = [remark for name, rows in sets.items() for remark in _odd_texts(config, name, rows, texts[name])]
    remarks += [remark for name, rows in sets.items() for remark in _odd_verdicts(name, rows.records, unused)]
    if config.task_kind.words:
        remarks += [remark for name, rows in sets.items() for remark in _odd_entities(task, name, rows.records)]
    remarks += [remark for name, rows in sets.items() for remark in _contradictions(config, name, rows, texts[name])]
    golds = {name: [*chain.from_iterable(map(task.answers, rows.records))] for name, rows in sets.items()}
    if config.task_kind.labelled or config.choices:
        kinds = {name: Counter(map(str, of_set)) for name, of_set in golds.items()}
        facts += [Fact(name=f"labels, {name}", value=_counts(config, of_set)) for name, of_set in kinds.items()]
        remarks += _odd_labels(config, kinds, {name: len(rows.records) for name, rows in sets.items()})
    elif numbers := {name: np.array(of_set, float) for name, of_set in golds.items() if of_set}:
        ranges = {name: f"{of_set.min():g} to {of_set.max():g}" for name, of_set in numbers.items()}
        facts.append(Fact(name="numbers", value=", ".join(f"{name} {range}" for name, range in ranges.items())))
        remarks += _odd_numbers(numbers)
    if {"train", "dev"} <= sets.keys():
        learned, dev = set(texts["train"]), set(texts["dev"])
        again, back = sum(one in learned for one in texts["dev"]), sum(one in dev for one in texts["train"])
        share = again / len(texts["dev"])
        facts.append(Fact(name="in both sets", value=f"{share:.1%} of the dev rows, {back:,} training rows"))
        if share > 0.05:
            remarks.append(f"{share:.1%} of the dev rows are training rows, and scores too high: leave them out of one")
    sources = dict.fromkeys(rows.source for rows in sets.values())
    return Reading(subject=f"rows {' '.join(sources)}", facts=facts, remarks=remarks)


def reading_of_input(config: TaskConfig, source: str, file_format: str, first: Record) -> Reading:
    """What rows without labels were taken for, judged by the first row."""
    columns = _column_facts(*_columns(config, [first]), texts_of(config, first))
    return Reading(subject=f"rows {source}", facts=[Fact(name="format", value=file_format), *columns])


def _column_facts(used: Sequence[str], unused: Sequence[str], texts: RowTexts) -> list[Fact]:
    beginning = " | ".join(" ".join(each) if isinstance(each, tuple) else each for each in texts)
    return [
        Fact(name="columns used", value=listed(used), known_by="--task.texts, --task.label"),
        Fact(name="columns not used", value=listed(unused) if unused else "none"),
        Fact(name="first text", value=quoted(beginning)),
    ]


def _columns(config: TaskConfig, records: Sequence[Record]) -> tuple[list[str], list[str]]:
    """The columns of `records` that the task uses, and the columns that it doesn't use."""
    named = used_columns(TASK_CLASSES[config.kind], config, records[0])
    there = dict.fromkeys(name for record in records for name in (record.columns or record.values))
    used = [name for name in there if name in named or any(each.startswith(f"{name}.") for each in named)]
    return used, [name for name in there if name not in used]


def _check_unused(config: TaskConfig, rows: RowSet, unused: Sequence[str]) -> None:
    there = {name for record in rows.records[:_LOOKED_AT] for name in record.columns or record.values}
    for name in [one for one in unused if one in there]:
        flags = {str(record.values.get(name)) for record in rows.records[:_LOOKED_AT]} == {"0", "1"}
        if name not in config.ignore and (flags or _RIVAL.search(name)):
            raise UsageError(
                f"{rows.source} has a column {quoted(name)} that isn't used, and each pair would be learned as one "
                f"that {'has its score' if config.scored else 'matches'}; name it by {Setting('task.negatives')} "
                f"or, a score, by {Setting('task.label')}, or leave it out by {Setting('task.ignore')} {name}"
            )


def _odd_texts(config: TaskConfig, name: str, rows: RowSet, texts: Sequence[RowTexts]) -> Iterator[str]:
    for column, of_column in zip((*config.texts, *config.choices), zip(*texts, strict=True), strict=True):
        where, in_words = f"{name} {column!r}", isinstance(of_column[0], tuple)
        if in_words:
            mean = sum(map(len, of_column)) / len(of_column)
            if mean > 200 or mean < 1.5:
                yield f"{where}: sentences have {mean:,.1f} words on average: put a blank line after each only"
        strings = [*chain.from_iterable(of_column)] if in_words else [str(one) for one in of_column]
        if len(set(strings)) == 1 < len(strings):
            yield f"{where} is {quoted(strings[0])} everywhere: name another column by --task.texts"
        for pattern, most, what in _ODD_TEXTS:
            count = sum(pattern.fullmatch(one.strip()) is not None for one in strings)
            if count > most * len(strings) and (most or not in_words):
                yield f"{where}: {count:,} of {len(strings):,} texts {what}"
    if len(texts) >= 20 and 2 * len(set(texts)) < len(texts):
        yield f"{name}: only {len(set(texts)):,} of {len(texts):,} rows differ in their texts: take repeated ones out"
    blanks = [value for one in rows.records if isinstance(value := one.values.get(config.label), str)]
    if changed := sum(value != value.strip() for value in blanks):
        yield f"{name}: {changed:,} labels have blanks around them, which are taken off"
    header = config.label.casefold()
    heads = [one.place for one in rows.records if str(one.values.get(config.label)).casefold() == header]
    if heads:
        yield f"{name}: {heads[0].rpartition(', ')[2]} has the column's name {config.label!r} as its label: take it out"
    equal = sum(len(each) == 2 and each[0] == each[1] for each in texts)
    if equal > (0.01 if config.makes_vectors and not config.scored else 0.2) * len(texts):
        yield f"{name}: {equal:,} of {len(texts):,} pairs are two equal texts: take them out"


def _contradictions(config: TaskConfig, name: str, rows: RowSet, texts: Sequence[RowTexts]) -> Iterator[str]:
    """Yields a remark if many equal texts have different classes."""
    if config.kind == "class":
        pairs = Counter(zip(texts, (str(one.value(config.label)) for one in rows.records), strict=True))
        several = {one for one, count in Counter(one for one, _ in pairs).items() if count > 1}
        if (count := sum(one in several for one in texts)) > 0.05 * len(texts):
            yield f"{name}: {count:,} of {len(texts):,} rows have texts that have another label too: mend them"


def _counts(config: TaskConfig, labels: Counter[str]) -> str:
    shown = first_of([f"{label} {labels[label]:,}" for label in sorted_labels(labels)], _SHOWN)
    scheme = tag_scheme(labels) if config.task_kind.words else None
    return shown + (f"; entities as {scheme}" if scheme else "")


def _odd_verdicts(name: str, records: Sequence[Record], unused: Sequence[str]) -> Iterator[str]:
    for column in unused:
        values_of_rows = (record.values.get(column) for record in records)
        values = Counter(label_text(each)[:_LONGEST_VERDICT] for each in values_of_rows if isinstance(each, str | int))
        verdicts = {value: count for value, count in values.items() if _REJECTED.fullmatch(f"{column}: {value}")}
        if verdicts:
            of_column = f"{sum(verdicts.values()):,} rows have {listed(verdicts)} in {column!r}"
            yield f"{name}: {of_column}: leave out what doesn't hold"


def _odd_labels(config: TaskConfig, counts: dict[str, Counter[str]], rows: dict[str, int]) -> Iterator[str]:
    every, total, words = sum(counts.values(), Counter[str]()), sum(rows.values()), config.task_kind.words
    by_spelling: dict[str, list[str]] = {}
    for label in sorted_labels(every):
        by_spelling.setdefault(_folded(label, words), []).append(label)
    for group in by_spelling.values():
        if len(group) > 1:
            named = ", ".join(f"{quoted(label)} ({every[label]:,})" for label in group)
            yield f"the labels {named} differ in spelling alone: spell labels of the same meaning in one way"
    numbers = [label for label in every if _NUMBER.fullmatch(label)]
    if 2 * len(numbers) > len(every) and (len(numbers) > 20 or any("." in label for label in numbers)):
        yield f"{len(numbers):,} of {len(every):,} labels are numbers: for measurements set --task.kind number"
    elif not words and len(every) > max(10, total / 10):
        yield f"{len(every):,} labels for {total:,} rows: give more rows of each, or name another --task.label"
    if 0 < every["-1"] < total / (2 * len(every)):
        yield f"{every['-1']:,} rows have the label '-1': if they have none, name the others by --task.labels"
    if missing := {} if words else {label: every[label] for label in _MISSING if every[label]}:
        named = ", ".join(f"{quoted(label)} ({count:,})" for label, count in missing.items())
        yield f"rows have the label {named}, which programs write for a missing one: leave rows without a label out"
    if config.kind == "labels" and (joined := [one for one in every if re.search(r"\w\s*[;|,/]\s*\w", one)]):
        yield f"{listed(joined[:3])} may be several labels: name what separates them by --task.label-separator"
    for name, of_set in counts.items():
        if config.choices and not of_set["0"] and (1 - 1 / len(config.choices)) ** rows[name] < 0.01:  # not by chance
            yield f"no {name} row has the choice 0, the first: subtract 1 from your numbers, if they begin with 1"
        label, most = of_set.most_common(1)[0] if of_set else ("", 0)
        if not words and len(every) > 1 and most > max(0.95 * rows[name], 19):
            yield f"{name}: {most:,} of {rows[name]:,} rows are {quoted(label)}: look at macro F1, not accuracy"
        if lacks := [one for one in every if one not in of_set and every[one] * rows[name] >= 3 * total]:
            yield f"no {name} row has {listed(lacks)}: draw both sets from the same rows at random"
    # IOB1 begins an entity with B- only next to another one of its kind, which a small set may lack.
    frequent = {label for label in every if every[label] * min(rows.values()) >= 3 * total}
    if words and len(schemes := {tag_scheme(frequent & of_set.keys()) for of_set in counts.values()}) > 1:
        yield f"the sets have tags of different schemes, {listed(map(str, schemes))}: convert one of them"


def _odd_entities(task: Task, name: str, records: Sequence[Record]) -> Iterator[str]:
    begun: Counter[str] = Counter()
    for record in records:
        before, tags = "O", task.names(task.config, record)
        words = record.values.get(task.config.texts[0])
        for place, tag in enumerate(tags):
            if tag[1:2] == "-" and before[1:] != tag[1:]:
                begun[tag[0]] += 1
                begun["odd"] += isinstance(words, list) and words[place : place + 1] in ([","], ["."], ["。"], ["，"])
            before = tag
    if 20 * min(begun["B"], begun["I"]) > begun["B"] + begun["I"]:
        yield f"{name}: {begun['B']:,} entities begin with B- and {begun['I']:,} with I-: mend the tags"
    if 10 * begun["odd"] > begun.total() - begun["odd"]:
        yield f"{name}: {begun['odd']:,} entities begin at a comma or stop: see whether tags and words are shifted"


def _folded(label: str, exact: bool) -> str:
    """`label` without common variations of spelling. With `exact`, for tags, only those of case, width, spaces and
    invisible characters."""
    visible = "".join(letter for letter in label if unicodedata.category(letter) != "Cf")
    folded = " ".join(unicodedata.normalize("NFKC", visible).casefold().split()).replace("_", "-")
    if exact:
        return folded
    folded = re.sub(r"(\d)\.0+$", r"\1", folded.strip(".,;:!?'\"") or folded)
    return _SAME.get(folded, folded)


def _odd_numbers(numbers: dict[str, np.ndarray]) -> Iterator[str]:
    for name, values in numbers.items():
        if values.size > 1 and values.min() == values.max():
            yield f"{name}: every number is {values[0]:g}: name another column by --task.label"
        elif far := int(np.sum(np.abs(values - values.mean()) > 8 * values.std())):
            yield f"{name}: {far:,} numbers are far from all others, {values.min():g} to {values.max():g}: correct them"
    spreads = [float(values.std()) for values in numbers.values()]
    if len(spreads) == 2 and min(spreads) * 3 < max(spreads):
        yield f"the numbers of the two sets are spread by {spreads[0]:.3g} and {spreads[1]:.3g}: use one scale"
