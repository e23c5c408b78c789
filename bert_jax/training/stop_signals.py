"""Ending a run before its last step, by SIGTERM or Ctrl-C."""

import os
import signal

import jax
from jax.experimental import multihost_utils


class StopSignals:
    """Within the block SIGTERM and the first Ctrl-C ask for a stop after the step in flight.

    Of several processes each has JAX listen for SIGTERM instead, whichever gets it: they agree on the step. There a
    Ctrl-C is made a SIGTERM. A second Ctrl-C ends a process at once.
    """

    requested = False
    """Of this process. Whether the run is to stop is asked by `at`, on which all processes agree."""

    def __enter__(self) -> "StopSignals":
        alone = {signal.SIGTERM: self._request, signal.SIGINT: self._request}
        handlers = alone if jax.process_count() == 1 else {signal.SIGINT: self._request_of_all}
        self._before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        return self

    def at(self, step: int) -> bool:
        """Whether to stop after `step`; to be called at every step."""
        return multihost_utils.reached_preemption_sync_point(step) if jax.process_count() > 1 else self.requested

    def __exit__(self, *_) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _request(self, number: int, frame) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True

    def _request_of_all(self, number: int, frame) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.kill(os.getpid(), signal.SIGTERM)
