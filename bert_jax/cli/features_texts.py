"""The texts that bert-jax features reads."""

from collections import Counter
from collections.abc import Iterator

from bert_jax.corpora.decoded_lines import decoded_lines
from bert_jax.corpora.task_record import Record
from bert_jax.finetuning.columns import text
from bert_jax.inference.batches import Text
from bert_jax.rows.task_files import format_of, has_columns, task_records
from bert_jax.system.bucket import place_of
from bert_jax.system.errors import UsageError


def texts_of(source: str, columns: tuple[str, ...], repairs: Counter[str]) -> Iterator[Text]:
    """Yields the texts of `source`: its lines, or one or two `columns` of its rows.

    Raises UsageError, before the first text, if `source` doesn't have that form.
    """
    if len(columns) > 2:
        raise UsageError(f"--texts {' '.join(columns)} are {len(columns)} columns; give one, or a pair's two")
    if format_of(source) in ("conll", "conllu"):
        raise UsageError(f"{source} has words and no texts; give a text a line, or a .csv, .tsv or .jsonl")
    if columns:
        if source == "-":
            raise UsageError("standard input holds a text a line and has no columns; leave --texts out")
        return (_of_record(record, columns) for record in task_records(source, repairs))
    if has_columns(source):
        raise UsageError(f"{source} has columns; name those of the texts by --texts, one or a pair's two")
    path = place_of("/dev/stdin" if source == "-" else source)
    return (line.rstrip("\r\n") for line in decoded_lines(path, repairs))


def _of_record(record: Record, columns: tuple[str, ...]) -> Text:
    found = tuple(text(record, column) for column in columns)
    return found if len(found) == 2 else found[0]
