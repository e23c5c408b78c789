import pytest

from bert_jax.instances.prepared_data import PreparedData
from bert_jax.instances.shards import InstanceSource
from bert_jax.pretraining import static_vectors


@pytest.mark.parametrize("share, step", [(1.0, 1), (0.6, 2), (0.3, 4)])
def test_at_most_so_many_tokens_are_read_and_of_less_text_all(tiny_run, share, step, monkeypatch):
    read, counted = InstanceSource.read, []
    monkeypatch.setattr(InstanceSource, "read", lambda self, numbers: counted.extend(numbers) or read(self, numbers))
    prepared = PreparedData.unchecked(tiny_run.data(32))
    text = InstanceSource(prepared, "train")
    count = len(text)
    monkeypatch.setattr(static_vectors, "_MOST_TOKENS", int(share * count * 32))
    static_vectors._neighbours(text, 150)
    assert len(counted) == len(range(0, count, step))
