import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorflow_datasets.proto import tf_example_pb2

from bert_jax.instances.instances import Instances
from bert_jax.instances.shards import decode_instances, encode_instances

SIZES = [0, 1, 3, 41, 42, 60, 63, 64, 126, 127, 128, 129, 512, 5461, 16384, 40000]
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


def some(sizes, first_lengths):
    rng = np.random.default_rng(0)
    total = sum(sizes)
    ends = np.cumsum([0, *sizes])
    labels = np.arange(len(sizes)) % 2
    ids = rng.integers(0, 60_000, total)
    return Instances(ids, rng.integers(0, 256, total, np.uint8), ends, np.array(first_lengths, int), labels)


def equal(first, second):
    return all(np.array_equal(one, other) for one, other in zip(first, second, strict=True))


def features_of(record):
    """Each feature's name and entry in a record of fewer than 128 bytes, in its order."""
    at, found = 2, []
    while at < len(record):
        end = at + 2 + record[at + 1]
        found.append(record[at:end])
        at = end
    return found


def encode_example(features):
    """A TF Example with these features."""
    example = tf_example_pb2.Example()
    for name, value in features:
        feature = example.features.feature[name]
        (feature.bytes_list if isinstance(value, bytes) else feature.int64_list).value.append(value)
    return example.SerializeToString(deterministic=True)


def joined(*entries):
    """The entries as they are, without protobuf's classes between."""
    body = b"".join(entries)
    assert len(body) < 128
    return bytes([10, len(body)]) + body


@st.composite
def instances(draw):
    sizes = draw(st.lists(st.integers(0, 300), min_size=1, max_size=5))
    made = some(sizes, [draw(st.integers(0, size)) for size in sizes])
    return made._replace(ids=made.ids + draw(st.integers(0, 5_000)))


@pytest.mark.parametrize("dtype", [np.uint16, np.int32])
def test_records_are_what_protobuf_writes_and_come_back(dtype):
    first_lengths = [0, 1, 2, 127, 128, 16383, 16384, 70_000]
    for first_length in first_lengths:
        instances = some(SIZES, [min(first_length, size) for size in SIZES])
        records = list(encode_instances(instances, dtype))
        numbers = zip(instances.first_length.tolist(), instances.pair_label.tolist())
        for record, begin, end, (first, label) in zip(
            records, instances.ends[:-1], instances.ends[1:], numbers, strict=True
        ):
            example = tf_example_pb2.Example()
            feature = example.features.feature
            feature["ids"].bytes_list.value.append(instances.ids[begin:end].astype(dtype).tobytes())
            feature["units"].bytes_list.value.append(instances.units[begin:end].tobytes())
            feature["first_length"].int64_list.value.append(first)
            feature["pair_label"].int64_list.value.append(label)
            assert record == example.SerializeToString(deterministic=True)
        back = decode_instances(records, dtype)
        assert back.ids.dtype == dtype
        assert equal(back, instances)


@given(instances(), st.sampled_from([np.uint16, np.int32]))
def test_whatever_is_written_comes_back(written, dtype):
    assert equal(decode_instances(list(encode_instances(written, dtype)), dtype), written)


def test_a_record_is_read_and_written_as_it_always_was():
    assert equal(decode_instances([RECORD], np.uint16), INSTANCE)
    assert next(encode_instances(INSTANCE, np.uint16)) == RECORD


@given(st.permutations(features_of(RECORD)))
def test_features_may_stand_in_any_order(entries):
    assert equal(decode_instances([joined(*entries)], np.uint16), INSTANCE)


@given(st.data())
def test_what_it_does_not_know_is_skipped(data):
    unknown = st.sampled_from(
        [
            next(iter(features_of(encode_example([("weight", 300)])))),
            next(iter(features_of(encode_example([("offsets", b"\x0a\x03ids")])))),
            b"\x0a\x11\x0a\x05score\x12\x08\x12\x06\x0a\x04\x00\x00\x80\x3f",  # a float_list
            b"\x18\x96\x01",  # a varint, field 3 of Features
            b"\x25abcd",  # 4 bytes, field 4
            b"\x29abcdefgh",  # 8 bytes, field 5
            b"\x32\x02hi",  # a string, field 6
        ]
    )
    extra = data.draw(st.lists(unknown, min_size=1, max_size=2))
    entries = data.draw(st.permutations([*features_of(RECORD), *extra]))
    body = b"".join(entries)
    record = b"\x0a" + (bytes([len(body)]) if len(body) < 128 else bytes([len(body) & 127 | 128, 1])) + body
    assert set(tf_example_pb2.Example.FromString(record).features.feature) >= {"ids", "units"}
    assert equal(decode_instances([RECORD, record], np.uint16), two_of(INSTANCE))


def two_of(one):
    size = len(one.ids)
    return Instances(*(np.tile(values, 2) for values in one[:2]), np.array([0, size, 2 * size]), *(
        np.tile(values, 2) for values in one[3:5]
    ))  # fmt: skip


@pytest.mark.parametrize("size", range(len(RECORD)))
def test_a_record_cut_short_is_refused(size):
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


def test_no_records_are_no_instances():
    assert decode_instances([], np.uint16).sequences == 0
