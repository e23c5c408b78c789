"""A trace of a few steps, to see where their time goes."""

from typing import Any

import jax

from bert_jax.system.bucket import Place
from bert_jax.system.copies import publish, worked_on
from bert_jax.system.progress import say


class StepTrace:
    """Records the steps of `steps` that are done within the block, as a trace in `directory`."""

    def __init__(self, steps: range, directory: Place):
        self._steps, self._directory = steps, directory
        self._recording = False

    def before(self, step: int, pending: Any) -> None:
        """To be called before step number `step` is dispatched; `pending` is what is still being computed."""
        if step in self._steps and not self._recording:
            jax.block_until_ready(pending)
            jax.profiler.start_trace(worked_on(self._directory))
            self._recording = True

    def after(self, step: int, pending: Any) -> None:
        """To be called after step number `step` is dispatched. The last step writes the trace."""
        if self._recording and step == self._steps[-1]:
            jax.block_until_ready(pending)
            self._write()

    def __enter__(self) -> "StepTrace":
        return self

    def __exit__(self, *_) -> None:
        if self._recording:  # stopped before the last of them
            self._write()

    def _write(self) -> None:
        self._recording = False
        jax.profiler.stop_trace()
        publish(self._directory)
        say(f"trace of steps {self._steps[0]:,} to {self._steps[-1]:,}: {self._directory}")
