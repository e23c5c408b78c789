"""Encodes instances as records and decodes them. A record has one feature for each field of an instance."""

from collections.abc import Iterator, Sequence

import numpy as np

from bert_jax.instances.instances import Instances
from bert_jax.instances.tf_example import ExampleReader, encode_example, numbers_of

_READER = ExampleReader({"first_length": int, "ids": bytes, "pair_label": int, "units": bytes})


def encode_instances(instances: Instances, dtype: type[np.integer]) -> Iterator[bytes]:
    """Yields a record per instance with the features `first_length`, `ids` (of type `dtype`), `pair_label`, `units`."""
    width = np.dtype(dtype).itemsize
    ids, units = instances.ids.astype(dtype).tobytes(), instances.units.tobytes()
    ends = instances.ends.tolist()
    numbers = zip(instances.first_length.tolist(), instances.pair_label.tolist())
    for begin, end, (first_length, pair_label) in zip(ends, ends[1:], numbers):
        yield encode_example((
            ("first_length", first_length), ("ids", ids[begin * width : end * width]), ("pair_label", pair_label),
            ("units", units[begin:end]),
        ))  # fmt: skip


def decode_instances(records: Sequence[bytes], dtype: type[np.integer]) -> Instances:
    """Decodes records of `encode_instances`. Features may be in any order; unknown features are ignored.

    Raises ValueError if a record is malformed, or if its fields are inconsistent.
    """
    if not records:
        return Instances(np.zeros(0, dtype), np.zeros(0, np.uint8), np.zeros(1, int), *np.zeros((2, 0), np.int32))
    first_length, ids, pair_label, units = zip(*_READER.read(records))
    sizes, first_lengths = np.array([*map(len, units)]), numbers_of(first_length)
    if (sizes * np.dtype(dtype).itemsize != [*map(len, ids)]).any():
        raise ValueError("a record has another number of ids than of units")
    if (first_lengths > sizes).any():
        raise ValueError("a record has a first_length beyond its end")
    return Instances(
        np.frombuffer(b"".join(ids), dtype),
        np.frombuffer(b"".join(units), np.uint8),
        np.concatenate([[0], np.cumsum(sizes)]),
        first_lengths,
        numbers_of(pair_label),
    )
