import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from bert_jax.run.state import TrainState, check_on_devices, check_state, sum_of_bits, sum_of_bits_on_host

RNG = np.random.default_rng(0)


def tree():
    return {
        "long": RNG.normal(size=(3, 5, 70_001)).astype(np.float32),
        "count": np.full((), 7, np.int32),
        "short": RNG.normal(size=9).astype(jnp.bfloat16),
    }


def test_the_same_on_the_host_and_on_any_device():
    arrays = tree()
    expected = sum_of_bits_on_host(arrays)
    assert int(jax.jit(sum_of_bits)(jax.tree.map(jnp.asarray, arrays))) == expected
    mesh = jax.make_mesh((1,), ("data",))
    split = jax.device_put(arrays["long"], NamedSharding(mesh, PartitionSpec(None, None, "data")))
    assert int(jax.jit(sum_of_bits)(arrays | {"long": split})) == expected


def test_every_bit_and_every_place_counts():
    arrays = tree()
    expected = sum_of_bits_on_host(arrays)
    words = arrays["long"].reshape(-1).view(np.uint32)
    for _ in range(50):
        place, bit = RNG.integers(len(words)), np.uint32(1 << RNG.integers(32))
        words[place] ^= bit
        assert sum_of_bits_on_host(arrays) != expected
        words[place] ^= bit
    words[[3, 70_000]] = words[[70_000, 3]]
    assert sum_of_bits_on_host(arrays) != expected
    words[[3, 70_000]] = words[[70_000, 3]]
    assert sum_of_bits_on_host(arrays) == expected
    same = {"a": np.ones(4, np.float32), "b": np.zeros(4, np.float32)}
    assert sum_of_bits_on_host(same) != sum_of_bits_on_host({"a": same["b"], "b": same["a"]})


@pytest.mark.parametrize("bad, finite", [(None, True), (np.nan, False), (-np.inf, False)])
def test_one_number_that_is_not_finite_is_seen(bad, finite):
    params = {"kernel": RNG.normal(size=(4, 4)).astype(np.float32)}
    if bad:
        params["kernel"][2, 3] = bad
    state = TrainState(*jax.tree.map(jnp.asarray, (np.int32(3), params, (np.int32(1), params), {}, 2, 2, 3)))
    check, on_devices = check_state(state), check_on_devices(state)
    assert isinstance(check.bits, np.uint32) and check == jax.device_get(on_devices)
    assert bool(check.finite) is finite and int(check.skipped_in_a_row) == 2


@pytest.mark.parametrize("function", [check_state, check_on_devices])
def test_the_check_holds_after_the_state_is_donated(function):
    shapes = (np.int32(3), {"kernel": np.ones((512, 512), np.float32)}, (), {"loss": np.ones(2, np.float32)}, 2, 2, 3)
    state = TrainState(*jax.tree.map(jnp.asarray, shapes))
    check = function(state)
    jax.block_until_ready(jax.jit(lambda state: jax.tree.map(lambda leaf: leaf + 1, state), donate_argnums=0)(state))
    assert state.window["loss"].is_deleted()
    assert check.window["loss"].tolist() == [1, 1] and int(check.skipped_in_a_row) == 2
