"""Records of instances, the shards that hold them, and reading by number."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow_datasets as tfds
from array_record.python.array_record_module import ArrayRecordWriter
from hypothesis import given, settings
from hypothesis import strategies as st
from prepared_sets import seal
from tensorflow_datasets.proto import tf_example_pb2

from bert_jax.instances.instances import Instances
from bert_jax.instances.prepared_data import PreparedData
from bert_jax.instances.shards import (
    InstanceSource,
    ShardReader,
    decode_instances,
    encode_instances,
    ids_dtype,
    shard_path,
    write_shard,
)
from bert_jax.system.errors import RunError

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


def flipped(at, bits):
    """`RECORD` with one byte changed."""
    return RECORD[:at] + bytes([RECORD[at] ^ bits]) + RECORD[at + 1 :]


@given(st.builds(flipped, st.integers(0, len(RECORD) - 1), st.integers(1, 255)) | st.binary(max_size=200))
@settings(max_examples=200)
def test_other_bytes_are_refused_or_give_an_instance(record):
    """One whose parts have the lengths that it says."""
    try:
        found = decode_instances([RECORD, record], np.uint16)
    except ValueError:
        with pytest.raises(ValueError):
            decode_instances([record], np.uint16)
        return
    assert found.sequences == 2 and found.ends[1] == 6 and found.ends[2] == len(found.ids) == len(found.units)
    assert 0 <= found.first_length[1] <= found.ends[2] - 6


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"units": None}, "0 values of units"),
        ({"units": bytes(5)}, "another number of ids"),
        ({"first_length": 7}, "first_length beyond"),
        ({"first_length": 1 << 31}, "for a number"),
        ({"first_length": b"4"}, "0 values of first_length"),
    ],
)
def test_a_record_that_is_no_instance_is_refused(changes, reason):
    features = {"first_length": 4, "ids": bytes(12), "pair_label": 1, "units": bytes(6)} | changes
    features = [(name, value) for name, value in features.items() if value is not None]
    with pytest.raises(ValueError, match=reason):
        decode_instances([encode_example(features)], np.uint16)


def instances(count, first=0, largest=60_000):
    """Sequences `first` to `first` + `count` - 1 of a fixed row."""
    rows = [np.random.default_rng(number) for number in range(first, first + count)]
    sizes = [int(rng.integers(5, 40)) for rng in rows]
    ids = [rng.integers(0, largest, size) for rng, size in zip(rows, sizes)]
    units = [rng.integers(0, 16, size, np.uint8) for rng, size in zip(rows, sizes)]
    first_length = np.array([rng.integers(2, size) for rng, size in zip(rows, sizes)], int)
    pair_label = np.array([rng.integers(2) for rng in rows], int)
    return Instances(np.concatenate(ids), np.concatenate(units), np.cumsum([0, *sizes]), first_length, pair_label)


@pytest.fixture
def store(tmp_path):
    write_shard(shard_path(tmp_path, "train", 0), [instances(150), instances(50, first=150)], np.uint16)
    write_shard(shard_path(tmp_path, "train", 1), [], np.uint16)
    write_shard(shard_path(tmp_path, "train", 2), [instances(100, first=200)], np.uint16)
    write_shard(shard_path(tmp_path, "held_out", 0), [], np.uint16)
    seal(tmp_path, {"train": [200, 0, 100], "held_out": [0]}, np.uint16)
    return tmp_path


def test_instances_come_back_by_number(store):
    source = InstanceSource(PreparedData.unchecked(store), "train")
    assert len(source) == 300 and len(InstanceSource(PreparedData.unchecked(store), "held_out")) == 0
    for numbers in ([299], [0], [200, 7]):
        found = source.read(numbers)
        assert found.sequences == len(numbers)
        for at, number in enumerate(numbers):
            begin, end = found.ends[at : at + 2]
            one = Instances(
                found.ids[begin:end],
                found.units[begin:end],
                found.ends[:1],
                *(values[at : at + 1] for values in found[3:5]),
            )
            expected = instances(1, first=number)
            assert equal(one, expected._replace(ends=expected.ends[:1]))


def test_a_missing_split_is_damage(store):
    with pytest.raises(RunError, match="holds no prepared records of the split test"):
        InstanceSource(PreparedData.unchecked(store), "test")


def test_threads_may_share_a_source(store):
    source = InstanceSource(PreparedData.unchecked(store), "train")
    whole = source.read(range(300))
    with ThreadPoolExecutor(8) as threads:
        assert all(equal(found, whole) for found in threads.map(source.read, [range(300)] * 40))


def test_tfds_reads_it_without_knowing_us(store):
    source = tfds.builder_from_directory(store).as_data_source("train")
    first = instances(1)
    assert np.array_equal(source[0]["ids"], first.ids)
    assert np.array_equal(source[0]["units"], first.units)
    assert (source[0]["first_length"], source[0]["pair_label"]) == (first.first_length[0], first.pair_label[0])


def test_large_vocabularies_take_wider_ids(tmp_path):
    assert (ids_dtype(65_536), ids_dtype(65_537)) == (np.uint16, np.int32)
    write_shard(shard_path(tmp_path, "train", 0), [instances(3, largest=100_000)], np.int32)
    seal(tmp_path, {"train": [3]}, np.int32)
    source = InstanceSource(PreparedData.unchecked(tmp_path), "train")
    assert equal(source.read([0, 1, 2]), instances(3, largest=100_000))


@pytest.mark.parametrize("damage", ["flip", "cut"])
def test_a_damaged_shard_is_an_error_never_other_data(store, damage):
    path = shard_path(store, "train", 0)
    data = path.read_bytes()
    expected = instances(200)
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(60):
        if damage == "flip":
            changed = bytearray(data)
            changed[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
        else:
            changed = data[: rng.integers(len(data))]
        path.write_bytes(changed)
        try:
            found = InstanceSource(PreparedData.unchecked(store), "train").read(range(200))
        except RunError as error:
            assert "damaged" in str(error) and str(store) in str(error) and "same command again" in str(error)
            refused += 1
        else:  # only what doesn't matter was hit: padding between records
            assert equal(found, expected)
    assert refused > 5


def broken(path, records, number):
    """Flips a bit in the middle of record `number`."""
    data, record = bytearray(path.read_bytes()), ShardReader(path, records).read(number)
    data[data.find(record) + len(record) // 2] ^= 4
    path.write_bytes(data)


def test_a_damaged_record_is_named_and_costs_no_other(store):
    broken(shard_path(store, "train", 2), 100, 17)
    source = InstanceSource(PreparedData.unchecked(store), "train")
    for _ in range(2):
        with pytest.raises(RunError, match=r"train-00002.array_record: record 17 \(record 217 of train\) is damaged"):
            source.read([4, 217, 218])
        assert equal(source.read(range(218, 300)), instances(82, first=218))


def test_what_is_skipped_has_no_tokens_and_is_said_once(store, capsys):
    broken(shard_path(store, "train", 2), 100, 17)
    source = InstanceSource(PreparedData.unchecked(store), "train", "skip")
    for _ in range(3):
        found = source.read([216, 217, 218])
        assert np.diff(found.ends).tolist()[1] == 0
        around = [instances(1, first=number).ids for number in (216, 218)]
        assert found.ids.tolist() == np.concatenate(around).tolist()
    said = capsys.readouterr().err.replace("\n", "")
    assert said.count("WARNING") == 1 and "record 17" in said


def test_all_records_of_a_file_that_is_gone_are_skipped(store, capsys):
    shard_path(store, "train", 2).unlink()
    with pytest.raises(RunError, match="train-00002.array_record is damaged or gone"):
        InstanceSource(PreparedData.unchecked(store), "train").read([205])
    found = InstanceSource(PreparedData.unchecked(store), "train", "skip").read(range(195, 300))
    left = instances(5, first=195)
    lengths, labels = (np.append(values, np.zeros(100, int)) for values in (left.first_length, left.pair_label))
    assert equal(found, left._replace(ends=found.ends, first_length=lengths, pair_label=labels))
    assert capsys.readouterr().err.count("WARNING") == 1


@pytest.mark.parametrize(
    "options, record, words",
    [
        ("group_size:1", bytes(100), "is compressed"),
        ("group_size:1,uncompressed", bytes(17_000_000), "17,000,000 bytes"),
    ],
)
def test_a_shard_that_could_fill_the_memory_is_refused(store, options, record, words):
    path = shard_path(store, "train", 0)
    writer = ArrayRecordWriter(str(path), options)
    for number in range(200):
        writer.write(record if number == 7 else b"")
    writer.close()
    with pytest.raises(RunError, match=words):
        InstanceSource(PreparedData.unchecked(store), "train").read([7])
