"""Writes checkpoints in the background; verifies each when written, when read, and before an older one is deleted."""

import contextlib
import threading
import time
from collections.abc import Callable

import jax
import orbax.checkpoint as ocp
from jaxtyping import PyTree

from bert_jax.model.bert import Parameters
from bert_jax.run.checkpoint_choice import best_of
from bert_jax.run.checkpoint_manifest import (
    KEPT,
    DamagedCheckpoint,
    Manifest,
    agree_with_list,
    checkpoint_damage,
    checkpoint_path,
    complete,
    delete_checkpoint,
    incomplete,
    is_sound,
    make_complete,
    open_checkpoint,
    set_aside,
    write_evaluation,
)
from bert_jax.run.hosts import agreed, fails_together, is_first, wait_for_all
from bert_jax.run.measurement import with_sums
from bert_jax.run.run_files import RunFiles
from bert_jax.run.saved_state import bits_on_disk, restored_state
from bert_jax.run.state import StateCheck, TrainState, check_state, saved_item
from bert_jax.system.bucket import Place
from bert_jax.system.errors import RunError, failure_reason
from bert_jax.system.files import remove_directory, write_text
from bert_jax.system.progress import warn

_UNFINISHED = ".orbax-checkpoint-tmp"
"""Suffix of the directories that Orbax is still writing."""

_LATE_LOOKS, _LATE_PAUSE_S = 5, 0.1
"""At the end, the remains of a failed save are deleted this many times, with this pause in seconds after each: the
threads of the save may still write."""


class Checkpoints:
    """The checkpoints of a run: one directory a step, with parameters, training state, config and tokenizer.

    A checkpoint is good if all its files have their checksums and the state read back right after the write was equal
    bit for bit. These checkpoints are kept: the newest `keep` good ones; the best one, by the score on a task or else
    by held-out loss; the newest one saved after a step with finite gradients; and each of a step that `is_kept`.
    """

    def __init__(
        self,
        directory: Place,
        carried: tuple[Place, ...],
        keep: int,
        check_owner: Callable[[], None] = lambda: None,
        is_kept: Callable[[int], bool] = lambda step: False,
        why_foreign: Callable[[RunFiles], str | None] = lambda files: None,
    ):
        """Each checkpoint gets copies of the files and directories `carried`, so that it can be used by itself.

        `check_owner` raises RunError from the time on at which another process has taken over the run. It is called
        before each write and deletion, since the directory is then the other process'.
        `why_foreign` returns why a checkpoint belongs to another run, or None; training doesn't continue from such a
        checkpoint.
        """
        self._directory, self._carried, self._keep, self._check_owner = directory, carried, keep, check_owner
        self._is_kept, self._why_foreign = is_kept, why_foreign
        if is_first():
            with contextlib.suppress(OSError, RunError):  # a full disk: the next save reports it
                agree_with_list(directory)
        self._delete_unfinished()
        # One item: every further item would start more threads, for which the loop would wait.
        # Directories are created in the foreground: a failure in the background leaves threads that wait for ever.
        self._checkpointer = ocp.AsyncCheckpointer(
            ocp.StandardCheckpointHandler(),
            async_options=ocp.options.AsyncOptions(create_directories_asynchronously=False),
        )
        self._finishing: threading.Thread | None = None
        self.failure: str | None = None
        """Why the newest save failed; None if it didn't."""
        self.newest: int | None = None
        """Step of the newest complete checkpoint that this process has written or read."""

    def save(self, step: int, state: TrainState, evaluation: dict[str, float] | None) -> None:
        """Begins to write `state`, which may be donated at once. A failed save is reported; the next one is tried."""
        self.wait()
        self._check_owner()
        path, check = checkpoint_path(self._directory, step), check_state(state)
        try:
            if self.failure:
                self._delete_unfinished()
            if is_first():
                delete_checkpoint(path)  # complete or not, this state replaces it
                path.parent.mkdir(parents=True, exist_ok=True)
            self._checkpointer.save(path, args=ocp.args.StandardSave(saved_item(state)))
        except Exception as error:  # the writer underneath raises OSError, ValueError and others
            self._failed(step, error)
            return
        skeleton = jax.tree.map(lambda _: 0, saved_item(state))
        self._finishing = threading.Thread(target=self._finish, args=(step, evaluation, check, skeleton))
        self._finishing.start()

    def add_evaluation(self, step: int, evaluation: dict[str, float]) -> None:
        """Adds measurements to the checkpoint of `step`, which was written without them."""
        self.wait()
        self._check_owner()
        path = checkpoint_path(self._directory, step)
        if is_first() and path in complete(self._directory):
            write_evaluation(path, evaluation)

    def wait(self) -> None:
        """Waits for the save in progress, if any."""
        if self._finishing:
            self._finishing.join()
            self._finishing = None

    def finish(self) -> None:
        """Waits until the last checkpoint is complete on all processes. If it could not be written, `failure` is set on
        all of them.

        Only the first process completes a checkpoint. If another process exited before that, JAX would end the first
        process some seconds later. If another process went on, it might use a checkpoint that the first one doesn't.
        """
        self.wait()
        wait_for_all("checkpoints finished")
        elsewhere = "a checkpoint could not be written by another host of this run, which says why"
        self.failure = fails_together(self.failure, elsewhere)

    def close(self) -> None:
        """Waits, then ends the writer's threads."""
        self.wait()
        with contextlib.suppress(Exception):  # raises the failure of a save once more
            self._checkpointer.close()
        for _ in range(_LATE_LOOKS if self.failure else 0):
            self._delete_unfinished()
            time.sleep(_LATE_PAUSE_S)

    def restore(self, shapes: TrainState) -> TrainState | None:
        """The state of the newest good checkpoint, with the shardings of `shapes`; None if there is none.

        A damaged checkpoint is reported and renamed, and the one before it is used.
        """
        while True:
            found = self._newest_good()
            # The first process reads all files, which takes longer than a collective operation would wait.
            wait_for_all("checkpoints looked through")
            if (step := agreed(found)) < 0:
                return None
            path = checkpoint_path(self._directory, step)
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
            try:
                damage = self._why_foreign(open_checkpoint(path).files)
            except DamagedCheckpoint as error:
                damage = str(error)
            if not damage:
                return int(path.name)
            set_aside(path, damage)
        return -1

    def last_good(self) -> Place | None:
        """The newest undamaged checkpoint that was saved after a step with finite gradients."""
        self.wait()
        paths = reversed(complete(self._directory))
        return next((path for path in paths if is_sound(path) and not checkpoint_damage(path)), None)

    def _finish(self, step: int, evaluation: dict[str, float] | None, check: StateCheck, skeleton: PyTree) -> None:
        """Waits until the state of `step` is written; the first process then makes it a checkpoint, if it is good."""
        path = checkpoint_path(self._directory, step)
        try:
            self._checkpointer.wait_until_finished()
            if is_first():
                check = jax.device_get(check)
                if not check.finite:
                    raise ValueError("its numbers are not finite")
                self._check_owner()
                if self._is_kept(step):
                    write_text(path / KEPT, "")
                # The checkpoint is completed before it is read back: a preemption in between leaves a checkpoint.
                make_complete(path, self._carried, step, evaluation, check)
                self.newest = step
                if bits_on_disk(path, skeleton) != check.bits:
                    raise OSError("what is read back is not what was written")
        except Exception as error:
            self._failed(step, error)
            return
        if self.failure:
            self._delete_unfinished()
        self.failure, self.newest = None, step
        if is_first() and self._taken_over() is None:
            self._delete_old(path)

    def _taken_over(self) -> RunError | None:
        """The error that another process has taken over the run; None if none has."""
        try:
            self._check_owner()
        except RunError as error:
            return error
        return None

    def _failed(self, step: int, error: Exception) -> None:
        if self.newest == step:
            self.newest = None
        if lost := self._taken_over():
            self.failure = str(lost)  # the next save, or the end of the training, raises it
            return
        if is_first():
            with contextlib.suppress(Exception):  # a disk that is read-only or out of reach
                delete_checkpoint(checkpoint_path(self._directory, step))
        self._delete_unfinished()
        self.failure = f"checkpoint {step} could not be written to {self._directory}: {failure_reason(error)}"
        warn(f"{self.failure}; training goes on, and the next one is tried")

    def _delete_unfinished(self) -> None:
        """Deletes unfinished checkpoints of an earlier process or of a failed save.

        After a failure the writer's threads go on for a while and create their directories again. So this function is
        also called before and after the next save, and at the end.
        """
        if not is_first() or self._taken_over():
            return
        with contextlib.suppress(Exception):  # a disk or bucket out of reach
            for path in (*self._directory.glob(f"*{_UNFINISHED}"), *incomplete(self._directory)):
                remove_directory(path)

    def _delete_old(self, verified: Place) -> None:
        """Deletes the checkpoints that needn't be kept. Verifies the newest ones to keep first, except `verified`."""
        try:
            paths = complete(self._directory)
            best, good, sound = best_of(paths), 0, False
            for path in reversed(paths if len(paths) > self._keep else []):
                if good >= self._keep and (sound or not is_sound(path)):
                    if path != best and not (path / KEPT).exists():
                        delete_checkpoint(path)
                elif path != verified and (damage := checkpoint_damage(path)):
                    set_aside(path, damage)
                else:
                    good, sound = good + 1, sound or is_sound(path)
        except Exception as error:  # OSError, and a bucket's library has errors of its own
            warn(f"an old checkpoint in {self._directory} could not be deleted: {failure_reason(error)}")


def write_model(directory: Place, params: Parameters, carried: tuple[Place, ...]) -> None:
    """Writes the only checkpoint of a model that was not trained here: parameters without training state, at step 0."""
    path = checkpoint_path(directory, 0)
    with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as checkpointer:
        checkpointer.save(path, args=ocp.args.StandardSave({"params": params}))
    make_complete(path, carried, 0, None, None)
