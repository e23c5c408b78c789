import numpy as np
import pytest
from tensorflow_datasets.proto import tf_example_pb2

from bert_jax.data.instances import Instances
from bert_jax.data.records import decode_instances, encode_instances

SIZES = [0, 1, 3, 41, 42, 60, 63, 64, 126, 127, 128, 129, 512, 5461, 16384, 40000]


def some(sizes, first_lengths):
    rng = np.random.default_rng(0)
    total = sum(sizes)
    ends = np.cumsum([0, *sizes])
    labels = np.arange(len(sizes)) % 2
    ids = rng.integers(0, 60_000, total)
    return Instances(ids, rng.integers(0, 256, total, np.uint8), ends, np.array(first_lengths, int), labels)


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
        assert all(np.array_equal(one, other) for one, other in zip(back, instances))


def test_a_record_of_another_size_is_refused():
    record = next(encode_instances(some([5], [3]), np.uint16))
    with pytest.raises(ValueError, match="a record of"):
        decode_instances([record[:-1]], np.uint16)


def test_no_records_are_no_instances():
    assert decode_instances([], np.uint16).count == 0
