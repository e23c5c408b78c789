"""The rows of a source that a task uses: rows that are whole, are labelled and were not rejected by an annotator."""

from collections import Counter
from collections.abc import Sequence

from bert_jax.config.task import COLUMN_IN_BRACES, TaskConfig
from bert_jax.finetuning.columns import label_text
from bert_jax.finetuning.task import Task
from bert_jax.records.record import Record
from bert_jax.system.bucket import place_of
from bert_jax.system.errors import Setting, UsageError

_LISTED_ROWS = 5
"""Most rows that an error lists."""
_MOST_UNLABELLED = 0.1
"""Largest share of rows whose label "-" is taken as missing. SNLI has 0.002."""
_VERDICTS = {
    "answer": ("accept", "reject ignore", "rejected or ignored in Prodigy"),
    "status": ("default edited validated submitted draft pending completed", "discarded", "discarded in Argilla"),
    "was_cancelled": ("false 0", "true 1", "cancelled in Label Studio"),
    "Skipped": ("false 0", "true 1", "skipped in Labelbox"),
    "AssignmentStatus": ("approved submitted", "rejected", "rejected in Mechanical Turk"),
    "_tainted": ("false 0", "true 1", "of untrusted contributors in Appen"),
}
"""Columns in which annotation tools accept or reject a row: the values of accepted rows and of rejected rows, in lower
case, and a name for rejected rows. A column with any other value belongs to another program."""


def usable_rows(
    kind: type[Task], config: TaskConfig, source: str, records: Sequence[Record], repairs: Counter[str]
) -> Sequence[Record]:
    """The rows that are whole, were not rejected by an annotator and, if any row has a label, have one.

    A row isn't whole if it ends before a column that the task reads, or if most rows of its table are longer. `repairs`
    counts the rows left out. Raises UsageError for rows that aren't whole or lack a label, unless task.unlabelled is
    `skip`, and if all rows are rejected.
    """

    def without(odd: Sequence[Record], name: str, fault: str, remedy: str) -> Sequence[Record]:
        if odd and (config.unlabelled == "refuse" or len(odd) == len(records)):
            places = [record.place.removeprefix(f"{place_of(source)}, ") for record in odd[:_LISTED_ROWS]]
            first = "; ".join(places) + ("; ..." if len(odd) > _LISTED_ROWS else "")
            raise UsageError(
                f"{source}: {len(odd):,} of {len(records):,} rows {fault} ({first}); {remedy}, or leave these rows out "
                "by --task.unlabelled skip (of evaluate --unlabelled skip)"
            )
        repairs[f"rows {name} left out"] += len(odd)
        numbers = set(map(id, odd))
        return [record for record in records if id(record) not in numbers]

    short = [one for one in records if one.columns and one.columns[-1] not in one.values]
    used, few = used_columns(kind, config, records[0]), 2 * len(short) < len(records)
    cut = [one for one in short if few or used & {*one.columns} - one.values.keys()]
    remedy = "a line break in a text without quotes around it cuts a row in two: mend these lines"
    records = without(cut, "with fewer fields than columns", "have fewer fields than there are columns", remedy)
    for column in _VERDICTS.keys() - used:
        records = _accepted(source, records, column, repairs)
    if config.task_kind.loss == "classes":
        labels = [label_text(one.value(config.label)) if one.has(config.label) else "" for one in records]
        marks = _no_labels(config, set(labels) - {""})
        if "-" in marks and labels.count("-") > _MOST_UNLABELLED * len(labels):
            raise UsageError(
                f"{source}: {labels.count('-'):,} of {len(labels):,} rows have the label '-', which stands for a "
                f"missing one; if it is a class, name all of them by {Setting('task.labels')}, otherwise leave these "
                "rows out"
            )
        records = [one for one, label in zip(records, labels, strict=True) if label not in marks]
        repairs[f"rows without a label ({' and '.join(sorted(marks))}) left out"] += len(labels) - len(records)
    empty = [record for record in records if not kind.is_labelled(config, record)]
    fault = f"have no {'score' if config.makes_vectors else 'label'}, {config.label!r} is empty"
    return records if len(empty) == len(records) else without(empty, "without a label", fault, "give each one")


def used_columns(kind: type[Task], config: TaskConfig, record: Record) -> set[str]:
    """The columns that the task reads from records like this one, including those that a row may lack."""
    whole = record._replace(values=dict.fromkeys(record.columns) | record.values)
    return {name for each in kind.columns(config, whole) for name in COLUMN_IN_BRACES.findall(each) or [each]}


def _no_labels(config: TaskConfig, labels: set[str]) -> set[str]:
    """The labels that stand for a missing label: "-" as in SNLI; -1 as in TFDS, where the others are 0 to n - 1.

    Unless labels are known, n must be at least 3, because -1, 0 and 1 are more often a scale."""
    given = set(config.labels or map(str, range(len(config.choices))))
    known = given or labels - {"-", "-1"}
    numbered = len(known) >= (2 if given else 3) and known == set(map(str, range(len(known))))
    marks = ({"-1"} if numbered else set()) | ({"-"} if "+" not in known else set())
    return (marks - known) & labels if labels - marks else set()


def _accepted(source: str, records: Sequence[Record], column: str, repairs: Counter[str]) -> Sequence[Record]:
    """The records that annotators accepted, if `column` has a tool's verdicts; otherwise all records."""
    *verdicts, said = _VERDICTS[column]
    accepted, rejected = map(str.split, verdicts)
    values = [label_text(one.values.get(column, "")).lower() for one in records]
    if set(values).isdisjoint(rejected) or not set(values) <= {*accepted, *rejected, "", "none"}:
        return records
    if set(values) <= set(rejected):
        raise UsageError(f"{source}: all {len(records):,} rows are {said}, by the column {column!r}; give others")
    repairs[f"rows {said} left out"] += sum(value in rejected for value in values)
    return [one for one, value in zip(records, values, strict=True) if value not in rejected]
