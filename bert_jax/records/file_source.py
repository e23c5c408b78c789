"""Sources that read files, on disk or in a bucket, as one stream in the order of their names."""

import bisect
import copy
import io
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import NamedTuple, TypeVar

from bert_jax.records import limits
from bert_jax.records.compressed_files import DAMAGE, SUFFIXES, compression, damage_of, decompressed, opened
from bert_jax.records.decoded_lines import Decoder, file_parts
from bert_jax.records.record import Record
from bert_jax.records.text_source import TextSettings, TextSource, short_hash
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError
from bert_jax.system.files import matching_files

BLANK_LINE, LINE_END = re.compile(rb"\n[ \t\r]*\n|\n(?=<doc )"), re.compile(rb"\n")
"""What ends a document of a text file, and a record of JSON lines."""
_SEARCHED_BYTES = 1 << 20
"""How far beyond its end a range is read for the end of its last document."""
_STRIDE = 0.6180339887498949
"""Consecutive multiples of the golden ratio, modulo 1, are spread evenly, however many are taken."""
_END_BYTES = 1 << 12
_DOC = re.compile(r'<doc id=".*" url=".*" title="(.*)">')
"""The line before each article in the output of WikiExtractor, which repeats the title in the next line."""
_RANGE_BYTES, _FEWEST_RANGES = 1 << 17, 8
"""Largest size of a sample's ranges of uncompressed files, and their fewest."""
_BEGINNING_BYTES, _FEWEST_FILES = 1 << 21, 16
"""Largest size of its ranges of compressed files, in bytes of text, and the fewest files whose beginnings are one."""
Item = TypeVar("Item")
RecordReader = Callable[[Place, io.BufferedReader, str, Decoder], Iterable[Record]]
"""Reads the records of one opened file: its path, the file, the field that is needed, the decoder of its lines."""


class FileRange(NamedTuple):
    """A range of a file's content, from `begin`, in bytes; of a compressed file, `begin` is 0."""

    path: Place
    begin: int
    size: int

    def read(self, separator: re.Pattern[bytes]) -> tuple[Place, io.BufferedReader, int]:
        """The documents that begin in the range, each whole, as an uncompressed file with its name, and the bytes of
        the file on disk that the range has. Raises UsageError if the file can't be read or is damaged."""
        with opened(self.path) as raw:
            content = decompressed(self.path, raw)
            if content is raw:
                raw.seek(self.begin)
            elif self.begin:  # a compressed file among others can't be read from there
                return self.path, io.BufferedReader(io.BytesIO()), 0  # type: ignore[arg-type]
            try:
                text = content.read(self.size)
                taken = len(text) if content is raw else raw.tell()
                is_record = separator is LINE_END
                text += content.readline(limits.RECORD_BYTES) if is_record else content.read(_SEARCHED_BYTES)
            except DAMAGE as error:
                raise damage_of(self.path, error) from None
        begin, end = self._bounds(text, separator)
        name = self.path if content is raw else self.path.with_suffix("")
        return name, io.BufferedReader(io.BytesIO(text[begin:end])), taken  # type: ignore[arg-type]

    def _bounds(self, text: bytes, separator: re.Pattern[bytes]) -> tuple[int, int]:
        """Where the documents begin and end in `text`, the content from `self.begin` on.

        A document belongs to the range in which the separator before it begins. If none begins there, the range lies
        within a long one, of which a part is taken; of a record that isn't possible.
        """
        begin = 0
        if self.begin:
            first = separator.search(text)
            if first is None or first.start() >= self.size:
                return (0, 0) if separator is LINE_END else self._within_document(text)
            begin = first.end()
        if last := separator.search(text, max(self.size, begin)):
            return begin, last.end()
        is_rest = separator is LINE_END or len(text) < self.size + _SEARCHED_BYTES
        return begin, len(text) if is_rest else text.rfind(b"\n") + 1

    def _within_document(self, text: bytes) -> tuple[int, int]:
        """Whole lines of the range, or whole words if it has no line end, or whole characters if no space either."""
        text = text[: self.size]
        for end in (b"\n", b" "):
            if end in text:
                return text.find(end) + 1, text.rfind(end) + 1
        at_ends = [*range(min(4, len(text))), *range(max(len(text) - 4, 0), len(text))]
        begins = [place for place in at_ends if text[place] & 0xC0 != 0x80]  # of characters in UTF-8
        return (begins[0], begins[-1]) if begins else (0, 0)


def spread_ranges(sizes: Mapping[Place, int], count: int, size: int) -> list[FileRange]:
    """`count` ranges of `size` bytes at even distances over uncompressed files of these sizes. Any first ones of them
    are spread over all files, too."""
    ends = list(itertools.accumulate(sizes.values()))
    files = list(sizes.items())
    ranges = []
    for number in _spread_order(count):
        place = ends[-1] * number // count
        index = bisect.bisect_right(ends, place)
        path, of_file = files[index]
        ranges.append(FileRange(path, place - (ends[index] - of_file), size))
    return ranges


def beginnings(paths: Sequence[Place], count: int, size: int) -> list[FileRange]:
    """The first `size` bytes of `count` of the files, in an order of which any first ones are spread over all."""
    return [FileRange(paths[len(paths) * number // count], 0, size) for number in _spread_order(count)]


def _spread_order(count: int) -> list[int]:
    return sorted(range(count), key=lambda number: number * _STRIDE % 1)


class FileSource(TextSource):
    """Files that match a pattern, with their sizes as the unit of progress.

    A portion consists of consecutive files. It ends with the file that brings it to `chunk_bytes`. The rest at the end
    joins the portion before it if it has less than half of that.
    """

    compression: str | None
    """How the first file is compressed."""
    _separator: re.Pattern[bytes] | None = None
    """What ends a document; None if one can't be found within a file."""
    _ranges: Sequence[FileRange] = ()
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
            digest.update(repr(content_ends(path, size)).encode())
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
        """A source for looking at this one: the whole if it has at most `most_bytes`, else ranges of bytes that are
        spread over it. Where ranges can't be read (Parquet, a few compressed files) it is the whole, too.

        A pass over it counts undecodable lines without refusing them. `position` is the part of `total` that was read.
        """
        sample = self._of_files(self.sizes)
        if self.total * 1e6 <= most_bytes or self._separator is None:
            return sample
        if self.unit == "MB":
            size = min(_RANGE_BYTES, most_bytes // _FEWEST_RANGES)
            sample._ranges = spread_ranges(self.sizes, most_bytes // size, size)
        elif len(self.sizes) >= _FEWEST_FILES:
            size = min(_BEGINNING_BYTES, most_bytes // _FEWEST_FILES)
            sample._ranges = beginnings(list(self.sizes), min(len(self.sizes), most_bytes // size), size)
        return sample

    @property
    def in_ranges(self) -> bool:
        """Whether it is a sample of ranges."""
        return bool(self._ranges)

    def _of_files(self, sizes: dict[Place, int]) -> "FileSource":
        part = copy.copy(self)
        part.sizes, part.total, part._is_whole = sizes, sum(sizes.values()) / 1e6, False
        part._portions = {path: self._portions[path] for path in sizes}
        part.portion = next(iter(part._portions.values()))
        return part

    def _each(self, read: Callable[[Place, io.BufferedReader], Iterable[Item]]) -> Iterator[Item]:
        """Yields what `read` yields for each opened file, and updates the position."""
        for file_range in self._ranges:
            name, content, taken = file_range.read(self._separator or LINE_END)
            before = self.position
            yield from read(name, content)
            self.position = before + taken / 1e6
        if self._ranges:
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


def content_ends(path: Place, size: int) -> tuple[str, int, list]:
    """A file's name and size with its first 4 KB and last 4 KB, which identify its content."""
    with opened(path) as raw:
        return path.name, size, [raw.read(_END_BYTES), raw.seek(max(size - _END_BYTES, 0)), raw.read()]
