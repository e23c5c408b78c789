"""Instances of segments, and rows of several sequences."""

import numpy as np
import pytest
import tensorflow_datasets as tfds
from hypothesis import given
from hypothesis import strategies as st
from prepared_sets import build, read_all

from bert_jax.batching.packing import best_fit
from bert_jax.instances.instances import build_instances
from bert_jax.instances.prepared_data import PreparedData
from bert_jax.instances.segments import Segments
from bert_jax.instances.shards import InstanceSource, decode_instances, encode_instances
from bert_jax.layout import MASKABLE, WORD_START
from bert_jax.training.batch import assemble

CLS, SEP = 2, 3
BOTH, INSIDE = MASKABLE | WORD_START, MASKABLE
TOKENS = np.arange(10, 30)
UNITS = np.where(np.isin(TOKENS, [11, 12, 15, 19]), INSIDE, BOTH).astype(np.uint8)


def built(segments, paired, **frame):
    return build_instances(segments, TOKENS, UNITS, CLS, SEP, paired=paired, **frame)


def test_pairs_become_instances_with_their_words_marked():
    begin, end = np.array([0, 5, 9, 0]), np.array([5, 9, 10, 2])
    made = built(Segments(begin, end, np.array([2, 2]), np.array([1, 0]), 0), paired=True)
    assert made.ids.tolist() == [CLS, 10, 11, 12, 13, 14, SEP, 15, 16, 17, 18, SEP, CLS, 19, SEP, 10, 11, SEP]
    first = [0, BOTH, INSIDE, INSIDE, BOTH, BOTH, 0, BOTH, BOTH, BOTH, BOTH, 0]
    assert made.units.tolist() == first + [0, BOTH, 0, BOTH, INSIDE, 0]
    assert made.ends.tolist() == [0, 12, 18]
    assert (made.first_length.tolist(), made.pair_label.tolist()) == ([7, 3], [1, 0])


def test_without_pairs_all_of_a_sequence_is_segment_0():
    begin, end = np.array([0, 5, 6, 7]), np.array([2, 6, 7, 9])
    made = built(Segments(begin, end, np.array([1, 3]), np.array([0, 0]), 0), paired=False)
    assert made.ids.tolist() == [CLS, 10, 11, SEP, CLS, 15, SEP, 16, SEP, 17, 18, SEP]
    assert made.units.tolist() == [0, BOTH, INSIDE, 0, 0, BOTH, 0, BOTH, 0, BOTH, BOTH, 0]
    assert made.first_length.tolist() == [4, 8]


@pytest.mark.parametrize("paired", [False, True])
def test_a_last_class_token_follows_the_last_separator(paired):
    begin, end = np.array([0, 5, 6, 7]), np.array([2, 6, 7, 9])
    segments = Segments(begin, end, np.array([2, 2]), np.array([0, 1]), 0)
    made = built(segments, paired, class_token="last")
    assert made.ids.tolist() == [10, 11, SEP, 15, SEP, CLS, 16, SEP, 17, 18, SEP, CLS]
    assert made.units.tolist() == [BOTH, INSIDE, 0, BOTH, 0, 0, BOTH, 0, BOTH, BOTH, 0, 0]
    assert made.ends.tolist() == [0, 6, 12]
    assert made.first_length.tolist() == ([3, 2] if paired else [6, 6])
    assert np.array_equal(np.sort(made.ids), np.sort(built(segments, paired).ids))


@given(st.lists(st.integers(1, 40), max_size=60), st.integers(1, 5))
def test_rows_are_filled_and_never_too_full(lengths, most):
    rows = best_fit(np.array(lengths, int), 40, most)
    plain = []  # of each row: the room left, minus the time it was used last, its sequences
    for time, number in enumerate(sorted(range(len(lengths)), key=lambda number: -lengths[number])):
        fitting = [row for row in plain if row[0] >= lengths[number] and len(row[2]) < most]
        if not fitting:
            plain.append([40, 0, []])
        row = min(fitting, default=plain[-1])
        row[0] -= lengths[number]
        row[1] = -time
        row[2].append(number)
    assert sorted(row[2] for row in plain) == sorted(
        sorted(np.flatnonzero(rows == row).tolist(), key=lambda number: -lengths[number]) for row in set(rows.tolist())
    )


def test_it_is_nearly_as_good_as_can_be_and_rows_are_in_the_order_of_the_text():
    lengths = np.random.default_rng(0).integers(5, 513, 4000)
    rows = best_fit(lengths, 512, 16)
    assert np.all(np.diff(np.unique(rows, return_index=True)[1]) > 0)
    assert lengths.sum() / ((rows.max() + 1) * 512) > 0.98


def sequences_of(found):
    """Each sequence with all that is said of it, sorted."""
    parts = zip(
        np.split(found.ids, found.ends[1:-1]),
        np.split(found.units, found.ends[1:-1]),
        found.first_length.tolist(),
        found.pair_label.tolist(),
    )
    return sorted((ids.tolist(), units.tolist(), first, label) for ids, units, first, label in parts)


@pytest.fixture(scope="module")
def packed(recipe, tmp_path_factory) -> PreparedData:
    """A set of short sequences, several in a row."""
    data = recipe.data.replace(packed=True, short_sequence_probability=0.9)
    return build(recipe._replace(data=data, length=128), tmp_path_factory.mktemp("packed"))


def test_packed_data_hold_the_same_sequences_in_fewer_rows(packed, recipe, tmp_path):
    data = recipe.data.replace(short_sequence_probability=0.9)
    together, apart = packed, build(recipe._replace(data=data, length=128), tmp_path)
    assert together.train.instances == apart.train.instances == apart.train.rows > together.train.rows
    assert together.train.instance_tokens == apart.train.instance_tokens
    assert together.train.fill(128) > 0.9 > apart.train.fill(128)
    assert sum(together.sources) == together.train.rows and together.fingerprint != apart.fingerprint
    for split in ("train", "held_out"):
        ours, theirs = (read_all(directory, split) for directory in (packed.directory, tmp_path))
        assert sequences_of(ours) == sequences_of(theirs)
    # Held-out sequences have a row each, in the same order: an evaluation is the same.
    assert np.array_equal(ours.ids, theirs.ids) and np.array_equal(ours.ends, theirs.ends)
    assert ours.rows.tolist() == list(range(ours.sequences))


def test_batches_number_the_sequences_of_each_row(packed):
    source = InstanceSource(packed, "train")
    found = source.read([5, 0, 3])
    batch = assemble(found, np.array([7, 8, 9, 2**32 - 1]), 128, most=4)
    assert batch.tokens.length.shape == batch.weight.shape == batch.pair_label.shape == (4, 4)
    assert batch.ordinal.tolist()[:3] == [[28, 29, 30, 31], [32, 33, 34, 35], [36, 37, 38, 39]]
    assert batch.ordinal[3].tolist() == [2**32 - 4, 2**32 - 3, 2**32 - 2, 2**32 - 1]
    for row, record in enumerate((5, 0, 3)):
        one = source.read([record])
        assert np.array_equal(batch.tokens.length[row, : one.sequences], np.diff(one.ends))
        assert np.array_equal(batch.pair_label[row, : one.sequences], one.pair_label)
        assert np.array_equal(batch.tokens.ids[row][batch.tokens.sequence[row] > 0], one.ids)
        assert batch.weight[row].sum() == one.sequences
    assert not batch.weight[3].any()


def test_tfds_reads_packed_records(packed):
    theirs = tfds.builder_from_directory(packed.directory).as_data_source("train")
    ours = InstanceSource(packed, "train")
    for number in range(5):
        one, record = ours.read([number]), theirs[number]
        assert np.array_equal(record["length"], np.diff(one.ends)) and np.array_equal(record["ids"], one.ids)
        assert np.array_equal(record["first_length"], one.first_length)


def test_a_malformed_record_is_refused(packed):
    found = InstanceSource(packed, "train").read([0])
    (record,) = encode_instances(found, np.uint16)
    with pytest.raises(ValueError, match="another length than its units"):
        decode_instances(list(encode_instances(found._replace(units=found.units[:-1]), np.uint16)), np.uint16, True)
    with pytest.raises(ValueError, match="beyond its end"):
        (wrong,) = encode_instances(found._replace(first_length=found.first_length + 99), np.uint16)
        decode_instances([wrong], np.uint16, True)
    with pytest.raises(ValueError):
        decode_instances([record[:-3]], np.uint16, True)
    with pytest.raises(ValueError):
        decode_instances([record], np.uint16)
