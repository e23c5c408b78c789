import numpy as np
import pytest

from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.task import Example
from bert_jax.finetuning.text_batches import TextBatches
from bert_jax.layout import TokenSequence

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
