"""Reads the sizes of a Parquet column's pages from the page headers, since the sizes in the footer may be forged."""

import io
from collections.abc import Iterator
from typing import NamedTuple

_HEADER_BYTES = (1 << 8, 1 << 16, 1 << 24)
"""Numbers of bytes to try to read for a page header: it may be long, as it may contain the page's extreme values."""
_UNPACKED, _PACKED = 2, 3
"""Thrift field numbers of uncompressed_page_size and compressed_page_size in PageHeader."""


class Page(NamedTuple):
    """The sizes of one page."""

    unpacked: int
    """Decompressed size in bytes. A reader allocates this much, and refuses a page of any other size."""
    compressed: int
    """Size in the file in bytes, header included."""


def pages(file: io.BufferedIOBase, begin: int, size: int) -> Iterator[Page]:
    """Yields the pages of one column chunk, which takes `size` bytes of `file` from offset `begin`.

    Raises ValueError if the bytes there are no pages.
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
    """The integer fields of the header at `begin`, by field number, and the header's length in bytes."""
    for most in _HEADER_BYTES:
        file.seek(begin)
        data = file.read(most)
        try:
            return _struct(data, 0)
        except IndexError:  # the header is longer than `most`
            continue
        except RecursionError:
            break
    raise ValueError(f"at byte {begin:,} begins a page's header that has no end, or is nested too deep")


# The subset of Thrift's compact protocol that page headers use: they have no lists and no maps.
# github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md


def _struct(data: bytes, at: int) -> tuple[dict[int, int], int]:
    """The integer fields of the struct at offset `at`, by field number, and the offset after the struct."""
    integers: dict[int, int] = {}
    number = 0
    while head := data[at]:
        at += 1
        step, kind = head >> 4, head & 15
        if step:
            number += step
        else:
            number, at = _integer(data, at)
        if kind in (4, 5, 6):  # integers of 16, 32 and 64 bits
            integers[number], at = _integer(data, at)
        else:
            at = _after(data, at, kind)
    return integers, at + 1


def _after(data: bytes, at: int, kind: int) -> int:
    """The offset after the value of type `kind` that begins at offset `at`."""
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
