"""The source `text:GLOB`: lines of UTF-8, a blank line between documents."""

import io
from collections.abc import Iterator
from pathlib import Path

from bert_jax.data.file_source import FileSource


class TextFiles(FileSource):
    """Plain, .gz and .zst files of lines."""

    def _file_lines(self, path: Path, raw: io.BufferedReader) -> Iterator[tuple[int, str]]:
        for line in self._text_lines(self._numbered_parts(path, raw), str(path)):
            yield raw.tell(), line
