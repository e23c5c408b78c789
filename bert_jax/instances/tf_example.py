"""The codec of one record: a TF Example (tensorflow/core/example/example.proto), a map from names to values.

    Example           1: Features
    Features          1: entry, once for each feature
    entry             1: name, 2: Feature
    Feature           1: BytesList or 3: Int64List
    BytesList         1: bytes
    Int64List         1: varints, packed

Each of these stands as a tag, its size and its content, one after the other (protobuf.dev, "Encoding"). Here a value is
one string of bytes or one number. Through protobuf's own classes a record takes 20 microseconds either way, here one
or two.
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
"""Wire types. The low three bits of a tag; the field's number is above them."""
_FEATURES = _ENTRY = _NAME = _BYTES_LIST = _CONTENT = 1 << 3 | _LENGTH_DELIMITED
_FEATURE = 2 << 3 | _LENGTH_DELIMITED
_INT64_LIST = 3 << 3 | _LENGTH_DELIMITED
_MOST_VARINT_BYTES = 10
_MOST_NUMBER = (1 << 31) - 1
_MOST_LAYOUTS = 8
"""Layouts that are remembered for records of one size: those of one writer have one, seldom two."""
_MOST_SIZES = 1 << 14
"""Sizes of records for which layouts are remembered."""


def encode_example(features: Sequence[tuple[str, Value]]) -> bytes:
    """The record with these features, in this order; protobuf's own classes write them in the order of their names.

    Numbers are from 0 to 2^31 - 1.
    """
    parts: list[bytes] = []
    for name, value in features:
        if isinstance(value, bytes):
            parts += (_before_bytes(name, len(value)), value)
        else:
            parts.append(_number_entry(name, value))
    return b"".join((_head(_FEATURES, sum(map(len, parts))), *parts))


class ExampleReader:
    """Reads the features of some names and kinds, in whatever order they stand; skips all others.

    A record is walked from its begin to its end by its own tags and sizes. Records of one writer have the same tags and
    sizes in the same places, so those of a walked record are remembered: a record that has just these bytes in these
    places would be walked in the same way, and its values are taken out at once. Threads may share a reader.
    """

    def __init__(self, kinds: dict[str, type[Value]]):
        """`kinds`: bytes or int for each name that is read."""
        self._kinds = kinds
        self._layouts: dict[int, list[_Layout]] = {}

    def read(self, records: Sequence[bytes]) -> list[tuple[bytes, ...]]:
        """Values of each record in the order of `kinds`, numbers as `numbers_of` takes them.

        Raises ValueError for a record that lacks one, or isn't well-formed.
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
        """Where this record has its values."""
        spans = _spans(record, self._kinds)
        if missing := self._kinds.keys() - spans.keys():
            raise ValueError(f"a record has no {min(missing)}")
        return _layout(record, [spans[name] for name in self._kinds])

    def _remember(self, size: int, layout: "_Layout") -> None:
        """The newest first. All are forgotten where there are too many, as no writer makes them."""
        if len(self._layouts) >= _MOST_SIZES:
            self._layouts = {}
        self._layouts[size] = [layout, *self._layouts.get(size, [])][:_MOST_LAYOUTS]


class _Layout(NamedTuple):
    """Where records of one size have their values, and which bytes stand between these in all of them."""

    frame_of: Callable[[bytes], tuple[bytes, ...]]
    """What stands before, between and after the values of a record: tags, sizes, names, skipped features."""
    frame: tuple[bytes, ...]
    values_of: Callable[[bytes], tuple[bytes, ...]]
    """The values of a record, in the order of the names that are read."""


def _layout(record: bytes, values: Sequence[tuple[int, int]]) -> _Layout:
    """The layout of `record`, whose values begin and end there."""
    bounds = [0, *(bound for span in sorted(values) for bound in span), len(record)]
    sizes = [end - begin for begin, end in zip(bounds, bounds[1:])]
    formats = ("".join(f"{size}{'sx'[(number + odd) % 2]}" for number, size in enumerate(sizes)) for odd in (0, 1))
    frame_of, values_of = (struct.Struct(form).unpack for form in formats)
    if list(values) != sorted(values):
        in_order = operator.itemgetter(*map(sorted(values).index, values))
        return _Layout(frame_of, frame_of(record), lambda other: in_order(values_of(other)))
    return _Layout(frame_of, frame_of(record), values_of)


def _spans(record: bytes, kinds: dict[str, type[Value]]) -> dict[str, tuple[int, int]]:
    """Begin and end of the value of each name in `kinds` that the record has; of the last where one comes twice."""
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
    """Begin and end of the one field of `message` that has this tag."""
    found = list(_fields(record, message, tag))
    if len(found) != 1:
        raise ValueError(f"a record has {len(found)} fields where it has one")
    return found[0]


def _fields(record: bytes, message: tuple[int, int], wanted: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each field with the tag `wanted` in the message that begins and ends at `message`."""
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
    """The number that begins at `at`, and where it ends."""
    value = 0
    for place, digit in enumerate(record[at : min(end, at + _MOST_VARINT_BYTES)]):
        value |= (digit & 0x7F) << 7 * place
        if digit < 0x80:
            return value, at + place + 1
    raise ValueError(f"a number of a record that begins at byte {at:,} has no end")


def numbers_of(varints: Sequence[bytes]) -> Int[np.ndarray, " n"]:
    """The number that each holds. Raises ValueError where one holds none, several, or one over 2^31 - 1."""
    return np.fromiter(map(_NUMBERS.__getitem__, varints), np.int32, len(varints))


class _Numbers(dict[bytes, int]):
    """The number of every varint that was seen: it is looked up sooner than worked out."""

    def __missing__(self, varint: bytes) -> int:
        value, end = _varint_at(varint, 0, len(varint))
        if end != len(varint) or value > _MOST_NUMBER:
            raise ValueError(f"a record has {varint[:_MOST_VARINT_BYTES].hex()} for a number")
        self[varint] = value
        return value


_NUMBERS = _Numbers()


@functools.cache
def _number_entry(name: str, value: int) -> bytes:
    """All of the entry of one number."""
    number = _varint(value)
    values = _head(_CONTENT, len(number)) + number
    return _before_feature(name, _INT64_LIST, len(values)) + values


@functools.cache
def _before_bytes(name: str, size: int) -> bytes:
    """The entry of one string of `size` bytes, up to that string."""
    before = _head(_CONTENT, size)
    return _before_feature(name, _BYTES_LIST, len(before) + size) + before


def _before_feature(name: str, kind: int, size: int) -> bytes:
    """What stands before the values, of `size` bytes, in the entry of one feature."""
    values = _head(kind, size)
    named = _head(_NAME, len(name.encode())) + name.encode() + _head(_FEATURE, len(values) + size)
    return _head(_ENTRY, len(named) + len(values) + size) + named + values


@functools.cache
def _head(tag: int, size: int) -> bytes:
    """Tag and size of a length-delimited field."""
    return bytes([tag]) + _varint(size)


def _varint(value: int) -> bytes:
    digits = []
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])
