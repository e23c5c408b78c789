"""Examines documents batch by batch; writes what filters refuse, and the keys of copies, as Parquet files."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Shaped

from bert_jax.config.data import DataConfig
from bert_jax.records.corpus import Document
from bert_jax.records.drops import check_lines, first_place
from bert_jax.records.filters import refusals
from bert_jax.records.signatures import band_keys, digests, minhashes
from bert_jax.system.errors import check_installed
from bert_jax.system.files import replacing
from bert_jax.text.text_spans import plain

if TYPE_CHECKING:
    import pyarrow as pa

_BEGIN_BYTES = 96
"""Bytes of a document's beginning that are kept, so that a person recognizes the document."""
_BATCH_BYTES = 3_000_000
_REPEATED = 3
"""A line that a batch has in this many documents or more is kept as a possible example of boilerplate."""
_EXAMPLE_CHARACTERS = 80


class DocumentBatch(NamedTuple):
    """Consecutive documents of a portion. One task examines them."""

    source: int
    """Index of the source."""
    place: int
    """The place of the first line (bert_jax/records/drops.py)."""
    documents: list[Document]


def check_packages(data: DataConfig) -> None:
    """Raises UsageError if a package that curation needs isn't installed."""
    for package in ("duckdb", "pyarrow", "rensa") if data.is_curated else ():
        check_installed(f"settings that drop documents or lines need {package}", package, "deduplicate")


def cut_into_batches(documents: Iterable[Document], source: int, portion: int) -> Iterator[DocumentBatch]:
    """Cuts the documents of a portion into batches of about 3 MB."""
    place = first = first_place(source, portion)
    waiting: list[Document] = []
    size = 0
    for document in documents:
        waiting.append(document)
        size += sum(map(len, document))
        if size >= _BATCH_BYTES:
            yield DocumentBatch(source, place, waiting)
            place += sum(map(len, waiting))
            waiting, size = [], 0
    if waiting:
        yield DocumentBatch(source, place, waiting)
    check_lines(place + sum(map(len, waiting)) - first)


def examine(batch: DocumentBatch, data: DataConfig, directory: Path) -> None:
    """Writes a Parquet file with a row for each document of the batch into `directory`.

    Columns: source, place, size in bytes, begin (a string) and refusal (bert_jax/records/filters.py). With
    `data.deduplicate` also signature and bands (bert_jax/records/signatures.py), with `data.compares_lines` also lines,
    a list of structs. Raises UsageError if a package isn't installed.
    """
    check_packages(data)
    import pyarrow as pa
    from pyarrow import parquet

    documents = [[*map(plain, document)] for document in batch.documents]
    texts = ["\n".join(document) for document in documents]
    columns: dict[str, pa.Array] = {
        "source": _numbers(np.full(len(texts), batch.source, np.uint32)),
        "place": _numbers(batch.place + np.cumsum([0, *map(len, documents)], dtype=np.uint64)[:-1]),
        "size": _numbers(np.array([len(text.encode()) for text in texts], np.uint32)),
        "begin": _strings([*map(_begin, texts)]),
        "refusal": _numbers(refusals(texts, data, batch.source)),
    }
    if data.deduplicate:
        signatures = minhashes(texts) if data.deduplicate == "near" else digests(texts)
        for name, rows in (("signature", signatures), ("bands", band_keys(signatures))):
            columns[name] = pa.FixedSizeListArray.from_arrays(_numbers(rows.ravel()), rows.shape[1])
    if data.compares_lines:
        columns["lines"] = _lines(documents, batch.place)
    with replacing(directory / f"{batch.place:016x}.parquet") as temporary:
        table = pa.Table.from_arrays([*columns.values()], [*columns])
        parquet.write_table(table, temporary, use_dictionary=False, compression="none")


def _begin(text: str) -> str:
    begin = " ".join(text[:_BEGIN_BYTES].split()).encode()[:_BEGIN_BYTES]
    return begin.decode(errors="ignore").rstrip()


def _numbers(values: Shaped[np.ndarray, " N"]) -> "pa.Array":
    """A column of numbers. pyarrow's own conversion imports pandas, which takes a second and 60 MB."""
    import pyarrow as pa

    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def _strings(texts: Sequence[str]) -> "pa.Array":
    import pyarrow as pa

    encoded = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


def _lines(documents: Sequence[Document], place: int) -> "pa.Array":
    """The distinct lines of each document, as a column of structs.

    A struct has the line's key, place, number of characters, and text (its first _EXAMPLE_CHARACTERS). Of equal lines
    in a document it has the place of the last. The text is empty unless at least _REPEATED documents of the batch have
    the line.
    """
    import pyarrow as pa

    lines: list[str] = []
    places: list[int] = []
    ends = [0]
    for document in documents:
        distinct = {line: at for at, line in enumerate(document, place)}
        lines += distinct.keys()
        places += distinct.values()
        ends.append(len(lines))
        place += len(document)
    times = Counter(lines)
    high, low = np.ascontiguousarray(digests(lines).view(np.uint64).T)
    columns = {
        "high": _numbers(high),
        "low": _numbers(low),
        "line": _numbers(np.array(places, np.uint64)),
        "characters": _numbers(np.array([*map(len, lines)], np.uint32)),
        "text": _strings([line[:_EXAMPLE_CHARACTERS] if times[line] >= _REPEATED else "" for line in lines]),
    }
    structs = pa.StructArray.from_arrays([*columns.values()], [*columns])
    return pa.ListArray.from_arrays(_numbers(np.array(ends, np.int32)), structs)
