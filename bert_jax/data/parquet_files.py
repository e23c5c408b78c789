"""The source `parquet:GLOB#FIELD`: a column of text, each row a document."""

import io
from collections.abc import Iterator
from typing import Any

from bert_jax.data.file_source import FileSource
from bert_jax.data.packed_files import opened
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError

_ROWS_AT_ONCE = 128
_READ_BYTES = 1 << 20


class ParquetFiles(FileSource):
    """Parquet files, of which one column is read. A row without text (null, or nothing but space) is left out."""

    def __init__(self, pattern: str, field: str, undecodable: str, document_bytes: int):
        """See FileSource. `field` names a column, or with dots a field of a struct: `a.b`.

        Raises UsageError also where pyarrow is not installed or the first file has no such column of text.
        """
        super().__init__(pattern, undecodable, document_bytes)
        self.field = field
        try:
            import pyarrow.compute
            import pyarrow.parquet
        except ImportError:
            raise UsageError(
                "Parquet files are read by pyarrow, which is not installed; pip install bert_jax[parquet]"
            ) from None
        self._arrow = pyarrow
        first = next(iter(self.sizes))
        with opened(first) as raw:
            self._open(first, raw)

    def _file_lines(self, path: Place, raw: io.BufferedReader) -> Iterator[tuple[int, str]]:
        size, row = self.sizes[path], 0
        file = self._open(path, raw)
        try:
            for batch in file.iter_batches(_ROWS_AT_ONCE, columns=[self.field], use_threads=False):
                for text in self._texts(batch.column(0)):
                    row += 1
                    for line in self._record_lines(text, f"{path}, row {row}, {self.field!r}"):
                        yield size * row // file.metadata.num_rows, line
        except (self._arrow.ArrowException, OSError) as error:
            raise UsageError(f"{path} is damaged after row {row:,} ({error}); copy it again from its source") from None

    def _open(self, path: Place, raw: io.BufferedReader) -> Any:
        """The file, whose column is there and holds text."""
        try:
            # Read ahead (pyarrow's default), all of a row group's column would be in memory at once.
            file = self._arrow.parquet.ParquetFile(raw, buffer_size=_READ_BYTES, pre_buffer=False)
        except (self._arrow.ArrowException, OSError) as error:
            raise UsageError(f"{path} is no Parquet file or is damaged ({error}); copy it again") from None
        self._check_column(path, file.schema_arrow)
        return file

    def _check_column(self, path: Place, schema: Any) -> None:
        types, fields = self._arrow.types, list(schema)
        for depth, name in enumerate(self.field.split("."), 1):
            found = next((field.type for field in fields if field.name == name), None)
            if found is None:
                there = ", ".join(repr(field.name) for field in fields) or "nothing"
                raise UsageError(f"{path} has no column {self.field!r}: there is {there}; name another after #")
            if types.is_dictionary(found):
                found = found.value_type
            fields = list(found) if types.is_struct(found) else []
        texts = (types.is_string, types.is_large_string, types.is_string_view, types.is_binary, types.is_large_binary)
        if not any(is_text(found) for is_text in texts):
            raise UsageError(f"{path}: {self.field!r} is of type {found} and not a string; name another after #")

    def _texts(self, column: Any) -> list[bytes | None]:
        inner = self.field.split(".")[1:]
        if inner:
            column = self._arrow.compute.struct_field(column, inner)
        # Bytes, so that text that isn't UTF-8 is treated as in any other source.
        return column.cast(self._arrow.large_binary()).to_pylist()
