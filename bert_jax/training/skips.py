"""Steps that were skipped because a gradient wasn't finite."""

from bert_jax.run.measurement import Means
from bert_jax.run.state import TrainState


class Skips:
    """Looks for too many skipped steps in a row. The device is asked for the count only when it may have got there."""

    def __init__(self, limit: int, state: TrainState):
        self._limit = limit
        self._look_at = int(state.step) + max(limit - int(state.skipped_in_a_row), 1)

    def too_many(self, measured: Means, step: int) -> int:
        """The number of skipped steps in a row up to `step`, from its measurements; 0 below the limit."""
        if step < self._look_at:
            return 0
        in_a_row = int(measured["skipped_in_a_row"].total)
        self._look_at = step + max(self._limit - in_a_row, 1)
        return in_a_row if in_a_row >= self._limit else 0
