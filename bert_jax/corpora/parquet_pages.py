"""How large the pages of a Parquet file's column are, by their own headers: a file's footer may say anything."""

import io
from collections.abc import Iterator
from typing import NamedTuple

_HEADER_BYTES = (1 << 8, 1 << 16, 1 << 24)
"""Bytes that are read of a header, one after the other until it is whole: it may hold a page's least and largest
value."""
_UNPACKED, _PACKED = 2, 3
"""Numbers of PageHeader's fields uncompressed_page_size and compressed_page_size."""


class Page(NamedTuple):
    """Sizes in bytes of one page."""

    unpacked: int
    """What a reader allocates for it, and refuses it where it holds anything else."""
    compressed: int
    """What it takes in the file, its header included."""


def pages(file: io.BufferedIOBase, begin: int, size: int) -> Iterator[Page]:
    """The pages in `size` bytes of `file` from `begin` on, which a column's part of a row group takes.

    Raises ValueError where they are no pages.
    """
    end = begin + size
    while begin < end:
        fields, length = _header(file, begin)
        if min(fields.get(_UNPACKED, -1), fields.get(_PACKED, -1)) < 0:
            raise ValueError(f"at byte {begin:,} there is no header of a page")
        page = Page(fields[_UNPACKED], length + fields[_PACKED])
        yield page
        begin += page.compressed


def _header(file: io.BufferedIOBase, begin: int) -> tuple[dict[int, int], int]:
    """The integers of the header at `begin` by the numbers of their fields, and the header's length."""
    for most in _HEADER_BYTES:
        file.seek(begin)
        data = file.read(most)
        try:
            return _struct(data, 0)
        except IndexError:  # it is longer
            continue
        except RecursionError:
            break
    raise ValueError(f"at byte {begin:,} begins a page's header that has no end, or is nested too deep")


# Thrift's compact protocol, as far as page headers use it: they have no lists and no maps.
# github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md


def _struct(data: bytes, at: int) -> tuple[dict[int, int], int]:
    """The integers of the struct that begins at `at`, and where it ends."""
    integers: dict[int, int] = {}
    number = 0
    while head := data[at]:
        at += 1
        step, kind = head >> 4, head & 15
        if step:
            number += step
        else:
            number, at = _integer(data, at)
        if kind in (4, 5, 6):  # of 16, 32 and 64 bits
            integers[number], at = _integer(data, at)
        else:
            at = _after(data, at, kind)
    return integers, at + 1


def _after(data: bytes, at: int, kind: int) -> int:
    """Where the value of the type `kind` that begins at `at` ends."""
    if kind in (1, 2):  # true and false
        return at
    if kind == 3:  # a byte
        return at + 1
    if kind == 7:  # a float of 64 bits
        return at + 8
    if kind == 8:  # bytes
        length, at = _varint(data, at)
        return at + length
    if kind == 12:
        return _struct(data, at)[1]
    raise ValueError(f"a page's header has a field of the type {kind}")


def _integer(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return value >> 1 ^ -(value & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at + shift // 7]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at + shift // 7 + 1
    raise ValueError("a page's header has a number of more than 64 bits")
