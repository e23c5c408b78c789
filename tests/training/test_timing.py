import pytest

from bert_jax.config.operation import CheckpointConfig
from bert_jax.training.timing import Cadence


class Clock:
    """A clock that is set by hand, and what was agreed by it."""

    def __init__(self):
        self.seconds, self.agreed = 0.0, []

    def __call__(self):
        return self.seconds

    def agree(self, number):
        self.agreed.append(number)
        return number


def saves(cadence, clock, steps, seconds_a_step):
    """The steps of `steps` after which a checkpoint was due and begun."""
    found = []
    for step in steps:
        clock.seconds += seconds_a_step(step)
        if cadence.due(step):
            cadence.saved(step)
            found.append(step)
    return found


def test_by_steps_alone_nothing_is_agreed():
    clock = Clock()
    cadence = Cadence(CheckpointConfig(every=4), 0, clock, clock.agree, is_kept=lambda step: step % 6 == 0)
    assert [step for step in range(1, 25) if cadence.due(step)] == [4, 6, 8, 12, 16, 18, 20, 24]
    assert not clock.agreed


@pytest.mark.parametrize("speed", [lambda step: 1.0, lambda step: 0.01, lambda step: 1.0 if step % 7 else 20.0])
def test_by_time_one_is_due_soon_after_so_many_minutes(speed):
    clock = Clock()
    cadence = Cadence(CheckpointConfig(every=10**9, every_minutes=5), 0, clock, clock.agree)
    times, before = [], 0.0
    for step in range(1, 200_000):
        clock.seconds += speed(step)
        if cadence.due(step):
            cadence.saved(step)
            times.append(clock.seconds - before)
            before = clock.seconds
    assert times and all(300 <= passed <= 300 + 100 for passed in times)
    assert len(clock.agreed) < 40 * (len(times) + 1)


def test_a_checkpoint_for_another_reason_begins_the_time_anew():
    clock = Clock()
    cadence = Cadence(CheckpointConfig(every=50, every_minutes=1), 0, clock, clock.agree)
    assert saves(cadence, clock, range(1, 201), lambda step: 1.0) == [50, 100, 150, 200]
    assert saves(cadence, clock, range(201, 240), lambda step: 10.0) == [206, 212, 218, 224, 230, 236]


def test_all_hosts_save_after_the_same_steps_whatever_their_clocks_say():
    first, other, told = Clock(), Clock(), {}
    config = CheckpointConfig(every=10**9, every_minutes=1)
    leads = Cadence(config, 0, first, lambda number: told.setdefault(step, number))
    follows = Cadence(config, 0, other, lambda number: told[step])
    saved = []
    for step in range(1, 1000):
        first.seconds, other.seconds = first.seconds + 0.5, other.seconds + 3
        due = leads.due(step)
        assert follows.due(step) == due
        if due:
            leads.saved(step)
            follows.saved(step)
            saved.append(step)
    assert saved == list(range(120, 1000, 120))
