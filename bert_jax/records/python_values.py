"""Texts and rows of a Python program: lists, generators, arrays, frames, series, tables and data sets."""

import math
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from bert_jax.records.record import check_names, row_id
from bert_jax.system.errors import UsageError, listed, quoted
from bert_jax.system.progress import say

Texts: TypeAlias = Any
"""Texts, or pairs of texts, in any form that `python_texts` reads."""
TaskRows: TypeAlias = Any
"""Rows of a task in any form that `python_rows` reads."""
ROW_FILES = {name: f"python-{name}.jsonl" for name in ("train", "dev")}
"""The file in a run's data/ that keeps the rows which a program gives as task.train or task.dev."""
_FORMS = "a list, a generator, an array, a DataFrame, a Series or a datasets.Dataset"
_NO_SERIES = (bytes, bytearray, os.PathLike, set, frozenset, type)
"""Types that hold no texts in an order, although some can be iterated over."""


def python_rows(rows: TaskRows, use: str, what: str = "rows") -> Iterator[Any]:
    """Yields the elements of `rows` as values of JSON: texts, numbers, lists, and mappings for rows of columns.

    Numbers and texts of numpy become Python's, the class of a `datasets.Dataset` becomes its name, and a missing value
    (NaN, NA, a class of -1) becomes None. A tuple stays a tuple. Messages name `use`, the function that takes the
    elements, and `what`, their name in the plural. Raises UsageError at once for an object that holds no series of
    elements, and later for an element that contains itself.
    """
    element = what.removesuffix("s")
    if isinstance(rows, str):
        raise UsageError(f"{use} takes a list of {what} and got the text {quoted(rows)}; put it in brackets")
    if isinstance(rows, Mapping):
        raise UsageError(
            f"{use} takes {what} and got one mapping of {listed(rows)}; put it in brackets if it is a row, or give one "
            "of its values if these are columns or sets"
        )
    features = None
    if hasattr(rows, "itertuples"):  # a DataFrame of pandas
        check_names(list(map(str, rows.columns)), "the DataFrame")
        rows = rows.to_dict("records")
    elif hasattr(rows, "iter_rows"):  # a DataFrame of polars
        rows = rows.iter_rows(named=True)
    elif hasattr(rows, "to_pylist"):  # a table or an array of Arrow
        rows = rows.to_pylist()
    elif isinstance(rows, _NO_SERIES) or not hasattr(rows, "__iter__") or getattr(rows, "ndim", 1) == 0:
        raise UsageError(f"{use} takes {what} and got {quoted(rows)}; give {_FORMS}")
    elif names := getattr(getattr(rows, "dtype", None), "names", None):  # an array with named fields
        rows = [dict(zip(names, row, strict=True)) for row in rows.tolist()]
    elif isinstance(rows, np.ndarray):
        rows = rows.tolist()
    elif isinstance(getattr(rows, "features", None), Mapping):  # a Dataset
        features, layout = rows.features, getattr(rows, "format", None) or {}
        rows = rows.with_format(None) if layout.get("type") in ("pandas", "arrow", "polars") else rows
    return _values(rows, features, use, element)


def python_texts(
    texts: Texts, use: str, pairs: bool = True, columns: Sequence[str] = (), ids: deque[str] | None = None
) -> Iterator[Any]:
    """Yields the texts of `texts`, and pairs of texts too if `pairs` is true.

    The text of a row is that of `columns` (two make a pair); without them its column `text`, or its only column. Before
    each text, the `row_id` of its row is appended to `ids`; "" if it has no columns. A missing text becomes an empty
    one, and a line says at the end how many were missing. Raises UsageError as `python_rows` does, and for an element
    of another type, or without these columns.
    """
    return _texts(python_rows(texts, use, "texts"), use, pairs, columns, ids)


def _texts(rows: Iterator[Any], use: str, pairs: bool, columns: Sequence[str], ids: deque[str] | None) -> Iterator[Any]:
    number = missing = 0
    for number, row in enumerate(rows, 1):
        text = row
        if ids is not None:
            ids.append(row_id(row) if isinstance(row, Mapping) else "")
        if columns:
            if not isinstance(row, Mapping):
                raise UsageError(f"{use}: text {number:,} is {quoted(row)}, which has no columns; leave `columns` out")
            if absent := [column for column in columns if column not in row]:
                raise UsageError(
                    f"{use}: text {number:,} is a row of {listed(row)} and has no column {absent[0]!r}; name columns "
                    "that are there"
                )
            text = row[columns[0]] if len(columns) == 1 else tuple(row[column] for column in columns)
        elif isinstance(row, Mapping):
            if "text" not in row and len(row) != 1:
                raise UsageError(
                    f"{use}: text {number:,} is a row of {listed(row)}; give one column alone, as rows['NAME'], or "
                    "name it 'text'"
                )
            text = row["text"] if "text" in row else next(iter(row.values()))
        parts = text if isinstance(text, tuple | list) else (text,)
        if len(parts) not in ((1, 2) if pairs else (1,)) or not all(isinstance(part, str | None) for part in parts):
            wanted = "a text or a pair of texts, (first, second)" if pairs else "a text"
            words = ": its words with spaces between them" if all(isinstance(part, str) for part in parts) else ""
            raise UsageError(f"{use}: text {number:,} is {quoted(text)}; give {wanted}{words}")
        missing += None in parts
        filled = tuple(part or "" for part in parts)
        yield filled if isinstance(text, tuple | list) else filled[0]
    if missing:
        say(f"{use}: {missing:,} of {number:,} texts are missing (None or NaN) and are read as empty ones")


def _values(rows: Iterable[Any], features: Any, use: str, element: str) -> Iterator[Any]:
    for number, row in enumerate(rows, 1):
        if hasattr(row, "columns") and not isinstance(row, Mapping):
            raise UsageError(f"{use}: {element} {number:,} is a table; give its rows, or all tables as one")
        if hasattr(row, "to_dict"):  # a Series is a row of a frame if its index has names
            row = row.to_dict() if all(isinstance(name, str) for name in row.index) else row.tolist()
        try:
            yield tuple(json_value(row, features)) if isinstance(row, tuple) else json_value(row, features)
        except RecursionError:
            raise UsageError(f"{use}: {element} {number:,} contains itself, or too many lists in lists") from None


def json_value(value: Any, feature: Any = None) -> Any:
    """Converts a value to one of JSON. `feature`: its feature in a Dataset, or None. Raises UsageError for a class
    without a name."""
    for method in ("tolist", "to_list"):  # numpy and pandas, polars
        value = getattr(value, method)() if hasattr(value, method) else value
    inner = getattr(feature, "feature", feature)
    if isinstance(value, Mapping):
        features = inner if isinstance(inner, Mapping) else {}
        return {str(name): json_value(item, features.get(name)) for name, item in value.items()}
    if isinstance(value, list | tuple):
        inner = inner[0] if isinstance(inner, list) else inner
        return [json_value(item, inner) for item in value]
    if type(value).__name__ in ("NAType", "NaTType") or isinstance(value, float) and math.isnan(value):
        return None
    names = getattr(feature, "names", None)
    if names and type(value) is int:
        if value >= len(names):
            raise UsageError(f"the class {value} of a Dataset has no name: its feature has {len(names)}; mend it")
        return names[value] if value >= 0 else None
    return value
