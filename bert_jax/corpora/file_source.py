"""What sources have in common that are files, on disk or in a bucket."""

import codecs
import io
from collections.abc import Iterator
from functools import cached_property
from hashlib import blake2b

from bert_jax.corpora.compressed_files import DAMAGE, decompressed, opened
from bert_jax.corpora.shown import reason_of
from bert_jax.corpora.text_source import TextSource, numbered_parts
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError
from bert_jax.system.files import matching_files

_END_BYTES = 1 << 12
COMPRESSED = (".gz", ".zst", ".parquet")
"""Ends of the names of files that take less room than their text."""
BYTE_ORDER_MARK = codecs.BOM_UTF8
_OTHER_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",  # before UTF-16's, with which it begins
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


class FileSource(TextSource):
    """Files read as a stream in the order of their names; `_file_lines` gives the text of one."""

    def __init__(self, pattern: str, undecodable: str, document_bytes: int):
        """`undecodable` and `document_bytes` as in TextSource. Raises UsageError where no file matches `pattern`."""
        super().__init__(undecodable, document_bytes)
        found = matching_files(pattern)
        if not found:
            raise UsageError(f"no file matches {pattern!r}; give a path or a pattern like 'corpus/*.txt.gz'")
        self.sizes = {path: file.size for path, file in found.items()}
        self.total = sum(self.sizes.values()) / 1e6
        revisions = [(path.name, file.revision) for path, file in found.items()]
        self.revision = blake2b(repr(revisions).encode(), digest_size=8).hexdigest()

    @property
    def unit(self) -> str:
        """What the files' sizes on disk are counted in; it says where these are smaller than the text."""
        return "MB compressed" if any(path.suffix in COMPRESSED for path in self.sizes) else "MB"

    @cached_property
    def stamp(self) -> str:
        """Hash of each file's name, size, and 4 KB at both ends."""
        digest = blake2b(digest_size=8)
        for path, size in self.sizes.items():
            with opened(path) as raw:
                ends = [raw.read(_END_BYTES), raw.seek(max(size - _END_BYTES, 0)), raw.read()]
            digest.update(repr((path.name, size, ends)).encode())
        return digest.hexdigest()

    def _lines(self) -> Iterator[str]:
        before = 0
        for path, size in self.sizes.items():
            with opened(path) as raw:
                for read, line in self._file_lines(path, raw):
                    self.position = (before + read) / 1e6
                    yield line
            self._check_decodable(str(path))
            yield ""
            before += size

    def _file_lines(self, path: Place, raw: io.BufferedReader) -> Iterator[tuple[int, str]]:
        """As `_lines` for one opened file; with each line, how many bytes of the file have been read."""
        raise NotImplementedError

    def _numbered_parts(self, path: Place, raw: io.BufferedReader) -> Iterator[tuple[int, bytes]]:
        """`undamaged_parts`, without a byte-order mark."""
        for number, part in undamaged_parts(path, raw):
            yield number, part.removeprefix(BYTE_ORDER_MARK) if number == 1 else part


def undamaged_parts(path: Place, raw: io.BufferedReader) -> Iterator[tuple[int, bytes]]:
    """`numbered_parts` of an opened file, unpacked. Raises UsageError where it is damaged, or no UTF-8 text at all."""
    number = 0
    try:
        for number, part in numbered_parts(decompressed(path, raw)):
            _check_text(path, number, part)
            yield number, part
    except DAMAGE as error:
        raise UsageError(
            f"{path} is damaged or cut short after line {number:,} ({reason_of(error)}); copy it again from its source"
        ) from None


def _check_text(path: Place, number: int, part: bytes) -> None:
    """Raises UsageError for a part of line `number` that begins UTF-16 or UTF-32 text, or has a NUL byte."""
    encoding = None
    if number == 1:
        encoding = next((name for mark, name in _OTHER_MARKS.items() if part.startswith(mark)), None)
    if encoding:
        raise UsageError(f"{path} is {encoding} text; convert it: iconv -f {encoding} -t UTF-8 {path} > NEW")
    if b"\0" in part:
        raise UsageError(
            f"{path}, line {number:,}: byte {part.index(0) + 1:,} is NUL, which text doesn't have: the file is UTF-16 "
            f"without a mark (convert it: iconv -f UTF-16LE -t UTF-8 {path} > NEW) or is not text (leave it out)"
        )
