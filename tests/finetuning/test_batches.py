import numpy as np
import pytest

from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.batches import TextBatches, TrainingBatches, task_batch
from bert_jax.finetuning.task import IGNORED, Example
from bert_jax.layout import TokenSequence

LENGTHS = (8, 16, 24)


def example(number, size=4, target=0, **others):
    return Example((TokenSequence([number] * size, size, False),), target, **others)


def training(count=100, seed=3, epochs=2, batch_size=8):
    sizes = np.random.default_rng(0).integers(3, 25, count).tolist()
    examples = [example(number + 1, size) for number, size in enumerate(sizes)]
    lengths = {"max_length": LENGTHS[-1], "padded_lengths": LENGTHS}
    config = TaskConfig(name="x", kind="class", batch_size=batch_size, epochs=epochs, **lengths)
    return TrainingBatches(examples, config, seed, pad_id=0)


def numbers(batch):
    return [row[0] for row, weight in zip(batch.tokens.ids[:, 0].tolist(), batch.weight) if weight]


def test_every_epoch_has_every_feature_once_in_an_order_of_its_own():
    source = training()
    assert len(source) == 26
    epochs = [[numbers(source[epoch * 13 + index]) for index in range(13)] for epoch in range(2)]
    for epoch in epochs:
        assert sorted(number for batch in epoch for number in batch) == list(range(1, 101))
        assert sorted(map(len, epoch)) == [4] + [8] * 12  # the last is filled up
    assert source[0].ordinal.tolist() == list(range(8)) and source[14].ordinal[0] == 14 * 8
    assert epochs[0] != epochs[1]
    assert epochs[0] != [numbers(training(seed=4)[index]) for index in range(13)]


def test_a_batch_is_a_function_of_its_number():
    whole = [numbers(batch) for batch in map(training().__getitem__, range(26))]
    other = training()
    for index in (25, 3, 14, 0):
        assert numbers(other[index]) == whole[index]
    longer = training(epochs=5)
    assert [numbers(longer[index]) for index in range(26)] == whole


def test_similar_lengths_go_together_and_batches_are_mixed(monkeypatch):
    monkeypatch.setattr("bert_jax.finetuning.batches._WINDOW_BATCHES", 16)
    source = training(4000)
    first = [source[index] for index in range(500)]
    assert {batch.tokens.ids.shape for batch in first} == {(8, 1, length) for length in LENGTHS}
    assert all(batch.tokens.ids.shape[2] - batch.tokens.length.max() < 8 for batch in first)
    spread = [np.ptp(batch.tokens.length[batch.weight > 0]) for batch in first]
    assert np.mean(spread) < 3
    longest = [batch.tokens.ids.shape[2] for batch in first]
    assert sorted(longest[:32], reverse=True) != longest[:32]
    tops = [batch.tokens.length.max() for batch in first[:32]]
    assert max(tops[:16]) - max(tops[16:32]) < 3  # each window has all lengths


@pytest.mark.parametrize("count, epochs, steps", [(1, 1, 1), (8, 0.1, 1), (9, 1.5, 3), (100, 1, 13)])
def test_steps_are_those_of_all_epochs(count, epochs, steps):
    source = training(count, epochs=epochs)
    assert len(source) == steps and source[steps - 1].tokens.ids.shape[0] == 8


def test_features_are_padded_and_filled_up_by_weight_0():
    batch = task_batch([example(7, 3, 1), example(9, 5, 0)], (4, 8), pad_id=2)
    assert batch.tokens.ids[:, 0].tolist() == [[7] * 3 + [2] * 5, [9] * 5 + [2] * 3, [2] * 8, [2] * 8]
    assert batch.tokens.length[:, 0].tolist() == [[3], [5], [0], [0]] and not batch.tokens.segment.any()
    assert (batch.target.tolist(), batch.weight.tolist()) == ([1, 0, 0, 0], [1, 1, 0, 0])
    assert batch.target.dtype == np.int32 and batch.marks.shape == (4, 0, 2)


def test_choices_and_marks_have_an_axis_of_their_own():
    two = Example((TokenSequence([5, 6], 1, False), TokenSequence([7, 8, 9], 2, False)), 1, marks=((0, 1), (1, 2)))
    batch = task_batch([two], (2, 4), pad_id=0)
    assert batch.tokens.ids.tolist() == [[[5, 6, 0, 0], [7, 8, 9, 0]], [[0] * 4] * 2]
    assert batch.tokens.length[..., 0].tolist() == [[2, 3], [0, 0]]
    assert batch.tokens.segment.tolist() == [[[0, 1, 0, 0], [0, 0, 1, 0]], [[0] * 4] * 2]
    assert batch.marks.tolist() == [[[0, 1], [1, 2]], [[0, 0], [0, 0]]]


@pytest.mark.parametrize(
    "target, expected, dtype",
    [
        (2.5, [2.5, 0.0], np.float32),
        ((1, 3), [[1, 3], [0, 0]], np.int32),
        ([IGNORED, 2, IGNORED], [[IGNORED, 2, IGNORED, IGNORED], [IGNORED] * 4], np.int32),
        (None, [0, 0], np.int32),
    ],
)
def test_targets_are_numbers_spans_or_tags(target, expected, dtype):
    batch = task_batch([example(7, 3, target)], (2, 4), pad_id=0)
    assert batch.target.tolist() == expected and batch.target.dtype == dtype


CONFIG = TaskConfig(
    **{"name": "x", "kind": "vectors", "texts": ("query", "positive"), "batch_size": 8, "max_length": 64},
    **{"epochs": 2.0, "most_negatives": 1},
)


def text(number, size):
    return TokenSequence([number] * size, size)


def groups(count=50):
    """Groups of two or three texts; text k of group g has the pieces 3 g + k + 1."""
    sizes = np.random.default_rng(0).integers(3, 40, (count, 3)).tolist()
    return [
        Example(tuple(text(3 * group + slot + 1, size) for slot, size in enumerate(of_group[: 2 + group % 2])))
        for group, of_group in enumerate(sizes)
    ]


def batches(seed=3, **settings) -> TextBatches:
    return TextBatches(groups(), CONFIG, seed, pad_id=0, **settings)


def texts_of(batch):
    """The pieces of each text by its slot."""
    found = {}
    for row, number in zip(*np.nonzero(batch.weight), strict=True):
        begin, length = batch.tokens.begin[row, number], batch.tokens.length[row, number]
        [piece] = set(batch.tokens.ids[row, begin : begin + length].tolist())
        found[int(batch.slot[row, number])] = piece
    return found


def test_a_batch_holds_every_text_of_its_groups_in_its_slot():
    source = batches()
    for number in (0, 7, 11):
        found = texts_of(source[number])
        expected = {}
        for group, example in enumerate(source.records(number)):
            for slot in range(2 + example % 2):
                expected[3 * group + slot] = 3 * example + slot + 1
        assert found == expected


def test_every_epoch_has_an_order_of_its_own_and_leaves_out_what_fills_no_batch():
    source = batches()
    assert len(source) == 12
    epochs = [[record for index in range(6) for record in source.records(6 * epoch + index)] for epoch in range(2)]
    assert all(len(set(epoch)) == 48 for epoch in epochs) and epochs[0] != epochs[1]
    assert epochs[0] != [record for index in range(6) for record in batches(seed=4).records(index)]


def test_batches_have_few_numbers_of_rows_in_which_each_fits():
    source, one_shape = batches(multiple=2), batches(multiple=2, compiling=1e9)
    rows = [len(source[number].slot) for number in range(12)]
    assert len({len(one_shape[number].slot) for number in range(12)}) == 1 < len(set(rows))
    assert one_shape.shape == source.shape and max(rows) == source.shape.rows == len(one_shape[0].slot)
    assert all(count % 2 == 0 for count in rows) and source.shape.length == 64
    filled = np.mean([source[number].tokens.length.sum() / (64 * rows[number]) for number in range(12)])
    assert filled > 0.7
    assert source.texts == np.mean([source[number].weight.sum() for number in range(12)])


def test_keys_come_from_the_place_in_the_order_alone():
    source = batches()
    batch = source[5]
    there = batch.weight > 0
    assert (batch.ordinal[there] == 5 * 8 * 3 + batch.slot[there]).all()
    assert len(set(batch.ordinal[there].tolist())) == there.sum()


def test_equal_texts_have_one_number():
    some = groups(8)
    some[1] = some[1]._replace(sequences=(some[0].sequences[1], some[1].sequences[1]))
    batch = TextBatches(some, CONFIG, 0, pad_id=0)[0]
    numbers = {}
    for row, place in zip(*np.nonzero(batch.weight), strict=True):
        begin, length = batch.tokens.begin[row, place], batch.tokens.length[row, place]
        pieces = tuple(batch.tokens.ids[row, begin : begin + length].tolist())
        assert numbers.setdefault(pieces, batch.text[row, place]) == batch.text[row, place]
    assert len(set(numbers.values())) == len(numbers) == batch.weight.sum() - 1


def test_a_process_reads_its_rows_alone():
    whole = batches(multiple=2)[3]
    rows = np.arange(1, len(whole.slot), 2)
    part = batches(multiple=2, local=lambda count: np.arange(1, count, 2))[3]
    assert np.array_equal(part.tokens.ids, whole.tokens.ids[rows]) and np.array_equal(part.slot, whole.slot[rows])


@pytest.mark.parametrize(("longest", "length"), [(5, 64), (64, 64), (20, 64)])
def test_short_texts_share_rows(longest, length):
    some = [Example((text(1, longest), text(2, 3))) for _ in range(8)]
    assert TextBatches(some, CONFIG, 0, pad_id=0).shape.length == length
