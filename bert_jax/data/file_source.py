"""What sources have in common that are files, on disk or in a bucket."""

import io
from collections.abc import Iterator
from functools import cached_property
from hashlib import blake2b

from bert_jax.data.packed_files import DAMAGE, decompressed, opened
from bert_jax.data.text_source import TextSource, numbered_parts
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError
from bert_jax.system.files import matching_files

_END_BYTES = 1 << 12
COMPRESSED = (".gz", ".zst", ".parquet")
"""Ends of the names of files that take less room than their text."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class FileSource(TextSource):
    """Files read as a stream in the order of their names; `_file_lines` gives the text of one."""

    def __init__(self, pattern: str, undecodable: str, document_bytes: int):
        """See TextSource. Raises UsageError where no file matches `pattern`."""
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
        """See Corpus: bytes of the files as they lie there, which says where they are fewer than those of the text."""
        return "MB compressed" if any(path.suffix in COMPRESSED for path in self.sizes) else "MB"

    @cached_property
    def stamp(self) -> str:
        """See Corpus: names, sizes, and 4 KB at both ends of each file."""
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
    """`numbered_parts` of an opened file, unpacked. Raises UsageError where it is damaged."""
    number = 0
    try:
        for number, part in numbered_parts(decompressed(path, raw)):
            yield number, part
    except DAMAGE as error:
        raise UsageError(
            f"{path} is damaged or cut short after line {number:,} ({error}); copy it again from its source"
        ) from None
