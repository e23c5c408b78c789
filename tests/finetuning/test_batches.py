import numpy as np
import pytest

from bert_jax.config.task import TaskConfig
from bert_jax.config.task_kind import TASK_KINDS
from bert_jax.finetuning.batches import TaskBatches, TextBatches, task_batch
from bert_jax.finetuning.task import IGNORED, Example
from bert_jax.layout import TokenSequence


def example(number, size=4, target=0, **others):
    return Example((TokenSequence([number] * size, size, False),), target, **others)


def training(count=100, seed=3, epochs=2, batch_size=8, **others):
    sizes = np.random.default_rng(0).integers(3, 25, count).tolist()
    examples = [example(number + 1, size) for number, size in enumerate(sizes)]
    config = TaskConfig(name="x", kind="class", batch_size=batch_size, epochs=epochs, max_length=64)
    return TaskBatches(examples, config, seed, pad_id=0, **others)


def numbers(batch):
    """The pieces of the examples in training order."""
    rows, places = np.nonzero(batch.weight)
    found = batch.tokens.ids[rows, batch.tokens.begin[rows, places]]
    return found[np.argsort(batch.ordinal[rows, places])].tolist()


def test_every_epoch_has_every_example_once_in_an_order_of_its_own():
    source = training()
    assert len(source) == 26
    epochs = [[numbers(source[epoch * 13 + index]) for index in range(13)] for epoch in range(2)]
    for epoch in epochs:
        assert sorted(number for batch in epoch for number in batch) == list(range(1, 101))
        assert list(map(len, epoch)) == [8] * 9 + [7] * 4
    assert sorted(source[14].ordinal[source[14].weight > 0].tolist()) == list(range(14 * 8, 15 * 8))
    assert epochs[0] != epochs[1]
    assert epochs[0] != [numbers(training(seed=4)[index]) for index in range(13)]
    longer = training(epochs=5)  # a batch is a function of its number, whatever was read before
    assert [numbers(longer[index]) for index in (25, 3, 14)] == [epochs[1][12], epochs[0][3], epochs[1][1]]


def test_batches_have_about_as_many_tokens_and_others_in_each_epoch():
    source = training(4000, batch_size=32)
    tokens = np.array([source[number].tokens.length.sum() for number in range(250)]).reshape(2, 125)
    assert np.ptp(tokens) < 32 < np.ptp(np.random.default_rng(0).integers(3, 25, (125, 32)).sum(axis=1))
    first, second = ([set(source.record_numbers(number)) for number in range(begin, begin + 125)] for begin in (0, 125))
    assert max(len(one & other) for one in first for other in second) < 8


def test_examples_share_rows_of_one_shape_without_loss():
    source = training(400, batch_size=32, compiling=1e9)
    batches = [source[number] for number in range(len(source))]
    assert {batch.tokens.ids.shape for batch in batches} == {(source.shape.rows, source.shape.length)}
    assert len({len(batch.weight) for batch in map(training(400, batch_size=32).__getitem__, range(26))}) > 1
    filled = [batch.tokens.length.sum() / batch.tokens.ids.size for batch in batches]
    assert np.mean(filled) > 0.85
    for batch in batches:
        for row, place in zip(*np.nonzero(batch.weight), strict=True):
            begin, length = batch.tokens.begin[row, place], batch.tokens.length[row, place]
            assert set(batch.tokens.sequence[row, begin : begin + length].tolist()) == {place + 1}
            assert len(set(batch.tokens.ids[row, begin : begin + length].tolist())) == 1


def test_a_batch_that_needs_more_rows_than_those_looked_at_before_gets_them(monkeypatch):
    monkeypatch.setattr("bert_jax.finetuning.batches._SAMPLED_BATCHES", 1)
    monkeypatch.setattr(TaskBatches, "_row_length", lambda self: 64)
    examples = [example(number + 1, size) for number, size in enumerate([3, 60, 60, 60] * 25)]
    config, more = TaskConfig(name="x", kind="class", batch_size=2, epochs=1), 0
    for seed in range(4):
        source = TaskBatches(examples, config, seed, pad_id=0)
        batches = [source[number] for number in range(len(source))]
        assert sum(int(batch.weight.sum()) for batch in batches) == 100
        more += max(len(batch.weight) for batch in batches) > source.shape.rows
    assert more


@pytest.mark.parametrize("count, epochs, steps", [(1, 1, 1), (8, 0.1, 1), (9, 1.5, 3)])
def test_steps_are_those_of_all_epochs(count, epochs, steps):
    source = training(count, epochs=epochs)
    assert len(source) == steps and source[steps - 1].weight.sum() in (1, 4, 5, 8)


def test_choices_share_a_row_and_marks_have_an_axis_of_their_own():
    two = Example((TokenSequence([5, 6], 1, False), TokenSequence([7, 8, 9], 2, False)), 1, marks=((0, 1), (1, 2)))
    batch = task_batch(TASK_KINDS["choice"], [two], (2, 8), pad_id=3)
    assert batch.tokens.ids.tolist() == [[5, 6, 7, 8, 9, 3, 3, 3], [3] * 8] and batch.weight.tolist() == [[1], [0]]
    assert batch.tokens.length.tolist() == [[2, 3], [0, 0]] and batch.tokens.begin.tolist() == [[0, 2], [0, 0]]
    assert batch.tokens.segment.tolist() == [[0, 1, 0, 0, 1, 0, 0, 0], [0] * 8]
    assert batch.marks.tolist() == [[[[0, 1], [1, 2]]], [[[0, 0], [0, 0]]]]


NUMBERS_OF_TOKENS = TASK_KINDS["tags"]._replace(target_dtype="float32")


@pytest.mark.parametrize(
    "kind, target, expected, dtype",
    [
        (TASK_KINDS["number"], 2.5, [[0.0, 2.5], [0.0, 0.0]], np.float32),
        (TASK_KINDS["span"], (1, 3), [[[0, 0], [1, 3]], [[0, 0], [0, 0]]], np.int32),
        (TASK_KINDS["tags"], [IGNORED, 2, 1], [[IGNORED, IGNORED, IGNORED, 2, 1, IGNORED], [IGNORED] * 6], np.int32),
        (NUMBERS_OF_TOKENS, [IGNORED, 0.5], [[IGNORED] * 3 + [0.5] + [IGNORED] * 2, [IGNORED] * 6], np.float32),
        (TASK_KINDS["tags"], None, [[0, 0], [0, 0]], np.int32),
    ],
)
def test_targets_are_numbers_spans_or_tags(kind, target, expected, dtype):
    nothing = {float: 0.0, tuple: (0, 0), list: [IGNORED, IGNORED]}.get(type(target))
    examples = [example(9, 2, nothing), example(7, 3, target)]
    batch = task_batch(kind, examples, (2, 6), pad_id=0, example_rows=np.zeros(2, int), most=2)
    assert batch.target.tolist() == expected and batch.target.dtype == dtype and batch.marks.shape == (2, 2, 0, 2)


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
        batch = source[number]
        found, there = texts_of(batch), batch.weight > 0
        expected = {}
        for group, example in enumerate(source.record_numbers(number)):
            for slot in range(2 + example % 2):
                expected[3 * group + slot] = 3 * example + slot + 1
        assert found == expected and len(found) == there.sum()
        assert found == texts_of(batches()[number])  # a function of its number, whatever was read before
        assert (batch.ordinal[there] == number * 8 * 3 + batch.slot[there]).all()  # keys come from the place alone


def test_every_epoch_has_an_order_of_its_own_and_leaves_out_what_fills_no_batch():
    source = batches()
    assert len(source) == 12
    epochs = [
        [record for index in range(6) for record in source.record_numbers(6 * epoch + index)] for epoch in range(2)
    ]
    assert all(len(set(epoch)) == 48 for epoch in epochs) and epochs[0] != epochs[1]
    assert epochs[0] != [record for index in range(6) for record in batches(seed=4).record_numbers(index)]


def test_all_batches_have_one_number_of_rows_in_which_each_fits():
    source = batches(multiple=3, compiling=1e9)
    rows, length, _ = source.shape
    assert {source[number].slot.shape for number in range(12)} == {(-(-rows // 3) * 3, source.shape.sequences)}
    filled = np.mean([source[number].tokens.length.sum() / (rows * length) for number in range(12)])
    assert filled > 0.8
    assert source.sequences == np.mean([source[number].weight.sum() for number in range(12)])


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


@pytest.mark.parametrize("sizes", [(64, 3), (20, 17), (130, 40)])
def test_rows_have_a_length_that_leaves_little_room(sizes):
    some = [Example(tuple(text(number, size) for number, size in enumerate(sizes))) for _ in range(8)]
    rows, length, _ = TextBatches(some, CONFIG, 0, pad_id=0).shape
    assert sum(sizes) * 8 > 0.75 * rows * length and length >= max(sizes) and length % 32 == 0
