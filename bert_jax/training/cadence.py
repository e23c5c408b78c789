"""When checkpoints are due: by steps, and by the time since the last one."""

import time
from collections.abc import Callable

from bert_jax.config.operation import CheckpointConfig
from bert_jax.run.hosts import agreed


class Cadence:
    """Says after which steps a checkpoint is due; on several hosts the same steps on all of them.

    The clock is the first host's. To hear what it says stops all devices for a moment, so that isn't done at every
    step: the first host tells all in how many steps to ask again. That is half of those that fit into what is left of
    the time, and at most as many as were taken since the last checkpoint, as they may become slower.
    """

    def __init__(
        self,
        config: CheckpointConfig,
        step: int,
        clock: Callable[[], float] = time.monotonic,
        agree: Callable[[int], int] = agreed,
    ):
        """`step`: the one that this process begins after. `agree` gives the first host's number to all."""
        self._every, self._keep_every, self._clock, self._agree = config.every, config.keep_every, clock, agree
        self._seconds = config.every_minutes and config.every_minutes * 60
        self.saved(step)

    def saved(self, step: int) -> None:
        """Notes that a checkpoint was begun after `step`: time counts from now. To be called on all hosts."""
        self._saved, self._saved_at, self._ask_at = step, self._clock(), step + 1

    def due(self, step: int) -> bool:
        """Whether a checkpoint is due after `step`. To be called after every step, on all hosts."""
        by_step = step % self._every == 0 or bool(self._keep_every) and step % self._keep_every == 0
        return by_step or self._due_by_time(step)

    def _due_by_time(self, step: int) -> bool:
        if self._seconds is None or step < self._ask_at:
            return False
        passed = self._clock() - self._saved_at
        left, taken = self._seconds - passed, step - self._saved
        steps = 0
        if left > 0:
            steps = max(1, int(min(left / 2 / max(passed, 1e-9), 1) * taken))
        steps = self._agree(steps)
        self._ask_at = step + steps
        return steps == 0
