"""Reads records from files of JSON lines, SQuAD's JSON and Parquet."""

import os
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

from bert_jax.records import limits
from bert_jax.records.compressed_files import check_expansion
from bert_jax.records.decoded_lines import InputFile
from bert_jax.records.record import Record, RowFormat, check_names
from bert_jax.system.errors import (
    BertJaxError,
    Setting,
    UsageError,
    check_installed,
    first_line,
    json_kind,
    listed,
    quoted,
)
from bert_jax.system.json_file import parse_json

EMPTY_LINES = "empty lines left out"
_OTHER_COLUMNS = "columns of dates, images or other types left out"
_READ_BYTES = 1 << 20


def jsonl_records(file: InputFile, row_format: RowFormat) -> Iterator[Record]:
    """Yields a record per line. Its strings may contain lone surrogates, unless the pass mends them.

    Empty lines are skipped and counted, except at the end. Raises UsageError, with the line, for anything that isn't a
    JSON object.
    """
    empty = 0
    for number, line in enumerate(file.lines(), 1):
        if not line.strip():
            empty += 1
            continue
        if empty:
            file.progress.repairs[EMPTY_LINES] += empty
            empty = 0
        place = f"{file.path}, line {number}"
        value = _parsed(line, place, limits.RECORD_VALUES)
        if not isinstance(value, dict):
            raise UsageError(f"{place} is {json_kind(value)}; a record is an object with named values")
        record = Record(place, value)
        yield record.mended(file.progress.repairs) if file.progress.mends and "\\u" in line else record


def squad_records(file: InputFile, row_format: RowFormat) -> Iterator[Record]:
    """Yields a record per question of SQuAD 1.1 or 2.0, or per object of an array, such as Label Studio's minimal JSON.

    A question's record has `id`, `title`, `context`, `question`, and, if present, `answers` and `is_impossible`. Lone
    surrogates are mended. Raises UsageError if the file doesn't have the format of SQuAD, or is too large to be read
    whole.
    """
    path, repairs = file.path, file.progress.repairs
    kept, size = [], 0
    for line in file.lines(limits.SQUAD_BYTES):
        kept.append(line)
        size += len(line)
        if size > limits.SQUAD_BYTES:
            raise UsageError(
                f"{path} is longer than {limits.SQUAD_BYTES:,} bytes and is read whole; give it in several files"
            )
    value = _parsed("".join(kept), str(path), limits.SQUAD_VALUES)
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


def parquet_records(file: InputFile, row_format: RowFormat) -> Iterator[Record]:
    """Yields a record per row of a Parquet file, with the bytes of one column, or with the values of all.

    `row_format.columns` names the column; `a.b` is a field in a struct column. If it is None, the values are those of
    JSON: texts, numbers, lists and objects. Columns of other types, such as dates and images, are left out and counted.
    A class of the library `datasets` is given by its name, as in `python_rows`; NaN and a class of -1 are None.

    Memory holds one row, one page of each column, and the columns' dictionaries. Raises UsageError if the file is a
    pipe, is damaged, lacks such a column or decompresses to implausibly many bytes, or if pyarrow isn't installed.
    """
    check_installed("Parquet files are read by pyarrow", "pyarrow", "parquet")
    import pyarrow.parquet

    path, number, content = file.path, 0, 0
    if not file.raw.seekable():
        raise UsageError(f"{path} is a pipe, and Parquet can't be read from one; save it as a file")
    size = file.raw.seek(0, os.SEEK_END)
    try:
        # With pre-buffering (pyarrow's default) the columns' whole row group would be in memory at once.
        table = pyarrow.parquet.ParquetFile(file.raw, buffer_size=_READ_BYTES, pre_buffer=False)
        if row_format.columns:
            (field,), columns = row_format.columns, _text_columns(table.schema)
            if field not in columns:
                named = f"there is {listed(columns)}; name another after #"
                raise UsageError(f"{path} has no text column {field!r}: {named}")
            columns, values = [field], partial(_text, field)
        else:
            check_names(table.schema_arrow.names, str(path))
            columns = [column.name for column in table.schema_arrow if _is_json(column.type)]
            if not columns:
                raise UsageError(f"{path} has no column of texts, numbers or lists; give a file of a task's rows")
            if others := len(table.schema_arrow) - len(columns):
                file.progress.repairs[_OTHER_COLUMNS] += others
            values = partial(_values, _features(table.schema_arrow.metadata))
        # With several rows at once, each row that refers to a long text of the dictionary takes memory.
        for batch in table.iter_batches(1, columns=columns, use_threads=False):
            content += batch.nbytes
            check_expansion(path, f"{number + 1:,} rows of it take", content, size)
            found = values(batch)
            number += 1
            yield Record(f"{path}, row {number}", found)
    except BertJaxError:  # our own error, or the bucket failed; the file isn't damaged
        raise
    except Exception as error:  # Arrow's own exceptions, OSError, OverflowError, UnicodeDecodeError, ...
        raise UsageError(
            f"{path} is damaged after row {number:,}, or is no Parquet file ({first_line(error)}); copy it again"
        ) from None


def _text(field: str, row: Any) -> dict[str, bytes | None]:
    """The text of the batch `row` of one row, as bytes: text that isn't UTF-8 is handled as in every other source."""
    import pyarrow
    import pyarrow.compute

    column, inner = row.column(0), field.split(".")[1:]
    if inner and pyarrow.types.is_struct(column.type):  # otherwise the dot is in a column's name
        column = pyarrow.compute.struct_field(column, inner)
    return {field: column.cast(pyarrow.large_binary())[0].as_py()}


def _values(features: dict[str, Any], row: Any) -> dict[str, Any]:
    """All values of the batch `row` of one row, those of `features` as their features say."""
    from bert_jax.records.python_values import json_value  # imports numpy, without which other files are read

    (values,) = row.to_pylist()
    return json_value(values, features)


def _features(metadata: dict[bytes, bytes] | None) -> dict[str, Any]:
    """The features of the columns as `json_value` takes them; {} in a file that the library `datasets` didn't write."""
    try:
        described = parse_json((metadata or {})[b"huggingface"], limits.RECORD_VALUES)["info"]["features"]
    except (KeyError, TypeError, ValueError):
        return {}
    return {name: _feature(each) for name, each in described.items()} if isinstance(described, dict) else {}


def _feature(described: Any) -> Any:
    """A feature with the attributes that those of `datasets` have: `names` of classes, `feature` of a list's items."""
    if not isinstance(described, dict):
        return None
    names = described.get("names")
    if described.get("_type") == "ClassLabel" and isinstance(names, list) and all(isinstance(n, str) for n in names):
        return SimpleNamespace(names=names)
    if "_type" in described:
        return SimpleNamespace(feature=_feature(described.get("feature")))
    return {name: _feature(each) for name, each in described.items()}


def _is_json(kind: Any) -> bool:
    """Whether JSON has the values of this type of Arrow's."""
    from pyarrow import types

    if types.is_struct(kind):
        return all(_is_json(field.type) for field in kind)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _is_json(kind.value_type)
    if types.is_dictionary(kind):
        return _is_json(kind.value_type)
    texts = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    return texts or types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_null(kind)


def _text_columns(schema: Any) -> list[str]:
    """The names of all columns, and of fields in structs, that hold one string each."""
    columns = [schema.column(number) for number in range(len(schema))]
    return [
        column.path
        for column in columns
        if column.physical_type == "BYTE_ARRAY"
        and column.converted_type != "DECIMAL"
        and not column.max_repetition_level
    ]


def _parsed(text: str, place: str, most_values: int) -> Any:
    """Parses `text` as JSON. Strings in the result may contain lone surrogates.

    Raises UsageError, naming `place`, if it isn't JSON, is nested too deep, or has more than `most_values` values.
    """
    try:
        return parse_json(text, most_values=most_values, surrogates="keep")
    except ValueError as error:
        raise UsageError(f"{place} is not JSON that can be read: {error}; mend it or leave it out") from None


def _list(value: Any, name: str, place: str) -> list:
    """The array in field `name` of the object `value`. Raises UsageError if it is missing or not an array."""
    array = _value(value, name, place)
    if not isinstance(array, list):
        raise UsageError(f"{place}: {name!r} is {json_kind(array)} and in SQuAD's JSON it is an array")
    return array


def _value(value: Any, name: str, place: str) -> Any:
    """Field `name` of the object `value`. Raises UsageError, naming `place`, if it is missing."""
    if not isinstance(value, dict) or name not in value:
        raise UsageError(
            f"{place} has no {name!r}: it is {json_kind(value)}; expected SQuAD's JSON, data: "
            "[{paragraphs: [{context, qas: [{id, question, answers: [{text, answer_start}]}]}]}], or set "
            f"{Setting('task.format')}"
        )
    return value[name]
