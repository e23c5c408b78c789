"""The source `text:GLOB`: files of UTF-8 lines, with a blank line between documents."""

import io
from collections.abc import Iterator

from bert_jax.corpora.file_source import FileSource
from bert_jax.system.bucket import Place


class TextFiles(FileSource):
    """Plain, .gz and .zst text files, in which blank lines separate documents."""

    def _file_lines(self, path: Place, raw: io.BufferedReader) -> Iterator[tuple[int, str]]:
        for line in self._text_lines(self._numbered_parts(path, raw), str(path)):
            yield raw.tell(), line
