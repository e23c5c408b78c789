import numpy as np
import pytest

from bert_jax.records import equal_keys as module
from bert_jax.records.equal_keys import equal_keys


@pytest.mark.parametrize("at_once", [10, 1000])
def test_equal_keys_are_found_whatever_fits_into_memory(at_once, monkeypatch):
    monkeypatch.setattr(module, "_AT_ONCE", at_once)
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 60, 100)
    numbers[:5] = 7
    keys = rng.integers(0, 2**32, (60, 4), np.uint32)[numbers]
    keys[:, :3] = keys[:, :1]  # they may differ in a part alone
    items = rng.permutation(100).astype(np.uint64)
    found, sizes = {}, []
    for groups in equal_keys(
        lambda: ((keys[begin : begin + 30], items[begin : begin + 30]) for begin in (0, 30, 60, 90)), 100
    ):
        sizes.append(len(groups.items))
        for number, start in enumerate(groups.starts):
            mine = groups.items[groups.group == number].tolist()
            assert groups.items[start] == mine[0] == min(mine) and mine == sorted(mine)
            assert groups.sizes[number] == len(mine)
            found[groups.keys[number].tobytes()] = mine
    expected = {}
    for key, item in zip(keys, items.tolist()):
        expected.setdefault(key.tobytes(), []).append(item)
    assert found == {key: sorted(items) for key, items in expected.items() if len(items) > 1}
    assert len(sizes) == 100 // at_once or len(sizes) == 1


def test_no_keys_are_in_no_groups():
    assert not list(equal_keys(lambda: iter(()), 0))
