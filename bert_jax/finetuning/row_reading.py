"""What the rows of a task were taken for: format, columns, labels and texts, with a remark where they are odd."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from bert_jax.config.task import COLUMN_IN_BRACES, TaskConfig
from bert_jax.corpora.messages import listed
from bert_jax.corpora.task_record import Record
from bert_jax.finetuning.columns import in_order, number
from bert_jax.finetuning.metrics import OUTSIDE, tag_scheme
from bert_jax.finetuning.task import Task
from bert_jax.finetuning.vectors_task import pair_columns
from bert_jax.rows.task_files import format_of
from bert_jax.system.errors import UsageError, quoted
from bert_jax.system.reading import Fact, Reading

_NUMBER = re.compile(r"\s*[-+]?[\d.,]+\s*")
_SHOWN = 12
"""Most labels that are listed with their counts."""
_LOOKED_AT = 1_000
"""First rows of a set whose columns are looked at."""
_RIVAL = re.compile(r"neg|label|scor|simil|relat|rating|gold|match|dupl|class|target", re.IGNORECASE)
_COUNTER = re.compile(r"id|idx|index|(?:.*[-_. ])?(?:id|idx|no|row|line|year|page)|.*Id|unnamed.*|", re.IGNORECASE)
"""Names of columns that say how two texts are related, and of those that merely number rows."""
_SAME = {"y": "yes", "true": "yes", "1": "yes", "n": "no", "false": "no", "0": "no"}
_ODD_TEXTS = (
    (_NUMBER, 0.5, "are numbers", "name the texts by --task.texts"),
    (
        re.compile(r'".*"', re.DOTALL),
        0.2,
        "begin and end with a quote",
        "if it isn't text, read them by --task.format csv",
    ),
    (re.compile(r"\s*(?:nan|none|null|n/a|#n/a|<na>)\s*", re.IGNORECASE), 0, "are nan, none or null", "leave them out"),
    (re.compile(r".*(?:Ã[\x80-\xbf]|â€)", re.DOTALL), 0.01, "hold Ã or â€, UTF-8 read as Latin-1", "convert the file"),
    (re.compile(r".*(?:<br|</\w|&(?:amp|lt|gt|nbsp|quot);)", re.DOTALL), 0.05, "hold HTML", "take it out"),
    (
        re.compile(r"\s*\[\s*['\"].*\]\s*", re.DOTALL),
        0.5,
        "are lists written as text",
        "join them, or write JSON lines",
    ),
    (re.compile(r"\s*(?:https?://\S+|\S+\.[A-Za-z]\w{2,3})\s*"), 0.5, "are names of files or pages", "give texts"),
)
"""What a text may look like, the share of texts from which on that is odd, what they are in words, and the remedy."""


class RowSet(NamedTuple):
    """Rows of one source."""

    source: str
    records: Sequence[Record]


def reading_of(task: Task, sets: dict[str, RowSet]) -> Reading:
    """What `sets`, by name as in "train", were taken for. Raises UsageError for training rows with a column that says
    how the texts of a pair are related and isn't used."""
    config = task.config
    texts = {name: [tuple(_texts(task, record)) for record in rows.records] for name, rows in sets.items()}
    used, unused = _columns(config, [record for rows in sets.values() for record in rows.records[:_LOOKED_AT]])
    if config.makes_vectors and "train" in sets:
        _check_unused(config, sets["train"], unused)
    formats = {config.format or format_of(rows.source) or "rows of a set" for rows in sets.values()}
    facts = [
        Fact(name="format", value=", ".join(sorted(formats)), known_by="--task.format" if config.format else "suffix"),
        Fact(name="rows", value=", ".join(f"{name} {len(rows.records):,}" for name, rows in sets.items())),
        Fact(name="columns used", value=listed(used), known_by="task.texts and task.label"),
        Fact(name="columns not used", value=listed(unused) if unused else "none"),
        Fact(name="first text", value=quoted(" | ".join(next(chain.from_iterable(texts.values()))))),
    ]
    remarks = [remark for name, rows in sets.items() for remark in _short_rows(name, rows)]
    remarks += [remark for name in sets for remark in _odd_texts(config, name, texts[name])]
    golds = {name: [_gold(task, record) for record in rows.records] for name, rows in sets.items()}
    if config.facts.labelled or config.choices:
        counts = {name: Counter(chain.from_iterable(of_set)) for name, of_set in golds.items()}
        facts += _label_facts(config, counts)
        remarks += _odd_labels(config, counts, {name: len(rows.records) for name, rows in sets.items()})
    else:
        numbers = {name: np.array([*chain.from_iterable(of_set)]) for name, of_set in golds.items()}
        numbers = {name: values for name, values in numbers.items() if values.size}
        facts += [
            Fact(name=f"numbers, {name}", value=f"{values.min():g} to {values.max():g}, mean {values.mean():.3g}")
            for name, values in numbers.items()
        ]
        remarks += _odd_numbers(numbers)
    if {"train", "dev"} <= sets.keys():
        learned, dev = set(texts["train"]), set(texts["dev"])
        again, back = sum(one in learned for one in texts["dev"]), sum(one in dev for one in texts["train"])
        share = again / len(texts["dev"])
        value = f"{again:,} of {len(texts['dev']):,} dev rows ({share:.1%}), {back:,} training rows"
        facts.append(Fact(name="in both sets", value=value))
        if share > 0.05:
            remarks.append(
                f"{share:.1%} of the dev rows have texts of training rows: scores are too high; take them out"
            )
    return Reading(subject=f"rows of {', '.join(rows.source for rows in sets.values())}", facts=facts, remarks=remarks)


def _texts(task: Task, record: Record) -> Iterator[str]:
    config = task.config
    if config.facts.words:
        yield task.shown_text(record)
        return
    for template in (*(pair_columns(config, record) if config.makes_vectors else config.texts), *config.choices):
        yield (
            COLUMN_IN_BRACES.sub(lambda name: str(record.value(name[1])), template)
            if "{" in template
            else str(record.value(template) or "")
        )


def _gold(task: Task, record: Record) -> list[Any]:
    """The labels of a record, or its number; [] where it has neither."""
    config = task.config
    if config.facts.labelled:
        return task.names(config, record)
    if config.choices:
        return [str(task.gold(record))]
    return [number(record, config.label)] if config.scored or config.kind == "number" else []


def _columns(config: TaskConfig, records: Sequence[Record]) -> tuple[list[str], list[str]]:
    """The columns of `records` that the task uses, and the others."""
    pair = pair_columns(config, records[0]) if config.makes_vectors else config.texts
    templates = (*pair, *config.choices, *config.marks)
    named = {one for each in templates for one in COLUMN_IN_BRACES.findall(each) or [each]} | {config.label}
    named |= set(config.labels or ()) if config.kind == "labels" else set()
    named |= {config.negatives} if config.makes_vectors and not config.scored else set()
    named |= {"id", "is_impossible"} if config.kind == "span" else set()
    there = dict.fromkeys(name for record in records for name in (record.columns or record.values))
    used = [name for name in there if name in named or any(each.startswith(f"{name}.") for each in named)]
    return used, [name for name in there if name not in used]


def _check_unused(config: TaskConfig, rows: RowSet, unused: Sequence[str]) -> None:
    for name in set(unused) - set(config.ignore):
        values = [str(record.values.get(name, "")) for record in rows.records[:_LOOKED_AT]]
        numbers = all(map(_NUMBER.fullmatch, values)) and not _COUNTER.fullmatch(name)
        if _RIVAL.search(name) or numbers:
            raise UsageError(
                f"{rows.source} has a column {quoted(name)} (first {quoted(values[0])}) that isn't used, and each pair "
                f"would be learned as one that {'has its score' if config.scored else 'matches'}; name it by "
                "--task.negatives or --task.label (a score), or leave it out by --task.ignore"
            )


def _short_rows(name: str, rows: RowSet) -> Iterator[str]:
    if short := [record for record in rows.records if len(record.values) < len(record.columns)]:
        place = short[0].place.rpartition(", ")[2]
        yield (
            f"{len(short):,} of {len(rows.records):,} {name} rows have fewer fields than there are columns ({place} is "
            "the first): mend them"
        )


def _odd_texts(config: TaskConfig, name: str, rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    for column, texts in zip((*config.texts, *config.choices), zip(*rows, strict=True), strict=True):
        where = f"{name} {column!r}"
        if config.facts.words:
            words = [text.split() for text in texts]
            yield from _odd_words(where, words)
            texts = tuple(chain.from_iterable(words))
        if len(set(texts)) == 1 < len(rows):
            yield f"{where} is {quoted(texts[0])} in every row: name another column by --task.texts"
        elif not config.facts.words and len(rows) >= 20 and 2 * len(set(rows)) < len(rows):
            yield f"{name}: only {len(set(rows)):,} of {len(rows):,} rows have different texts: take the repeated out"
        for pattern, most, what, remedy in _ODD_TEXTS:
            found = sum(
                pattern.fullmatch(text) is not None or (pattern.pattern[:2] == ".*" and pattern.match(text) is not None)
                for text in texts
            )
            if found > most * len(texts):
                yield f"{where}: {found:,} of {len(texts):,} texts {what}: {remedy}"
    equal = sum(len(texts) == 2 and texts[0] == texts[1] for texts in rows)
    if config.makes_vectors and not config.scored and equal > 0.01 * len(rows) or equal > 0.2 * len(rows):
        yield f"{name}: {equal:,} of {len(rows):,} pairs have two equal texts, which teach nothing: take them out"


def _odd_words(where: str, sentences: Sequence[list[str]]) -> Iterator[str]:
    mean = sum(map(len, sentences)) / len(sentences)
    if mean > 200 or mean < 1.5:
        yield f"{where}: {mean:,.1f} words in a sentence on average: put a blank line after each sentence, and only there"


def _label_facts(config: TaskConfig, counts: dict[str, Counter[str]]) -> Iterator[Fact]:
    for name, of_set in counts.items():
        shown = ", ".join(f"{label} {of_set[label]:,}" for label in in_order(of_set)[:_SHOWN])
        more = f", and {len(of_set) - _SHOWN:,} more" if len(of_set) > _SHOWN else ""
        yield Fact(name=f"{'tags' if config.facts.words else 'classes'}, {name}", value=shown + more)
        if config.facts.words and (scheme := tag_scheme(of_set)):
            yield Fact(name=f"scheme, {name}", value=scheme, known_by="content")


def _odd_labels(config: TaskConfig, counts: dict[str, Counter[str]], rows: dict[str, int]) -> Iterator[str]:
    everything = sum(counts.values(), Counter[str]())
    similar: dict[str, list[str]] = {}
    for label in in_order(everything):
        similar.setdefault(_folded(label, config.facts.words), []).append(label)
    for group in similar.values():
        if len(group) > 1:
            named = ", ".join(f"{quoted(label)} ({everything[label]:,})" for label in group)
            yield f"the labels {named} differ in spelling alone: write them alike if they mean the same"
    measured = [label for label in everything if _NUMBER.fullmatch(label) and "." in label]
    whole = [label for label in everything if _NUMBER.fullmatch(label)]
    if 2 * len(measured) > len(everything) or len(whole) > 20 and 2 * len(whole) > len(everything):
        yield f"{len(whole):,} of {len(everything):,} classes are numbers, {listed(whole[:3])}: measurements are --task.kind number"
    if not config.facts.words and len(everything) > max(10, sum(rows.values()) / 10):
        yield f"{len(everything):,} classes for {sum(rows.values()):,} rows: give more rows of each, or name another --task.label"
    if config.kind == "labels" and (joined := [one for one in everything if re.search(r"\w\s*[;|,/]\s*\w", one)]):
        yield f"labels like {listed(joined[:3])} may be several: name what separates them by --task.label-separator"
    for name, of_set in counts.items():
        label, most = of_set.most_common(1)[0]
        if config.kind == "class" and most > 0.95 * rows[name]:
            yield f"{name}: {most / rows[name]:.1%} of the rows are {quoted(label)}: accuracy says little, see macro F1"
        if alone := [
            one for one in everything if one not in of_set and everything[one] * rows[name] >= 3 * sum(rows.values())
        ]:
            yield f"{listed(alone)} occur in no {name} row: draw the rows of both sets at random"
    schemes = {tag_scheme(of_set) for of_set in counts.values()} if config.facts.words else set()
    if len(schemes) > 1:
        yield f"the sets have tags of different schemes, {listed(sorted(map(str, schemes)))}: convert one of them"


def _folded(label: str, exact: bool) -> str:
    """`label` without what often varies in spelling."""
    folded = " ".join(unicodedata.normalize("NFKC", label).casefold().split())
    folded = folded.strip(".,;:!?'\"") or folded
    if exact:
        return folded.replace("_", "-")
    if re.fullmatch(r"[-+]?\d+(\.0+)?", folded) and len(folded) <= 18:
        folded = f"{float(folded):.18g}"
    return _SAME.get(folded, folded)


def _odd_numbers(numbers: dict[str, np.ndarray]) -> Iterator[str]:
    for name, values in numbers.items():
        if values.size > 1 and values.min() == values.max():
            yield f"{name}: every number is {values[0]:g}: name another column by --task.label"
        elif far := int(np.sum(np.abs(values - values.mean()) > 8 * values.std())):
            yield f"{name}: {far:,} numbers are far from the others, {values.min():g} to {values.max():g}: correct them"
    spans = [(float(np.quantile(values, 0.05)), float(np.quantile(values, 0.95))) for values in numbers.values()]
    if len(spans) == 2 and not 0.5 <= (spans[1][1] - spans[1][0]) / max(spans[0][1] - spans[0][0], 1e-9) <= 2:
        yield f"the numbers of the two sets have different ranges, {spans[0]} and {spans[1]}: give both on one scale"
