"""Reads questions about texts from the JSON format of SQuAD 1.1 and 2.0."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from bert_jax.records import limits
from bert_jax.records.jsonl_files import parsed
from bert_jax.records.record import Record
from bert_jax.records.row_format import RowFormat
from bert_jax.system.bucket import Place
from bert_jax.system.errors import Setting, UsageError, json_kind, quoted


def squad_records(path: Place, lines: Iterator[str], repairs: Counter[str], form: RowFormat) -> Iterator[Record]:
    """Yields a record per question: `id`, `title`, `context`, `question`, and `answers` and `is_impossible` if present;
    of an array of objects, such as Label Studio's minimal JSON, one per object.

    Raises UsageError if the file doesn't have the format of SQuAD, or is too large to be read whole.
    """
    kept, size = [], 0
    for line in lines:
        kept.append(line)
        size += len(line)
        if size > limits.SQUAD_BYTES:
            raise UsageError(
                f"{path} is longer than {limits.SQUAD_BYTES:,} bytes and is read whole; give it in several files"
            )
    value = parsed("".join(kept), str(path), limits.SQUAD_VALUES)
    if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
        for number, row in enumerate(value, 1):
            yield Record(f"{path}, row {number}", row).mended(repairs)
        return
    for number, article in enumerate(_list(value, "data", str(path)), 1):
        of_article = f"{path}, article {number}"
        for position, paragraph in enumerate(_list(article, "paragraphs", of_article), 1):
            of_paragraph = f"{of_article}, paragraph {position}"
            for question in _list(paragraph, "qas", of_paragraph):
                place = f"{of_paragraph}, question {quoted(_value(question, 'id', of_paragraph))}"
                title, context = article.get("title", ""), _value(paragraph, "context", of_paragraph)
                yield Record(place, {"title": title, "context": context} | question).mended(repairs)


def _list(value: Any, name: str, place: str) -> list:
    """The array in field `name` of the object `value`. Raises UsageError if it is missing or not an array."""
    found = _value(value, name, place)
    if not isinstance(found, list):
        raise UsageError(f"{place}: {name!r} is {json_kind(found)} and in SQuAD's JSON it is an array")
    return found


def _value(value: Any, name: str, place: str) -> Any:
    """Field `name` of the object `value`. Raises UsageError, naming `place`, if it is missing."""
    if not isinstance(value, dict) or name not in value:
        raise UsageError(
            f"{place} has no {name!r}: it is {json_kind(value)}; expected SQuAD's JSON, data: "
            "[{paragraphs: [{context, qas: [{id, question, answers: [{text, answer_start}]}]}]}], or set "
            f"{Setting('task.format')}"
        )
    return value[name]
