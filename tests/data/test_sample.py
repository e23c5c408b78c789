from bert_jax.data.sample import sample_documents

DOCUMENTS = [[f"document {number}", "x" * 90] for number in range(1000)]


def test_everything_is_kept_if_it_fits():
    assert sample_documents(DOCUMENTS, 1_000_000) == DOCUMENTS


def test_a_sample_is_bounded_uniform_and_the_same_every_time():
    sample = sample_documents(DOCUMENTS, 30_000)
    assert 10_000 < sum(len(line) for document in sample for line in document) <= 30_000
    numbers = [int(first.split()[1]) for first, _ in sample]
    assert 400 < sum(numbers) / len(numbers) < 600
    assert sample == sample_documents(iter(DOCUMENTS), 30_000)


def test_one_document_larger_than_the_limit_is_kept():
    assert len(sample_documents([["x" * 100]], 10)) == 1
