"""Instances as bytes and back: each a TF Example (tensorflow/core/example/example.proto), written out by hand.

Through protobuf's own classes an instance takes 20 microseconds either way, here one or two. The bytes are the same.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.data.instances import Instances

_LENGTH_DELIMITED = 2


def encode_instances(instances: Instances, dtype: type[np.integer]) -> Iterator[bytes]:
    """A record an instance: features `first_length`, `ids` (of `dtype`), `pair_label` and `units` in this order."""
    width = np.dtype(dtype).itemsize
    ids, units = instances.ids.astype(dtype).tobytes(), instances.units.tobytes()
    ends = instances.ends.tolist()
    numbers = zip(instances.first_length.tolist(), instances.pair_label.tolist())
    for begin, end, (first_length, pair_label) in zip(ends, ends[1:], numbers):
        size = end - begin
        first, label = _int_entry("first_length", first_length), _int_entry("pair_label", pair_label)
        before_ids, before_units = _bytes_entry("ids", size * width), _bytes_entry("units", size)
        features = len(first) + len(label) + len(before_ids) + len(before_units) + size * width + size
        yield b"".join((
            _head(1, features), first, before_ids, ids[begin * width : end * width], label, before_units,
            units[begin:end],
        ))  # fmt: skip


def decode_instances(records: Sequence[bytes], dtype: type[np.integer]) -> Instances:
    """Inverse of `encode_instances`. Raises ValueError for a record of a size that it doesn't give."""
    width = np.dtype(dtype).itemsize
    layouts = [_layout(len(record), width) for record in records]
    pairs = list(zip(records, layouts))
    ids = b"".join([record[at.ids : at.ids + at.tokens * width] for record, at in pairs])
    units = b"".join([record[at.units :] for record, at in pairs])
    return Instances(
        np.frombuffer(ids, dtype),
        np.frombuffer(units, np.uint8),
        np.cumsum([0, *(at.tokens for at in layouts)]),
        np.array([_number(record[at.first_length : at.first_length_end]) for record, at in pairs], np.int32),
        np.array([record[at.pair_label] for record, at in pairs], np.int32),
    )


class _Layout(NamedTuple):
    """Where in a record its fields begin."""

    tokens: int
    first_length: int
    first_length_end: int
    ids: int
    pair_label: int
    units: int


@functools.cache
def _layout(record_size: int, width: int) -> _Layout:
    """A record's size tells how many tokens it holds and how many bytes `first_length` takes: a token more is
    `width` + 1 bytes more at least, and a longer number (of at most `tokens`) one or two."""
    for tokens in range(record_size // (width + 1), -1, -1):
        for digits in range(1, len(_varint(tokens)) + 1):
            first = len(_int_entry("first_length", 1 << 7 * (digits - 1)))
            ids = first + len(_bytes_entry("ids", tokens * width))
            label = ids + tokens * width + len(_int_entry("pair_label", 0))
            units = label + len(_bytes_entry("units", tokens))
            head = len(_head(1, units + tokens))
            if head + units + tokens == record_size:
                return _Layout(tokens, head + first - digits, head + first, head + ids, head + label - 1, head + units)
    raise ValueError(f"a record of {record_size} bytes")


@functools.cache
def _int_entry(key: str, value: int) -> bytes:
    """A map entry with one integer: Feature.int64_list, packed."""
    number = _varint(value)
    packed = _head(1, len(number)) + number
    return _entry(key, len(packed) + len(_head(3, len(packed)))) + _head(3, len(packed)) + packed


@functools.cache
def _bytes_entry(key: str, size: int) -> bytes:
    """A map entry with one string of `size` bytes, up to that string: Feature.bytes_list."""
    value = _head(1, size)
    feature = _head(1, len(value) + size)
    return _entry(key, len(feature) + len(value) + size) + feature + value


def _entry(key: str, feature_size: int) -> bytes:
    """What stands before the Feature in one entry of Features.feature."""
    named = _head(1, len(key)) + key.encode() + _head(2, feature_size)
    return _head(1, len(named) + feature_size) + named


@functools.cache
def _head(field: int, size: int) -> bytes:
    """Tag and size of a length-delimited field."""
    return bytes([field << 3 | _LENGTH_DELIMITED]) + _varint(size)


def _varint(value: int) -> bytes:
    digits = []
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])


@functools.cache
def _number(varint: bytes) -> int:
    return sum((digit & 0x7F) << 7 * place for place, digit in enumerate(varint))
