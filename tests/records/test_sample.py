import pytest

from bert_jax.config.data import DataConfig
from bert_jax.records.sample import sample_documents, sample_mixture

DOCUMENTS = [(0, [f"document {number}", "x" * 90]) for number in range(1000)]


def size(sample, source=None):
    return sum(len("\n".join(document)) for number, document in sample if source in (None, number))


def test_a_sample_is_all_that_fits_and_one_document_at_least():
    assert sample_documents(DOCUMENTS, 1_000_000) == DOCUMENTS
    assert len(sample_documents([(0, ["x" * 100])], 10)) == 1


def test_a_sample_fills_its_bound_is_uniform_and_the_same_every_time_and_in_any_order():
    sample = sample_documents(DOCUMENTS, 30_000)
    assert 29_800 < size(sample) <= 30_000
    numbers = [int(first.split()[1]) for _, (first, _) in sample]
    assert numbers == sorted(numbers) and 400 < sum(numbers) / len(numbers) < 600
    assert sample == sample_documents(iter(DOCUMENTS), 30_000)
    assert sample == sample_documents(reversed(DOCUMENTS), 30_000)[::-1]


def test_what_was_left_out_once_is_not_replaced_by_something_smaller():
    uneven = [(0, [f"document {number}", "x" * (number * 37 % 400)]) for number in range(1000)]
    sample = sample_documents(uneven, 30_000)
    assert 29_000 < size(sample) <= 30_000
    assert sample == sample_documents(reversed(uneven), 30_000)[::-1]


LARGE = [(0, [f"large {number}", "x" * 90]) for number in range(1000)]
SMALL = [(1, [f"small {number}", "y" * 40]) for number in range(50)]


def mixed(documents, shares, limit):
    return sample_mixture(documents, 2, lambda sizes: shares, limit).documents


@pytest.mark.parametrize("limit", [1_000_000, 20_000])
@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.9, 0.1), (0.1, 0.9)])
def test_each_source_has_its_share_of_the_sample(shares, limit):
    sample = mixed([*LARGE, *SMALL], shares, limit)
    assert sample == mixed([*SMALL, *LARGE], shares, limit)
    whole = min(limit, size(LARGE) + size(SMALL))
    for source, share in enumerate(shares):
        assert size(sample, source) == pytest.approx(share * whole, abs=110)


@pytest.mark.parametrize("limit", [1_000_000, 20_000])
def test_shares_may_depend_on_the_sizes_that_are_known_at_the_end(limit):
    data = DataConfig(source=("a", "b"), smoothing=0.5)
    sample, sizes = sample_mixture([*LARGE, *SMALL], 2, data.shares, limit)
    assert sizes == [size(LARGE), size(SMALL)]
    expected = [share * min(limit, sum(sizes)) for share in data.shares(sizes)]
    assert [size(sample, 0), size(sample, 1)] == pytest.approx(expected, abs=110)


def test_a_small_source_is_repeated_evenly_and_nothing_is_asked_of_an_empty_one():
    sample = mixed([*LARGE, *SMALL], (0.5, 0.5), 1_000_000)
    times = [sample.count(document) for document in SMALL]
    assert max(times) - min(times) <= 1 and min(times) > 10
    assert {source for source, _ in mixed(LARGE, (0.5, 0.5), 1_000_000)} == {0}
