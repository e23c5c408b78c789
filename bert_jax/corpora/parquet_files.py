"""The source `parquet:GLOB#FIELD`: a text column of Parquet files, where each row is a document."""

import io
from collections.abc import Iterator
from typing import Any

from bert_jax.corpora.compressed_files import check_expansion, opened
from bert_jax.corpora.file_source import FileSource
from bert_jax.corpora.parquet_pages import pages
from bert_jax.corpora.shown import listed, reason_of
from bert_jax.system.bucket import Place
from bert_jax.system.errors import RunError, UsageError, install_extra

_ROWS_AT_ONCE = 128
_BATCH_BYTES = 1 << 26
"""Most bytes of text per batch."""
_READ_BYTES = 1 << 20


class ParquetFiles(FileSource):
    """One text column of Parquet files. Rows without text (null or only white space) are skipped."""

    def __init__(self, pattern: str, field: str, undecodable: str, document_bytes: int):
        """Finds the files and checks the first. `field` is a column, or with dots a field of a struct column: `a.b`.

        Raises UsageError if no file matches `pattern`, pyarrow isn't installed, or the first file lacks the column.
        """
        super().__init__(pattern, undecodable, document_bytes)
        self.field = field
        try:
            import pyarrow.compute
            import pyarrow.parquet
        except ImportError:
            raise UsageError(
                f"Parquet files are read by pyarrow, which is not installed; {install_extra('parquet')}"
            ) from None
        self._arrow = pyarrow
        first = next(iter(self.sizes))
        with opened(first) as raw:
            self._open(first, raw)

    def _file_lines(self, path: Place, raw: io.BufferedReader) -> Iterator[tuple[int, str]]:
        size, content, file = self.sizes[path], 0, self._open(path, raw)
        for row, text in enumerate(self._rows(path, raw, file), 1):
            content += len(text or b"")
            check_expansion(path, content, size)
            for line in self._record_lines(text, f"{path}, row {row}, {self.field!r}"):
                yield min(size * row // max(file.metadata.num_rows, 1), size), line

    def _rows(self, path: Place, raw: io.BufferedReader, file: Any) -> Iterator[bytes | None]:
        """Yields the text of each row, read in batches.

        Raises UsageError if a part of the file is damaged or decompresses to too many bytes.
        """
        row = 0
        for number in range(file.metadata.num_row_groups):
            try:
                at_once = self._rows_at_once(path, raw, file.metadata.row_group(number))
            except ValueError as error:
                raise _damaged(path, row, error) from None
            batches = file.iter_batches(at_once, row_groups=[number], columns=[self.field], use_threads=False)
            while texts := self._next(path, batches, row):
                row += len(texts)
                yield from texts

    def _next(self, path: Place, batches: Iterator[Any], row: int) -> list[bytes | None]:
        """The texts of the next batch that isn't empty; an empty list at the end."""
        try:
            return next(filter(None, (self._texts(batch.column(0)) for batch in batches)), [])
        except RunError:  # the bucket failed; the file isn't damaged
            raise
        except Exception as error:  # Arrow's own exceptions, OSError, OverflowError, UnicodeDecodeError, ...
            raise _damaged(path, row, error) from None

    def _rows_at_once(self, path: Place, raw: io.BufferedReader, group: Any) -> int:
        """A batch size in rows, such that a batch takes at most _BATCH_BYTES.

        Page headers give the decompressed sizes, and no value is larger than all pages together. With dictionary
        encoding the largest value may occur in every row, so each row counts as that large. Raises ValueError if there
        are no pages.
        """
        largest = 0
        for number in range(group.num_columns):
            part = group.column(number)
            if part.path_in_schema == self.field:
                begin = min(filter(None, (part.dictionary_page_offset, part.data_page_offset)))
                for page in pages(raw, begin, part.total_compressed_size):
                    largest += page.unpacked
                check_expansion(path, largest, min(part.total_compressed_size, self.sizes[path]))
        return max(1, min(_ROWS_AT_ONCE, _BATCH_BYTES // max(largest, 1)))

    def _open(self, path: Place, raw: io.BufferedReader) -> Any:
        """Opens the Parquet file. Raises UsageError if it is damaged or lacks the text column."""
        try:
            # With pre-buffering (pyarrow's default) the column's whole row group would be in memory at once.
            file = self._arrow.parquet.ParquetFile(raw, buffer_size=_READ_BYTES, pre_buffer=False)
            schema = file.schema_arrow
        except RunError:
            raise
        except Exception as error:  # Arrow's own exceptions, OSError, UnicodeDecodeError, ...
            raise UsageError(f"{path} is no Parquet file or is damaged ({reason_of(error)}); copy it again") from None
        self._check_column(path, schema)
        return file

    def _check_column(self, path: Place, schema: Any) -> None:
        types, fields = self._arrow.types, list(schema)
        for depth, name in enumerate(self.field.split("."), 1):
            found = next((field.type for field in fields if field.name == name), None)
            if found is None:
                there = listed(field.name for field in fields)
                raise UsageError(f"{path} has no column {self.field!r}: there is {there}; name another after #")
            if types.is_dictionary(found):
                found = found.value_type
            fields = list(found) if types.is_struct(found) else []
        texts = (types.is_string, types.is_large_string, types.is_string_view, types.is_binary, types.is_large_binary)
        if not any(is_text(found) for is_text in texts):
            raise UsageError(
                f"{path}: {self.field!r} is of type {str(found):.100} and not a string; name another after #"
            )

    def _texts(self, column: Any) -> list[bytes | None]:
        inner = self.field.split(".")[1:]
        if inner:
            column = self._arrow.compute.struct_field(column, inner)
        # Read as bytes, so that text that isn't UTF-8 is handled as in every other source.
        return column.cast(self._arrow.large_binary()).to_pylist()


def _damaged(path: Place, row: int, error: Exception) -> UsageError:
    return UsageError(f"{path} is damaged after row {row:,} ({reason_of(error)}); copy it again from its source")
