"""Ending a run before its last step, by SIGTERM or Ctrl-C."""

import os
import signal
from collections.abc import Callable

import jax
from jax.experimental import multihost_utils

from bert_jax.system import interruption


class StopSignals:
    """Within the block the first SIGTERM or Ctrl-C asks for a stop after the step in flight; others change nothing.

    In a command a second Ctrl-C ends the process at once (see `interruption`); elsewhere it raises KeyboardInterrupt.
    Of several processes each has JAX listen for SIGTERM instead, whichever gets it: they agree on the step. There a
    Ctrl-C is made a SIGTERM.
    """

    requested = False
    """Of this process. Whether the run is to stop is asked by `at`, on which all processes agree."""

    def __init__(self, newest: Callable[[], int | None]):
        """`newest`: step of the newest checkpoint, which is named where a second Ctrl-C ends the process."""
        self._telling = interruption.telling(lambda: _left(newest()))

    def __enter__(self) -> "StopSignals":
        self._telling.__enter__()
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
        self._telling.__exit__(None, None, None)

    def _request(self, number: int, frame) -> None:
        if self.requested and number == signal.SIGINT and not interruption.watched():
            raise KeyboardInterrupt
        interruption.heed()
        self.requested = True

    def _request_of_all(self, number: int, frame) -> None:
        interruption.heed()
        signal.signal(signal.SIGINT, _nothing if interruption.watched() else signal.default_int_handler)
        os.kill(os.getpid(), signal.SIGTERM)


def _nothing(number: int, frame) -> None:
    """Handles a signal that `interruption` acts upon."""


def _left(newest: int | None) -> str:
    """The message about the checkpoint that remains after an immediate exit."""
    if newest is None:
        return "there is no checkpoint yet; give the same command again to begin anew"
    return f"the newest checkpoint is the one from step {newest:,}; give the same command again to go on from there"
