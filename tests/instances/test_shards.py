import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorflow_datasets.proto import tf_example_pb2

from bert_jax.instances.instances import Instances
from bert_jax.instances.shards import decode_instances, encode_instances

RECORD = bytes.fromhex(
    "0a5a0a150a0c66697273745f6c656e67746812051a030a01040a170a0369647312100a0e0a0c0200e8035fea0300460003000a130a0a7061"
    "69725f6c6162656c12051a030a01010a130a05756e697473120a0a080a06000301000300"
)
"""`INSTANCE` as a record."""
INSTANCE = Instances(
    np.array([2, 1000, 59_999, 3, 70, 3]),
    np.array([0, 3, 1, 0, 3, 0], np.uint8),
    np.array([0, 6]),
    np.array([4]),
    np.array([1]),
)


def equal(first, second):
    return all(np.array_equal(one, other) for one, other in zip(first, second, strict=True))


def encode_example(features):
    """A TF Example with these features."""
    example = tf_example_pb2.Example()
    for name, value in features:
        feature = example.features.feature[name]
        (feature.bytes_list if isinstance(value, bytes) else feature.int64_list).value.append(value)
    return example.SerializeToString(deterministic=True)


def test_a_record_is_read_and_written_as_it_always_was():
    assert equal(decode_instances([RECORD], np.uint16), INSTANCE)
    assert next(encode_instances(INSTANCE, np.uint16)) == RECORD
    more = encode_example([("weight", 300)])  # its feature follows those that are read
    assert equal(decode_instances([RECORD + more], np.uint16), INSTANCE)


@given(st.lists(st.integers(0, 300), max_size=5), st.sampled_from([np.uint16, np.int32]), st.integers(0, 2**32))
def test_whatever_is_written_comes_back(sizes, dtype, seed):
    rng, total = np.random.default_rng(seed), sum(sizes)
    written = Instances(
        rng.integers(0, 60_000, total),
        rng.integers(0, 256, total, np.uint8),
        np.cumsum([0, *sizes]),
        rng.integers(0, np.array(sizes, int) + 1),
        rng.integers(0, 2, len(sizes)),
    )
    back = decode_instances(list(encode_instances(written, dtype)), dtype)
    assert back.ids.dtype == dtype and equal(back[:5], written[:5])


def test_a_record_cut_short_is_refused():
    for size in range(len(RECORD)):
        with pytest.raises(ValueError):
            decode_instances([RECORD, RECORD[:size]], np.uint16)


@given(st.integers(0, len(RECORD) - 1), st.integers(1, 255))
def test_a_flipped_byte_is_refused_or_gives_another_instance(at, bits):
    flipped = bytearray(RECORD)
    flipped[at] ^= bits
    check_well_formed(bytes(flipped))


@given(st.binary(max_size=200))
def test_other_bytes_are_refused_or_give_an_instance(content):
    check_well_formed(content)


def check_well_formed(record):
    """Decoding raises ValueError, or gives one instance, whose parts have the lengths that it says."""
    try:
        found = decode_instances([RECORD, record], np.uint16)
    except ValueError:
        with pytest.raises(ValueError):
            decode_instances([record], np.uint16)
        return
    assert found.sequences == 2 and found.ends[1] == 6 and found.ends[2] == len(found.ids) == len(found.units)
    assert 0 <= found.first_length[1] <= found.ends[2] - 6


@pytest.mark.parametrize(
    ("features", "reason"),
    [
        ([("first_length", 4), ("ids", bytes(12)), ("pair_label", 1)], "0 values of units"),
        ([("first_length", 4), ("ids", bytes(12)), ("pair_label", 1), ("units", bytes(5))], "another number of ids"),
        ([("first_length", 7), ("ids", bytes(12)), ("pair_label", 1), ("units", bytes(6))], "first_length beyond"),
        ([("first_length", 1 << 31), ("ids", bytes(12)), ("pair_label", 1), ("units", bytes(6))], "for a number"),
        (
            [("first_length", b"4"), ("ids", bytes(12)), ("pair_label", 1), ("units", bytes(6))],
            "0 values of first_length",
        ),
    ],
)
def test_a_record_that_is_no_instance_is_refused(features, reason):
    with pytest.raises(ValueError, match=reason):
        decode_instances([encode_example(features)], np.uint16)
