"""Pieces of files, spread over a large source: what a sample reads in place of the whole."""

import bisect
import io
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bert_jax.records import limits
from bert_jax.records.compressed_files import DAMAGE, damage_error, decompressed, opened
from bert_jax.system.bucket import Place

BLANK_LINE, LINE_END = re.compile(rb"\n[ \t\r]*\n|\n(?=<doc )"), re.compile(rb"\n")
"""What ends a document of a text file, and a record of JSON lines."""
_SEARCHED_BYTES = 1 << 20
"""How far beyond its end a piece is read for the end of its last document."""
_STRIDE = 0.6180339887498949
"""Consecutive multiples of the golden ratio, modulo 1, are spread evenly, however many are taken."""


class Piece(NamedTuple):
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
                raise damage_error(self.path, error) from None
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


def spread_pieces(sizes: Mapping[Place, int], count: int, size: int) -> list[Piece]:
    """`count` pieces of `size` bytes at even distances over uncompressed files of these sizes. Any first ones of them
    are spread over all files, too."""
    ends = list(itertools.accumulate(sizes.values()))
    files = list(sizes.items())
    pieces = []
    for number in _spread_order(count):
        place = ends[-1] * number // count
        index = bisect.bisect_right(ends, place)
        path, of_file = files[index]
        pieces.append(Piece(path, place - (ends[index] - of_file), size))
    return pieces


def beginnings(paths: Sequence[Place], count: int, size: int) -> list[Piece]:
    """The first `size` bytes of `count` of the files, in an order of which any first ones are spread over all."""
    return [Piece(paths[len(paths) * number // count], 0, size) for number in _spread_order(count)]


def _spread_order(count: int) -> list[int]:
    return sorted(range(count), key=lambda number: number * _STRIDE % 1)
