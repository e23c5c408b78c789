"""Texts and rows of a Python program, written as JSON lines into the run that learns from them.

A training reads files alone, so a run of a Python program is continued, verified and reported on like any other.
"""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from bert_jax.config.settings import Settings
from bert_jax.records.python_values import ROW_FILES, TaskRows, Texts, python_rows, python_texts
from bert_jax.run.hosts import first_alone, is_first
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.bucket import Place
from bert_jax.system.copies import local_path
from bert_jax.system.errors import UsageError, disk_explained, quoted
from bert_jax.system.files import open_binary, refuse_links, remove_temporary, replacing

_Config = TypeVar("_Config", bound=Settings)
_SAME_BYTES = 1 << 20
"""Bytes of two files that are compared at once."""


def check_call(use: str, config: object, expected: type[Settings], on_measured: object) -> None:
    """Raises UsageError if the function `use` was given a config of another class, or no function as `on_measured`."""
    if not isinstance(config, expected):
        given = f"a {type(config).__name__}" if isinstance(config, Settings) else quoted(config)
        remedy = (
            f"bert_jax.configs[{quoted(config)}]" if isinstance(config, str) else f"one of bert_jax.configs for {use}"
        )
        raise UsageError(f"{use} takes a {expected.__name__} and got {given}; give {remedy}")
    if on_measured is not None and not callable(on_measured):
        raise UsageError(f"on_measured={quoted(on_measured)} is no function; give one of (step, split, values)")


def beginning_with(config: _Config, init: str | os.PathLike[str] | None) -> _Config:
    """`config` with the setting `init`; None leaves it as it is. Raises UsageError for a value of another type."""
    return config if init is None else config.replace(init=os.fspath(init) if isinstance(init, os.PathLike) else init)


def write_texts(run: RunDirectory, texts: Texts) -> str:
    """Writes `texts`, each a document, into the run; returns their `data.source`.

    A run that was begun with the same texts is continued. Raises UsageError for other texts, and for an element that is
    no text.
    """
    documents = ({"text": text} for text in python_texts(texts, "pretrain", pairs=False))
    return f"jsonl:{_write(run, 'python-texts.jsonl', documents)}#text"


def write_rows(run: RunDirectory, name: str, rows: TaskRows) -> str:
    """Writes the rows of task.`name` into the run; returns the path of the file.

    `rows`: mappings of columns to values, in any form that `python_rows` reads. Raises UsageError for elements that
    are no mappings, and if the run was begun with other rows.
    """
    return str(_write(run, ROW_FILES[name], _mappings(rows)))


def _mappings(rows: TaskRows) -> Iterator[dict[str, Any]]:
    for number, row in enumerate(python_rows(rows, "finetune"), 1):
        if not isinstance(row, Mapping):
            raise UsageError(f"row {number:,} is {quoted(row)}; give mappings such as {{'text': ..., 'label': ...}}")
        yield dict(row)


class _Unchanged(Exception):
    """The file has the same content already. It is kept with its time, by which a source is recognised."""


def _write(run: RunDirectory, name: str, objects: Iterable[dict[str, Any]]) -> Place:
    """Locks the run and writes objects as the lines of a file in its data/, on the first of several processes.

    A file that was lost since the run was begun is written again; the run's other files have checksums.
    """
    run.check_place()
    path = run.path / "data" / name
    refuse_links(path.parent, path)
    with first_alone(f"write {name}"):
        if is_first():
            run.lock()
            with contextlib.suppress(_Unchanged), disk_explained(path):
                local_path(path).parent.mkdir(parents=True, exist_ok=True)
                remove_temporary(path.parent, name)
                _replace(run, path, objects)
    return path


def _replace(run: RunDirectory, path: Place, objects: Iterable[dict[str, Any]]) -> None:
    with replacing(path) as temporary:
        # A text may hold half of a surrogate pair, which JSON writes as an escape too.
        with open(temporary, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(_lines(objects))
        if _same(path, temporary):
            raise _Unchanged
        if run.under_way and path.is_file():
            raise UsageError(
                f"{run.path} was begun with other texts or rows than those of this call; give the same ones, or "
                "another workdir"
            )


def _lines(objects: Iterable[dict[str, Any]]) -> Iterator[str]:
    for number, values in enumerate(_read(objects), 1):
        try:
            yield json.dumps(values, ensure_ascii=False, allow_nan=False, default=_iso) + "\n"
        except (TypeError, ValueError) as error:
            column = next((name for name, value in values.items() if not _is_json(value)), None)
            culprit = f"{column!r}: {quoted(values[column])}; leave the column out" if column else quoted(values)
            raise UsageError(f"row {number:,} can't be written as JSON ({error}): {culprit}") from None


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False, default=_iso)
    except (TypeError, ValueError):
        return False
    return True


def _iso(value: Any) -> str:
    """A time in ISO 8601. Raises TypeError for a value that JSON can't hold."""
    if not hasattr(value, "isoformat"):
        raise TypeError(f"{type(value).__name__} is no value of JSON")
    return value.isoformat()


def _read(objects: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields `objects`. An OSError of their files becomes a UsageError: it is no error of the run's disk."""
    try:
        yield from objects
    except OSError as error:
        raise UsageError(f"the texts or rows can't be read: {error}") from error


def _same(path: Place, other: Place) -> bool:
    """Whether two files have the same bytes; False if the first is missing."""
    if not path.is_file():
        return False
    with open_binary(path) as mine, open_binary(other) as theirs:
        while (block := mine.read(_SAME_BYTES)) == theirs.read(_SAME_BYTES):
            if not block:
                return True
    return False
