"""Reads a text column of Parquet files."""

import io
import os
from collections.abc import Iterator
from typing import Any

from bert_jax.records.compressed_files import check_expansion
from bert_jax.records.decoded_lines import Decoder
from bert_jax.records.record import Record
from bert_jax.system.bucket import Place
from bert_jax.system.errors import BertJaxError, UsageError, first_line, install_extra, listed

_READ_BYTES = 1 << 20


def read_parquet(path: Place, raw: io.BufferedReader, field: str, _: Decoder) -> Iterator[Record]:
    """Yields a record per row of an opened file with the bytes in column `field`, also `a.b` in a struct column.

    One row is in memory at a time, besides one page of the file and the column's dictionary. Raises UsageError if the
    file is damaged, lacks the text column or decompresses to implausibly many bytes, or if pyarrow isn't installed.
    """
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError:
        raise UsageError(
            f"Parquet files are read by pyarrow, which is not installed; {install_extra('parquet')}"
        ) from None
    number, content, size = 0, 0, raw.seek(0, os.SEEK_END)
    try:
        # With pre-buffering (pyarrow's default) the column's whole row group would be in memory at once.
        file = pyarrow.parquet.ParquetFile(raw, buffer_size=_READ_BYTES, pre_buffer=False)
        columns = _text_columns(file.schema)
        if field not in columns:
            there = listed(columns)
            raise UsageError(f"{path} has no text column {field!r}: there is {there}; name another after #")
        # Several rows at once would take memory for each that refers to a long text of the dictionary.
        for batch in file.iter_batches(1, columns=[field], use_threads=False):
            column, inner = batch.column(0), field.split(".")[1:]
            if inner and pyarrow.types.is_struct(column.type):  # otherwise the dot is in a column's name
                column = pyarrow.compute.struct_field(column, inner)
            content += column.nbytes
            check_expansion(path, f"{number + 1:,} rows of it take", content, size)
            # Read as bytes, so that text that isn't UTF-8 is handled as in every other source.
            for text in column.cast(pyarrow.large_binary()).to_pylist():
                number += 1
                yield Record(f"{path}, row {number}", {field: text})
    except BertJaxError:  # ours, or the bucket failed; the file isn't damaged
        raise
    except Exception as error:  # Arrow's own exceptions, OSError, OverflowError, UnicodeDecodeError, ...
        raise UsageError(
            f"{path} is damaged after row {number:,}, or is no Parquet file ({first_line(error)}); copy it again"
        ) from None


def _text_columns(schema: Any) -> list[str]:
    """The names of all columns and fields of structs that hold one string each."""
    columns = [schema.column(number) for number in range(len(schema))]
    return [
        column.path
        for column in columns
        if column.physical_type == "BYTE_ARRAY"
        and column.converted_type != "DECIMAL"
        and not column.max_repetition_level
    ]
