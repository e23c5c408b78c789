"""The rates that bound a computation."""

from bert_jax.planning.rates import Limit, Rate, RateProbes, Rates, copy


def test_the_limit_is_that_of_products_or_of_memory():
    matrix, memory = (Rate(per_second=rate, source="measured", measured=rate) for rate in (2.0, 10.0))
    rates = Rates(matrix=matrix, memory=memory)
    assert rates.limit(6, 10) == Limit(seconds=3.0, binds="FLOPs")
    assert rates.limit(6, 50) == Limit(seconds=5.0, binds="bytes")


def test_a_copy_is_in_place_and_counts_what_is_read_and_written():
    probe = copy(1024)
    first = probe.run()
    assert float(first[0]) == 1.0 and float(probe.run()[-1]) == 2.0
    assert first.is_deleted() and probe.amount == 2 * 4096


def test_the_rates_are_those_of_the_shortest_times():
    probes = RateProbes("float32")
    times = {name: [4.0, 2.0] for name in probes.work} | {"product of 2048": [8.0, 1.0]}
    found = probes.rates(times)
    assert found.matrix == Rate(per_second=2 * 2048**3, source="measured", measured=2 * 2048**3)
    assert found.memory.per_second == 2 * 4 * (1 << 26) / 2
