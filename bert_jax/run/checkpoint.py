"""Checkpoints: written in the background, verified once they are written, when an older one is to go, and when read."""

import contextlib
import functools
import threading
import time
from collections.abc import Callable
from typing import Any

import jax
import orbax.checkpoint as ocp

from bert_jax.model.bert import Parameters
from bert_jax.run.checkpoint_choice import best_of
from bert_jax.run.hosts import agreed, fails_together, is_first, wait_for_all
from bert_jax.run.manifest import (
    Manifest,
    agree_with_list,
    complete,
    damaged_file,
    delete,
    incomplete,
    is_kept_for_good,
    is_sound,
    keep_for_good,
    make_complete,
    path_of,
    set_aside,
    write_evaluation,
)
from bert_jax.run.measurement import with_sums
from bert_jax.run.saved_state import bits_on_disk, restored_state
from bert_jax.run.state import TrainState, saved_item
from bert_jax.run.state_check import StateCheck, check_state
from bert_jax.system.bucket import Place
from bert_jax.system.disk import reason
from bert_jax.system.errors import RunError
from bert_jax.system.files import FileSum, absolute, remove_directory
from bert_jax.system.progress import warn

_UNFINISHED = ".orbax-checkpoint-tmp"
"""What orbax appends to the name of a directory that it is still writing."""

_LATE_LOOKS, _LATE_PAUSE_S = 5, 0.1
"""How often and how long apart the remains of a failed save are deleted at the end: its threads may still write."""


class Checkpoints:
    """The checkpoints of a run: one directory a step, with parameters, training state, config and tokenizer.

    One counts as good when all files have their checksums and, right after it was written, gave back the state bit for
    bit. The newest `keep` good ones stay, the best one (of a task by its score, otherwise by its held-out loss), the
    newest that was saved after a step with finite gradients, and for good each whose step is a multiple of
    `keep_every`.
    """

    def __init__(
        self,
        directory: Place,
        carried: tuple[Place, ...],
        keep: int,
        check_owner: Callable[[], None] = lambda: None,
        keep_every: int | None = None,
        stranger: Callable[[Place], str | None] = lambda path: None,
    ):
        """Each checkpoint takes copies of the files and directories `carried`, so that it can be used by itself.

        `check_owner` is called before each is written and raises RunError where the run is another process' by now.
        `stranger` says why a checkpoint isn't of this run, or returns None; such a one isn't continued.
        """
        self._directory, self._carried, self._keep, self._check_owner = directory, carried, keep, check_owner
        self._keep_every, self._stranger = keep_every, stranger
        if is_first():
            with contextlib.suppress(OSError, RunError):  # a disk that takes nothing: the next save says so
                agree_with_list(directory)
        self._delete_unfinished()
        # One item: every further item would start threads of its own, and the loop would wait for them.
        # Directories are made at once: if that fails in the background, waiting threads keep the process alive.
        self._checkpointer = ocp.AsyncCheckpointer(
            ocp.StandardCheckpointHandler(),
            async_options=ocp.options.AsyncOptions(create_directories_asynchronously=False),
        )
        self._finishing: threading.Thread | None = None
        self.failure: str | None = None
        """Why the newest save failed, if it did."""
        self.newest: int | None = None
        """Step of the newest checkpoint that is whole, as far as this process knows."""

    def save(
        self,
        step: int,
        state: TrainState,
        evaluation: dict[str, float] | None,
        metrics: FileSum | None = None,
    ) -> None:
        """Begins to write `state`; it may be donated at once. A save that fails is reported, and the next one tried.

        `metrics`: of the run's metrics.jsonl up to `step`.
        """
        self.wait()
        self._check_owner()
        path, check = path_of(self._directory, step), check_state(state)
        try:
            if self.failure:
                self._delete_unfinished()
            if is_first():
                delete(path)  # complete or not: this state takes its place
                path.parent.mkdir(parents=True, exist_ok=True)
            self._checkpointer.save(absolute(path), args=ocp.args.StandardSave(saved_item(state)))
        except Exception as error:  # the writer underneath raises OSError, ValueError and others
            self._failed(step, error)
            return
        skeleton = jax.tree.map(lambda _: 0, saved_item(state))
        complete_it = functools.partial(self._complete, path, step, evaluation, check, metrics, skeleton)
        self._finishing = threading.Thread(target=self._finish, args=(step, complete_it))
        self._finishing.start()

    def add_evaluation(self, step: int, evaluation: dict[str, float]) -> None:
        """Adds measurements to the checkpoint of `step`, which was written before they were made."""
        self.wait()
        path = path_of(self._directory, step)
        if is_first() and path in complete(self._directory):
            write_evaluation(path, evaluation)

    def wait(self) -> None:
        """Waits until nothing is being written."""
        if self._finishing:
            self._finishing.join()
            self._finishing = None

    def finish(self) -> None:
        """Waits until the last checkpoint is complete on all processes. If it could not be written, `failure` is set on
        all of them.

        Only the first process completes it. If another one exited before, JAX would end the first some seconds later,
        and the other might go on with a checkpoint that the first doesn't use.
        """
        self.wait()
        wait_for_all("checkpoints finished")
        self.failure = fails_together(self.failure)

    def close(self) -> None:
        """Waits, then ends the writer's threads."""
        self.wait()
        with contextlib.suppress(Exception):  # raises the failure of a save once more
            self._checkpointer.close()
        for _ in range(_LATE_LOOKS if self.failure else 0):
            self._delete_unfinished()
            time.sleep(_LATE_PAUSE_S)

    def restore(self, shapes: TrainState) -> TrainState | None:
        """The newest good state, with the shardings of `shapes`; None where there is none.

        A damaged checkpoint is reported and set aside, and the one before it used.
        """
        while True:
            found = self._newest_good()
            # The first process reads all files, which takes longer than a collective operation waits.
            wait_for_all("checkpoints looked through")
            if (step := agreed(found)) < 0:
                return None
            path = path_of(self._directory, step)
            manifest = Manifest.at(path)
            state = restored_state(path, shapes)._replace(window=with_sums(shapes.window, manifest.window))
            if manifest.bits in (None, int(check_state(state).bits)):
                self.newest = step
                return state
            if is_first():
                set_aside(path, "it gave other numbers than were saved")

    def _newest_good(self) -> int:
        """Step of the newest checkpoint whose files have their checksums; -1 if there is none or on other processes."""
        for path in reversed(complete(self._directory) if is_first() else []):
            damaged = damaged_file(path)
            damage = f"{damaged} is not as it was written" if damaged else self._stranger(path)
            if not damage:
                return int(path.name)
            set_aside(path, damage)
        return -1

    def last_good(self) -> Place | None:
        """The newest undamaged checkpoint that was saved after a step with finite gradients."""
        self.wait()
        paths = reversed(complete(self._directory))
        return next((path for path in paths if is_sound(path) and not damaged_file(path)), None)

    def _finish(self, step: int, complete_it: Callable[[], None]) -> None:
        """Waits for what is being written of `step`, and completes it on the first process."""
        try:
            self._checkpointer.wait_until_finished()
            if is_first():
                complete_it()
        except Exception as error:
            self._failed(step, error)
        else:
            if self.failure:
                self._delete_unfinished()
            self.failure, self.newest = None, step
            if is_first():
                self._delete_old(path_of(self._directory, step))

    def _complete(
        self,
        path: Place,
        step: int,
        evaluation: dict[str, float] | None,
        check: StateCheck,
        metrics: FileSum | None,
        skeleton: dict[str, Any],
    ) -> None:
        """Makes a checkpoint of what has been written to `path`. Raises ValueError or OSError where it isn't good."""
        check = jax.device_get(check)
        if not check.finite:
            raise ValueError("its numbers are not finite")
        if self._keep_every and step % self._keep_every == 0:
            keep_for_good(path)
        # With its manifest it is whole, if a machine is about to go; whether it is good is seen at once.
        make_complete(path, self._carried, step, evaluation, check, metrics)
        self.newest = step
        if bits_on_disk(path, skeleton) != check.bits:
            raise OSError("what is read back is not what was written")

    def _failed(self, step: int, error: Exception) -> None:
        if self.newest == step:
            self.newest = None
        if is_first():
            with contextlib.suppress(Exception):  # read-only or out of reach by now
                delete(path_of(self._directory, step))
        self._delete_unfinished()
        self.failure = f"checkpoint {step} could not be written to {self._directory}: {reason(error)}"
        warn(f"{self.failure}; training goes on, and the next one is tried")

    def _delete_unfinished(self) -> None:
        """Deletes what was begun and not finished, by a process before this one or by a save that failed.

        The writer's threads go on for a while after it has raised, and make anew the directories that they write to:
        so after a failure what they left is deleted before and after the next save as well, and at the end.
        """
        if not is_first():
            return
        with contextlib.suppress(Exception):  # a disk or bucket out of reach by now
            for path in (*self._directory.glob(f"*{_UNFINISHED}"), *incomplete(self._directory)):
                remove_directory(path)

    def _delete_old(self, verified: Place) -> None:
        """Deletes what is older than the good ones that are to stay, each of which is read once more: all but
        `verified`, which has just been."""
        try:
            paths = complete(self._directory)
            best, good, sound = best_of(paths), 0, False
            for path in reversed(paths if len(paths) > self._keep else []):
                if good >= self._keep and (sound or not is_sound(path)):
                    if path != best and not is_kept_for_good(path):
                        delete(path)
                elif path != verified and (damage := damaged_file(path)):
                    set_aside(path, f"{damage} is not as it was written")
                else:
                    good, sound = good + 1, sound or is_sound(path)
        except Exception as error:  # OSError, and a bucket's library has errors of its own
            warn(f"an old checkpoint in {self._directory} could not be deleted: {reason(error)}")


def write_model(directory: Place, params: Parameters, carried: tuple[Place, ...]) -> None:
    """Writes the one checkpoint of a model that was not trained here: parameters without training state, at step 0."""
    path = path_of(directory, 0)
    with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as checkpointer:
        checkpointer.save(absolute(path), args=ocp.args.StandardSave({"params": params}))
    make_complete(path, carried, 0, None, None)
