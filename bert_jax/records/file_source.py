"""Sources that read files, on disk or in a bucket, as one stream in the order of their names."""

import copy
import io
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import TypeVar

from bert_jax.records.compressed_files import SUFFIXES, compression, opened
from bert_jax.records.decoded_lines import Decoder, file_parts
from bert_jax.records.pieces import BLANK_LINE, LINE_END, Piece, beginnings, spread_pieces
from bert_jax.records.task_record import Record
from bert_jax.records.text_source import TextSettings, TextSource, short_hash
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError
from bert_jax.system.files import matching_files

_END_BYTES = 1 << 12
_DOC = re.compile(r'<doc id=".*" url=".*" title="(.*)">')
"""The line before each article in the output of WikiExtractor, which repeats the title in the next line."""
_PIECE_BYTES, _FEWEST_PIECES = 1 << 17, 8
"""Largest size of a sample's pieces of uncompressed files, and their fewest."""
_BEGINNING_BYTES, _FEWEST_FILES = 1 << 21, 16
"""Largest size of its pieces of compressed files, in bytes of text, and the fewest files whose beginnings are one."""
Item = TypeVar("Item")
RecordReader = Callable[[Place, io.BufferedReader, str, Decoder], Iterable[Record]]
"""Reads the records of one opened file: its path, the file, the field that is needed, the decoder of its lines."""


class FileSource(TextSource):
    """Files that match a pattern, with their sizes as the unit of progress.

    A portion consists of consecutive files. It ends with the file that brings it to `chunk_bytes`. The rest at the end
    joins the portion before it if it has less than half of that.
    """

    compression: str | None
    """How the first file is compressed."""
    _separator: re.Pattern[bytes] | None = None
    """What ends a document; None if one can't be found within a file."""
    _pieces: Sequence[Piece] = ()
    """What is read in place of the whole files."""

    def __init__(self, pattern: str, settings: TextSettings, field: str = ""):
        """Finds the files. Raises UsageError if no file matches `pattern`."""
        super().__init__(settings, field)
        found = matching_files(pattern)
        if not found:
            raise UsageError(f"no file matches {pattern!r}; give a path or a pattern like 'corpus/*.txt.gz'")
        self.sizes = {path: file.size for path, file in found.items()}
        self.total = sum(self.sizes.values()) / 1e6
        first = next(iter(found))
        with opened(first) as raw:
            self.compression = compression(first, raw)
        packed = self.compression or any(path.suffix in (*SUFFIXES, ".parquet") for path in self.sizes)
        self.unit = "MB compressed" if packed else "MB"
        self._portions = _numbers_of_portions(self.sizes, settings.chunk_bytes)
        revisions = [(path.name, file.revision) for path, file in found.items()]
        self.revision = short_hash(revisions)

    @cached_property
    def stamp(self) -> str:
        """Hash of each file's name, size, first 4 KB and last 4 KB."""
        digest = blake2b(digest_size=8)
        for path, size in self.sizes.items():
            digest.update(repr(described(path, size)).encode())
        return digest.hexdigest()

    def portions(self) -> Sequence["FileSource"]:
        """A source of its own for each portion."""
        return [
            self._of_files(dict(files))
            for _, files in itertools.groupby(self.sizes.items(), key=lambda file: self._portions[file[0]])
        ]

    @property
    def described(self) -> str:
        """The files for a message: the first and the last."""
        first, last = next(iter(self.sizes)), next(reversed(self.sizes))
        return str(first) if first == last else f"one of the files from {first} to {last}"

    def sampled(self, most_bytes: int) -> "FileSource":
        """A source for looking at this one: the whole if it has at most `most_bytes`, else pieces that are spread over
        it. Where pieces can't be read (Parquet, a few compressed files) it is the whole, too.

        A pass over it counts undecodable lines without refusing them. `position` is the part of `total` that was read.
        """
        sample = self._of_files(self.sizes)
        if self.total * 1e6 <= most_bytes or self._separator is None:
            return sample
        if self.unit == "MB":
            size = min(_PIECE_BYTES, most_bytes // _FEWEST_PIECES)
            sample._pieces = spread_pieces(self.sizes, most_bytes // size, size)
        elif len(self.sizes) >= _FEWEST_FILES:
            size = min(_BEGINNING_BYTES, most_bytes // _FEWEST_FILES)
            sample._pieces = beginnings(list(self.sizes), min(len(self.sizes), most_bytes // size), size)
        return sample

    @property
    def in_pieces(self) -> bool:
        """Whether it is a sample of pieces."""
        return bool(self._pieces)

    def _of_files(self, sizes: dict[Place, int]) -> "FileSource":
        part = copy.copy(self)
        part.sizes, part.total, part._is_whole = sizes, sum(sizes.values()) / 1e6, False
        part._portions = {path: self._portions[path] for path in sizes}
        part.portion = next(iter(part._portions.values()))
        return part

    def _each(self, read: Callable[[Place, io.BufferedReader], Iterable[Item]]) -> Iterator[Item]:
        """Yields what `read` yields for each opened file, and updates the position."""
        for piece in self._pieces:
            name, content, taken = piece.read(self._separator or LINE_END)
            before = self.position
            yield from read(name, content)
            self.position = before + taken / 1e6
        if self._pieces:
            self.total = self.position
            return
        before = 0
        for path, size in self.sizes.items():
            self.portion = self._portions[path]
            with opened(path) as raw:
                for item in read(path, raw):
                    self.position = (before + raw.tell()) / 1e6
                    yield item
            self._decoder.check(str(path))
            before += size


class RecordFiles(FileSource):
    """Files of records, read by a function for their format."""

    def __init__(
        self, read: RecordReader, separator: re.Pattern[bytes] | None, pattern: str, field: str, settings: TextSettings
    ):
        """Finds the files. Raises UsageError if no file matches `pattern`."""
        super().__init__(pattern, settings, field)
        self._read, self._separator = read, separator

    def _records(self) -> Iterator[Record]:
        return self._each(lambda path, raw: self._read(path, raw, self._field, self._decoder))


class TextFiles(FileSource):
    """Plain, .gz and .zst text files, in which blank lines separate documents, or WikiExtractor's <doc> lines."""

    _separator = BLANK_LINE

    def _lines(self) -> Iterator[str]:
        return self._each(self._file_lines)

    def _file_lines(self, path: Place, raw: io.BufferedReader) -> Iterator[str]:
        """Yields lines with each element <doc> as one document, without its header, title and end; counts headers."""
        inside, title = False, None
        for line in self._text_lines(file_parts(path, raw, self.repairs), str(path)):
            if header := _DOC.fullmatch(line):
                self.repairs["<doc> headers left out, with titles"] += 1
                inside, title = True, header[1]
                yield ""
            elif inside and line == "</doc>":
                inside = False
                yield ""
            elif not (inside and line in ("", title)):
                title = None
                yield line
        yield ""


def _numbers_of_portions(sizes: dict[Place, int], chunk_bytes: int) -> dict[Place, int]:
    """The number of the portion that each file belongs to."""
    numbers = dict[Place, int]()
    number, size = 0, 0
    for path, of_file in sizes.items():
        if size >= chunk_bytes:
            number, size = number + 1, 0
        numbers[path] = number
        size += of_file
    if size < chunk_bytes / 2:
        last = number
        numbers = {path: max(last - 1, 0) if number == last else number for path, number in numbers.items()}
    return numbers


def described(path: Place, size: int) -> tuple[str, int, list]:
    """A file's name and size with its first 4 KB and last 4 KB, which identify its content."""
    with opened(path) as raw:
        return path.name, size, [raw.read(_END_BYTES), raw.seek(max(size - _END_BYTES, 0)), raw.read()]
