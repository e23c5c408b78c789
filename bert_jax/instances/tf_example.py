"""Encodes and decodes TF Examples (tensorflow/core/example/example.proto): maps from names to values.

    Example           1: Features
    Features          1: entry, once for each feature
    entry             1: name, 2: Feature
    Feature           1: BytesList or 3: Int64List
    BytesList         1: bytes
    Int64List         1: varints, packed

Each field is encoded as a tag, its size and its content (protobuf.dev, "Encoding"). In this module a value is either
one byte string or one number. Encoding or decoding a record takes one or two microseconds; with protobuf's own classes
it takes 20.
"""

import functools
import operator
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

Value = bytes | int

_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
"""Wire types, the low three bits of a tag. The upper bits are the field number."""
_FEATURES = _ENTRY = _NAME = _BYTES_LIST = _CONTENT = 1 << 3 | _LENGTH_DELIMITED
_FEATURE = 2 << 3 | _LENGTH_DELIMITED
_INT64_LIST = 3 << 3 | _LENGTH_DELIMITED
_MOST_VARINT_BYTES = 10
_MOST_NUMBER = (1 << 31) - 1
_MOST_LAYOUTS = 8
"""Most layouts that are cached per record size. The records of one writer have one layout per size, rarely two."""
_MOST_SIZES = 1 << 14
"""Most record sizes for which layouts are cached."""


def encode_example(features: Sequence[tuple[str, Value]]) -> bytes:
    """Encodes a record with these features, in this order. Numbers must be from 0 to 2^31 - 1.

    Protobuf's own classes write the features sorted by name.
    """
    parts: list[bytes] = []
    for name, value in features:
        if isinstance(value, bytes):
            parts += (_before_bytes(name, len(value)), value)
        else:
            parts.append(_number_entry(name, value))
    return b"".join((_head(_FEATURES, sum(map(len, parts))), *parts))


class ExampleReader:
    """Reads chosen features of records, in any order, and skips all others. Thread-safe.

    The first record of a layout is parsed field by field. Records of one writer have the same tags and sizes at the
    same offsets, so the layout is cached: if another record of the same size has exactly these bytes at these offsets,
    parsing it would give the same offsets, and its values are extracted without parsing.
    """

    def __init__(self, kinds: dict[str, type[Value]]):
        """Creates a reader of the features in `kinds`, which maps each name to bytes or int."""
        self._kinds = kinds
        self._layouts: dict[int, list[_Layout]] = {}

    def read(self, records: Sequence[bytes]) -> list[tuple[bytes, ...]]:
        """Returns the values of each record in the order of `kinds`; a number is an encoded varint (see `numbers_of`).

        Raises ValueError if a record lacks a feature or is malformed.
        """
        found, layouts = [], self._layouts
        for record in records:
            for frame_of, frame, values_of in layouts.get(len(record), ()):
                if frame_of(record) == frame:
                    found.append(values_of(record))
                    break
            else:
                layout = self._walked(record)
                self._remember(len(record), layout)
                found.append(layout.values_of(record))
        return found

    def _walked(self, record: bytes) -> "_Layout":
        """Parses a record field by field; returns its layout."""
        spans = _spans(record, self._kinds)
        if missing := self._kinds.keys() - spans.keys():
            raise ValueError(f"a record has no {min(missing)}")
        return _layout(record, [spans[name] for name in self._kinds])

    def _remember(self, size: int, layout: "_Layout") -> None:
        """Caches a layout, newest first. Too many sizes empty the cache, which no ordinary writer causes."""
        if len(self._layouts) >= _MOST_SIZES:
            self._layouts = {}
        self._layouts[size] = [layout, *self._layouts.get(size, [])][:_MOST_LAYOUTS]


class _Layout(NamedTuple):
    """The offsets of the values in records of one size, and the bytes around the values."""

    frame_of: Callable[[bytes], tuple[bytes, ...]]
    """Extracts all bytes before, between and after the values of a record: tags, sizes, names, skipped features."""
    frame: tuple[bytes, ...]
    """The bytes around the values that all records of this layout have in common."""
    values_of: Callable[[bytes], tuple[bytes, ...]]
    """Extracts the values of a record, in the order of the requested names."""


def _layout(record: bytes, values: Sequence[tuple[int, int]]) -> _Layout:
    """Builds the layout of `record` from the begin and end offset of each value."""
    bounds = [0, *(bound for span in sorted(values) for bound in span), len(record)]
    sizes = [end - begin for begin, end in zip(bounds, bounds[1:])]
    # Struct formats that take every second stretch of the record ("s") and skip the others ("x").
    formats = ("".join(f"{size}{'sx'[(number + odd) % 2]}" for number, size in enumerate(sizes)) for odd in (0, 1))
    frame_of, values_of = (struct.Struct(form).unpack for form in formats)
    if list(values) != sorted(values):
        in_order = operator.itemgetter(*map(sorted(values).index, values))
        return _Layout(frame_of, frame_of(record), lambda other: in_order(values_of(other)))
    return _Layout(frame_of, frame_of(record), values_of)


def _spans(record: bytes, kinds: dict[str, type[Value]]) -> dict[str, tuple[int, int]]:
    """The begin and end of each value in `kinds` that the record has, by name; the last one if a name occurs twice."""
    found = {}
    for features in _fields(record, (0, len(record)), _FEATURES):
        for entry in _fields(record, features, _ENTRY):
            begin, end = _only(record, entry, _NAME)
            kind = kinds.get(record[begin:end].decode("utf-8", "replace"))
            if kind is not None:
                feature = _only(record, entry, _FEATURE)
                values = _only(record, feature, _BYTES_LIST if kind is bytes else _INT64_LIST)
                found[record[begin:end].decode()] = _only(record, values, _CONTENT)
    return found


def _only(record: bytes, message: tuple[int, int], tag: int) -> tuple[int, int]:
    """The begin and end of the only field of `message` with this tag. Raises ValueError if there isn't exactly one."""
    found = list(_fields(record, message, tag))
    if len(found) != 1:
        raise ValueError(f"a record has {len(found)} fields where it has one")
    return found[0]


def _fields(record: bytes, message: tuple[int, int], wanted: int) -> Iterator[tuple[int, int]]:
    """Yields the begin and end of each field with the tag `wanted`; `message` is the begin and end of the message."""
    at, end = message
    while at < end:
        tag, at = _varint_at(record, at, end)
        size, kind = 0, tag & 7
        if kind == _VARINT:
            _, at = _varint_at(record, at, end)
        elif kind == _LENGTH_DELIMITED:
            size, at = _varint_at(record, at, end)
        elif kind in (_FIXED32, _FIXED64):
            size = 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"a record has wire type {kind} before byte {at:,}, which no field has")
        if tag < 1 << 3:
            raise ValueError(f"a record has a field without a number before byte {at:,}")
        if size > end - at:
            raise ValueError(f"a field of a record has {size:,} bytes at byte {at:,} and only {end - at:,} are left")
        if tag == wanted:
            yield at, at + size
        at += size


def _varint_at(record: bytes, at: int, end: int) -> tuple[int, int]:
    """Decodes the varint at offset `at`; returns the number and the offset after it."""
    value = 0
    for place, digit in enumerate(record[at : min(end, at + _MOST_VARINT_BYTES)]):
        value |= (digit & 0x7F) << 7 * place
        if digit < 0x80:
            return value, at + place + 1
    raise ValueError(f"a number of a record that begins at byte {at:,} has no end")


def numbers_of(varints: Sequence[bytes]) -> Int[np.ndarray, " n"]:
    """Decodes each varint. Raises ValueError if one isn't exactly one number from 0 to 2^31 - 1."""
    return np.fromiter(map(_NUMBERS.__getitem__, varints), np.int32, len(varints))


class _Numbers(dict[bytes, int]):
    """Cache of decoded varints, as a lookup is faster than decoding."""

    def __missing__(self, varint: bytes) -> int:
        value, end = _varint_at(varint, 0, len(varint))
        if end != len(varint) or value > _MOST_NUMBER:
            raise ValueError(f"a record has {varint[:_MOST_VARINT_BYTES].hex()} for a number")
        self[varint] = value
        return value


_NUMBERS = _Numbers()


@functools.cache
def _number_entry(name: str, value: int) -> bytes:
    """The complete entry of a feature with one number."""
    number = _varint(value)
    values = _head(_CONTENT, len(number)) + number
    return _before_feature(name, _INT64_LIST, len(values)) + values


@functools.cache
def _before_bytes(name: str, size: int) -> bytes:
    """The entry of a feature with one byte string of `size` bytes, up to the string itself."""
    before = _head(_CONTENT, size)
    return _before_feature(name, _BYTES_LIST, len(before) + size) + before


def _before_feature(name: str, kind: int, size: int) -> bytes:
    """The bytes of a feature's entry that precede its values, which take `size` bytes."""
    values = _head(kind, size)
    named = _head(_NAME, len(name.encode())) + name.encode() + _head(_FEATURE, len(values) + size)
    return _head(_ENTRY, len(named) + len(values) + size) + named + values


@functools.cache
def _head(tag: int, size: int) -> bytes:
    """The encoded tag and size of a length-delimited field."""
    return bytes([tag]) + _varint(size)


def _varint(value: int) -> bytes:
    digits = []
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])
