"""Texts and rows of a Python program, written as JSON lines into the run that learns from them.

A training reads files alone, so a run of a Python program is continued, verified and reported on like any other.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bert_jax.run.hosts import first_alone, is_first
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.bucket import Place
from bert_jax.system.copies import local_path
from bert_jax.system.errors import UsageError, disk_explained, quoted
from bert_jax.system.files import open_binary, replacing

_SAME_BYTES = 1 << 20
"""Bytes of two files that are compared at once."""


def write_texts(run: RunDirectory, texts: Iterable[str]) -> str:
    """Writes `texts`, each a document, into the run; returns their `data.source`.

    The run may have been begun with the same texts before. Raises UsageError for other texts, and for an element that
    is no text.
    """
    return f"jsonl:{_write(run, 'python-texts.jsonl', _of_texts(texts))}#text"


def write_rows(run: RunDirectory, name: str, rows: Iterable[Any]) -> str:
    """Writes the rows of a task into the run; returns the path of the file, `name` with a prefix.

    `rows`: mappings of columns to values, or a DataFrame of pandas or polars. Raises UsageError for other rows, and for
    other ones than the run was begun with.
    """
    return str(_write(run, f"python-{name}.jsonl", _of_rows(rows)))


def _of_texts(texts: Iterable[str]) -> Iterator[dict[str, str]]:
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise UsageError(f"text {number:,} is {quoted(text)}; give an iterable of texts, each a document")
        yield {"text": text}


def _of_rows(rows: Any) -> Iterator[dict[str, Any]]:
    if hasattr(rows, "itertuples"):  # pandas
        rows = rows.to_dict("records")
    elif hasattr(rows, "iter_rows"):  # polars
        rows = rows.iter_rows(named=True)
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise UsageError(f"row {number:,} is {quoted(row)}; give mappings such as {{'text': ..., 'label': ...}}")
        yield {str(name): _value(value) for name, value in row.items()}


def _value(value: Any) -> Any:
    """A value as JSON has it: numpy's as Python's, and None for a missing number of pandas."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return None if isinstance(value, float) and math.isnan(value) else value


def _write(run: RunDirectory, name: str, objects: Iterable[dict[str, Any]]) -> Place:
    """Writes objects as the lines of a file in the run's data/, on the first of several processes."""
    run.check_place()
    path = run.path / "data" / name
    with first_alone(f"write {name}"), disk_explained(path):
        if is_first():
            local_path(path).parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary:
                with open(temporary, "w", encoding="utf-8") as file:
                    file.writelines(_lines(objects))
                if run.under_way and not _same(path, temporary):
                    raise UsageError(
                        f"{run.path} was begun with other texts or rows than those that are given now; give the same "
                        "ones, or another workdir"
                    )
    return path


def _lines(objects: Iterable[dict[str, Any]]) -> Iterator[str]:
    for number, values in enumerate(objects, 1):
        try:
            yield json.dumps(values, ensure_ascii=False, allow_nan=False) + "\n"
        except (TypeError, ValueError) as error:
            raise UsageError(f"row {number:,} can't be written as JSON ({error}): {quoted(values)}") from None


def _same(path: Place, other: Place) -> bool:
    """Whether two files have the same bytes; False if the first is missing."""
    if not path.is_file():
        return False
    with open_binary(path) as mine, open_binary(other) as theirs:
        while (block := mine.read(_SAME_BYTES)) == theirs.read(_SAME_BYTES):
            if not block:
                return True
    return False
