import numpy as np
import pytest
import tensorflow_datasets as tfds

from bert_jax.data.instances import Instance
from bert_jax.data.store import InstanceSource, ids_dtype, shard_path, write_metadata, write_shard
from bert_jax.system.errors import RunError
from bert_jax.system.files import FileSum


def instances(count, largest=60_000):
    rng = np.random.default_rng(0)
    for _ in range(count):
        size = int(rng.integers(5, 40))
        units = rng.integers(0, 16, size).astype(np.uint8)
        yield Instance(rng.integers(0, largest, size), units, int(rng.integers(2, size)), int(rng.integers(2)))


@pytest.fixture
def store(tmp_path):
    write_shard(shard_path(tmp_path, "train", 0), list(instances(300))[:200], np.uint16)
    write_shard(shard_path(tmp_path, "train", 1), [], np.uint16)
    write_shard(shard_path(tmp_path, "train", 2), list(instances(300))[200:], np.uint16)
    write_shard(shard_path(tmp_path, "held_out", 0), [], np.uint16)
    write_metadata(tmp_path, {"train": [200, 0, 100], "held_out": [0]}, np.uint16)
    return tmp_path


def equal(first, second):
    return all(np.array_equal(one, other) for one, other in zip(first, second))


def test_instances_come_back_by_number(store):
    source = InstanceSource(store, "train")
    assert len(source) == 300 and len(InstanceSource(store, "held_out")) == 0
    expected = list(instances(300))
    for number, found in zip([299, 0, 200, 7], source.__getitems__([299, 0, 200, 7])):
        assert equal(found, expected[number])


def test_tfds_reads_it_without_knowing_us(store):
    source = tfds.builder_from_directory(store).as_data_source("train")
    first = next(instances(1))
    assert np.array_equal(source[0]["ids"], first.ids)
    assert np.array_equal(source[0]["units"], first.units)
    assert (source[0]["first_length"], source[0]["pair_label"]) == first[2:]


def test_large_vocabularies_take_wider_ids(tmp_path):
    assert (ids_dtype(65_536), ids_dtype(65_537)) == (np.uint16, np.int32)
    write_shard(shard_path(tmp_path, "train", 0), instances(3, 100_000), np.int32)
    write_metadata(tmp_path, {"train": [3]}, np.int32)
    assert all(
        equal(*pair) for pair in zip(InstanceSource(tmp_path, "train").__getitems__([0, 1, 2]), instances(3, 100_000))
    )


def test_the_sum_is_the_files(store):
    path = shard_path(store, "train", 5)
    assert write_shard(path, instances(10), np.uint16) == FileSum.of(path)


@pytest.mark.parametrize("damage", ["flip", "cut"])
def test_a_damaged_shard_is_an_error_never_other_data(store, damage):
    path = shard_path(store, "train", 0)
    data = path.read_bytes()
    expected = list(instances(200))
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
            found = InstanceSource(store, "train").__getitems__(list(range(200)))
        except RunError as error:
            assert "damaged" in str(error) and str(store) in str(error) and "same command again" in str(error)
            refused += 1
        else:  # only what doesn't matter was hit: padding between records
            assert all(equal(*pair) for pair in zip(found, expected))
    assert refused > 5
