"""Sources that consist of files, on disk or in a bucket, read in the order of their names."""

import bisect
import copy
import io
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from bert_jax.config.data import FORMATS, LINE_END, Format
from bert_jax.records import limits
from bert_jax.records.compressed_files import DAMAGE, SUFFIXES, compression, damage_of, decompressed, opened
from bert_jax.records.decoded_lines import InputFile, Pass
from bert_jax.records.formats import READERS
from bert_jax.records.record import Record, RowFormat
from bert_jax.records.source import Source
from bert_jax.system.bucket import FileState, Place, in_bucket
from bert_jax.system.content import content_hash
from bert_jax.system.errors import UsageError
from bert_jax.system.files import matching_files

_SEARCHED_BYTES = 1 << 20
"""Bytes beyond the end of a range that are searched for the end of its last document."""
_STRIDE = 0.6180339887498949
"""Multiples of the golden ratio's fractional part, modulo 1, are spread evenly, however many are taken."""
_RANGE_BYTES, _FEWEST_RANGES = 1 << 17, 8
"""In a sample of uncompressed files: the largest size of a range in bytes, and the fewest ranges."""
_BEGINNING_BYTES, _FEWEST_FILES = 1 << 21, 16
"""In a sample of compressed files, which are read from their beginnings: most bytes of text of a file, and fewest
files."""
Item = TypeVar("Item")


class FileRange(NamedTuple):
    """A range of a file's content: `size` bytes from byte `begin`. In a compressed file, `begin` is 0."""

    path: Place
    begin: int
    size: int

    def read(self, separator: re.Pattern[bytes], progress: Pass) -> tuple[InputFile, int]:
        """Returns the documents that begin in the range, as an uncompressed file, and the bytes on disk of the range.

        The documents are whole. The returned file has this file's name. Raises UsageError if this file can't be read or
        is damaged.
        """
        with opened(self.path) as raw:
            content = decompressed(self.path, raw)
            if content is raw:
                raw.seek(self.begin)
            elif self.begin:  # a compressed file can only be read from its beginning
                return InputFile(self.path, io.BufferedReader(io.BytesIO()), progress), 0  # type: ignore[arg-type]
            try:
                text = content.read(self.size)
                taken = len(text) if content is raw else raw.tell()
                is_record = separator is LINE_END
                text += content.readline(limits.RECORD_BYTES) if is_record else content.read(_SEARCHED_BYTES)
            except DAMAGE as error:
                raise damage_of(self.path, error) from None
        begin, end = self._bounds(text, separator)
        name = self.path if content is raw else self.path.with_suffix("")
        documents = io.BufferedReader(io.BytesIO(text[begin:end]))
        return InputFile(name, documents, progress), taken  # type: ignore[arg-type]

    def _bounds(self, text: bytes, separator: re.Pattern[bytes]) -> tuple[int, int]:
        """Where the documents begin and end in `text`, the content from `self.begin` on.

        A document belongs to the range in which the separator before it begins. If no separator begins in the range,
        the range lies within one long document or record. Then the bounds are those of the document's part in the range
        (`_within_document`), or empty for a record, which can't be divided.
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
        """Bounds of the whole lines in the range; without a line end, of words; without a space, of characters."""
        text = text[: self.size]
        for end in (b"\n", b" "):
            if end in text:
                return text.find(end) + 1, text.rfind(end) + 1
        at_ends = [*range(min(4, len(text))), *range(max(len(text) - 4, 0), len(text))]
        begins = [place for place in at_ends if text[place] & 0xC0 != 0x80]  # where characters of UTF-8 begin
        return (begins[0], begins[-1]) if begins else (0, 0)


def spread_ranges(sizes: Mapping[Place, int], count: int, size: int) -> list[FileRange]:
    """`count` ranges of `size` bytes, evenly spaced over uncompressed files of these sizes.

    For every n, the first n ranges are spread over all files, too.
    """
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
    """The first `size` bytes of `count` of the files. For every n, the first n ranges are spread over all files."""
    return [FileRange(paths[len(paths) * number // count], 0, size) for number in _spread_order(count)]


def _spread_order(count: int) -> list[int]:
    return sorted(range(count), key=lambda number: number * _STRIDE % 1)


class FileSource(Source):
    """Files of one format. Progress is measured by their sizes."""

    unit = "MB"
    compression: str | None = None
    """How the first file is compressed."""
    _objects: Mapping[Place, FileState] = {}
    """The revisions of files in a bucket, as they were listed."""
    _ranges: Sequence[FileRange] = ()
    """The ranges that are read. If there are none, the whole files are read."""

    def __init__(self, format: str, row_format: RowFormat, sizes: Mapping[Place, int]):
        """`sizes`: the size of each file; 0 if progress can't be measured, as for a pipe."""
        self._format, self._row_format = format, row_format
        self._set_files(sizes)

    @classmethod
    def matching(cls, format: str, pattern: str, field: str = "") -> "FileSource":
        """The files that match a pattern. Raises UsageError if there is none, or the first can't be read."""
        files = matching_files(pattern)
        if not files:
            raise UsageError(f"no file matches {pattern!r}; give a path or a pattern like 'corpus/*.txt.gz'")
        source = cls(format, RowFormat(columns=(field,)), {path: file.size for path, file in files.items()})
        source.field = field
        first = next(iter(files))
        with opened(first) as raw:
            source.compression = compression(first, raw)
        if source.compression or any(path.suffix in (*SUFFIXES, ".parquet") for path in files):
            source.unit = "MB compressed"
        source._objects = {path: file for path, file in files.items() if in_bucket(path)}
        return source

    @property
    def format(self) -> Format:
        """The format's row in the table FORMATS."""
        return FORMATS[self._format]

    @property
    def content_hash(self) -> str:
        return content_hash(
            *((path.name, self._objects[path]) if path in self._objects else path for path in self.sizes)
        )

    def records(self, progress: Pass) -> Iterator[Record]:
        return self._each(lambda file: READERS[self._format](file, self._row_format), progress)

    def document_lines(self, progress: Pass) -> Iterator[str] | None:
        return self._each(InputFile.document_lines, progress) if self._format == "text" else None

    def portions(self, portion_bytes: int) -> Sequence["FileSource"]:
        """Cuts the source into portions of consecutive files.

        A portion ends with the file that brings it to `portion_bytes`. A last portion of less than half that size joins
        the one before it.
        """
        groups, size = [dict[Place, int]()], 0
        for path, of_file in self.sizes.items():
            if size >= portion_bytes:
                groups.append({})
                size = 0
            groups[-1][path] = of_file
            size += of_file
        if len(groups) > 1 and size < portion_bytes / 2:
            last = groups.pop()
            groups[-1] |= last
        return [self._of_files(files, number) for number, files in enumerate(groups)]

    def sampled(self, most_bytes: int) -> "FileSource":
        """The source itself if it has at most `most_bytes`, otherwise ranges of bytes that are spread over it.

        If ranges can't be read (Parquet, a few compressed files), the whole source is read.
        """
        ranges: list[FileRange] = []
        if self.total * 1e6 <= most_bytes or self.format.separator is None:
            return self
        if self.unit == "MB":
            size = min(_RANGE_BYTES, most_bytes // _FEWEST_RANGES)
            ranges = spread_ranges(self.sizes, most_bytes // size, size)
        elif len(self.sizes) >= _FEWEST_FILES:
            size = min(_BEGINNING_BYTES, most_bytes // _FEWEST_FILES)
            ranges = beginnings(list(self.sizes), min(len(self.sizes), most_bytes // size), size)
        sample = self._of_files(self.sizes, 0)
        sample._ranges, sample.has_ranges = ranges, bool(ranges)
        return sample

    def _set_files(self, sizes: Mapping[Place, int]) -> None:
        self.sizes, self.total = dict(sizes), sum(sizes.values()) / 1e6
        first, *_, last = [*sizes] * 2
        self.name = str(first) if first == last else f"one of the files from {first} to {last}"

    def _of_files(self, sizes: Mapping[Place, int], number: int) -> "FileSource":
        part = copy.copy(self)
        part._set_files(sizes)
        part.number = number
        return part

    def _each(self, read: Callable[[InputFile], Iterable[Item]], progress: Pass) -> Iterator[Item]:
        """Yields the items that `read` gives for each opened file or range, and advances the position."""
        for file_range in self._ranges:
            file, size = file_range.read(self.format.separator or LINE_END, progress)
            yield from read(file)
            progress.position += size / 1e6
        if self._ranges:
            return
        begin, measured = progress.position * 1e6, self.total > 0
        for path, size in self.sizes.items():
            with opened(path) as raw:
                for item in read(InputFile(path, raw, progress)):
                    if measured:
                        progress.position = (begin + raw.tell()) / 1e6
                    yield item
            progress.check(str(path))
            begin += size
