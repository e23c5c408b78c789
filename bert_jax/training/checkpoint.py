"""Checkpoints: written in the background, verified once they are written, when an older one is to go, and when read."""

import contextlib
import errno
import json
import os
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

from bert_jax.model.bert import Parameters
from bert_jax.system.bucket import Place
from bert_jax.system.copies import copy_into
from bert_jax.system.errors import RunError, UsageError
from bert_jax.system.files import FileSum, absolute, files_below, remove_directory, sync, sync_below, write_json
from bert_jax.system.progress import say
from bert_jax.training.hosts import agreed, is_first
from bert_jax.training.state_check import StateCheck, check_state, sum_of_bits_on_host
from bert_jax.training.step import TrainState

_MANIFEST = "manifest.json"
_DIGITS = 8
"""Of a checkpoint's name, its step."""
_UNFINISHED = ".orbax-checkpoint-tmp"
"""What orbax appends to the name of a directory that it is still writing."""


class Manifest(NamedTuple):
    """What one checkpoint holds. Written last: a directory without it is not a checkpoint."""

    step: int
    evaluation: dict[str, float] | None
    """Measurements on held-out documents at this step, if there are any."""
    files: dict[str, FileSum]
    """Every other file by its path below the checkpoint."""
    bits: int | None = None
    """`sum_of_bits` of the state when it was saved; None of a model that was not trained here."""
    skipped_in_a_row: int = 0
    """Steps skipped up to this one because a gradient wasn't finite."""

    @classmethod
    def of(
        cls, directory: Place, step: int, evaluation: dict[str, float] | None, check: StateCheck | None
    ) -> "Manifest":
        """Sums up the files in `directory`."""
        files = {name: FileSum.of(path) for name, path in files_below(directory).items() if name != _MANIFEST}
        return cls(step, evaluation, files, *((int(check.bits), int(check.skipped_in_a_row)) if check else ()))

    @classmethod
    def read(cls, directory: Place) -> "Manifest":
        """Raises FileNotFoundError, or ValueError where it is damaged."""
        try:
            value = json.loads((directory / _MANIFEST).read_text(encoding="utf-8"))
            return cls(**value | {"files": {name: FileSum(*total) for name, total in value["files"].items()}})
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(str(error)) from None


class Checkpoints:
    """The checkpoints of a run: one directory a step, with parameters, training state, config and tokenizer.

    One counts as good when all files have their checksums and, right after it was written, gave back the state bit for
    bit. The newest `keep` good ones stay, the one with the lowest held-out loss, and the newest that was saved after a
    step with finite gradients.
    """

    def __init__(
        self,
        directory: Place,
        carried: tuple[Place, ...],
        keep: int,
        check_owner: Callable[[], None] = lambda: None,
    ):
        """Each checkpoint takes copies of the files and directories `carried`, so that it can be used by itself.

        `check_owner` is called before each is written and raises RunError where the run is another process' by now.
        """
        self._directory, self._carried, self._keep, self._check_owner = directory, carried, keep, check_owner
        if is_first():
            self._discard("*")
            for path in set(directory.glob("[0-9]" * _DIGITS)) - set(complete(directory)):
                remove_directory(path)  # killed before its manifest was written, or while it was deleted
        # One item: each one more would start threads of its own, for which the loop waits.
        # Directories at once: where that fails in the background, threads that wait for them hold up the process' end.
        self._checkpointer = ocp.AsyncCheckpointer(
            ocp.StandardCheckpointHandler(),
            async_options=ocp.options.AsyncOptions(create_directories_asynchronously=False),
        )
        self._finishing: threading.Thread | None = None
        self.failure: str | None = None
        """Why the newest save failed, if it did."""

    def save(self, step: int, state: TrainState, evaluation: dict[str, float] | None) -> None:
        """Begins to write `state`; it may be donated at once. A save that fails is reported, and the next one tried."""
        self.wait()
        self._check_owner()
        path, check = self._path(step), check_state(state)
        try:
            if is_first():
                remove_directory(path)  # complete or not: this state takes its place
                path.parent.mkdir(parents=True, exist_ok=True)
            self._checkpointer.save(absolute(path), args=ocp.args.StandardSave(_item(state)))
        except Exception as error:  # the writer underneath raises OSError, ValueError and others
            self._failed(step, error)
            return
        skeleton = jax.tree.map(lambda _: 0, state)
        self._finishing = threading.Thread(target=self._finish, args=(step, evaluation, check, skeleton))
        self._finishing.start()

    def wait(self) -> None:
        """Waits until nothing is being written."""
        if self._finishing:
            self._finishing.join()
            self._finishing = None

    def close(self) -> None:
        """Waits, then ends the writer's threads."""
        self.wait()
        with contextlib.suppress(Exception):  # raises the failure of a save once more
            self._checkpointer.close()

    def restore(self, shapes: TrainState) -> TrainState | None:
        """The newest good state, with the shardings of `shapes`; None where there is none.

        A damaged checkpoint is reported and set aside, and the one before it used.
        """
        while (step := agreed(self._newest_good())) >= 0:
            path = self._path(step)
            restored = self._checkpointer.restore(absolute(path), args=ocp.args.StandardRestore(_item(shapes)))
            state = restored["training"]._replace(params=restored["params"])
            if Manifest.read(path).bits in (None, int(check_state(state).bits)):
                return state
            if is_first():
                _set_aside(path, "it gave other numbers than were saved")
        return None

    def _newest_good(self) -> int:
        """Step of the newest whose files have their checksums, -1 where there is none; the first process sees to it."""
        for path in reversed(complete(self._directory) if is_first() else []):
            if not (damage := damaged_file(path)):
                return int(path.name)
            _set_aside(path, f"{damage} is not as it was written")
        return -1

    def last_good(self) -> Place | None:
        """The newest undamaged one that was saved after a step with finite gradients."""
        self.wait()
        return next(filter(_is_sound, reversed(complete(self._directory))), None)

    def _path(self, step: int) -> Place:
        return self._directory / f"{step:0{_DIGITS}d}"

    def _finish(self, step: int, evaluation: dict[str, float] | None, check: StateCheck, skeleton: TrainState) -> None:
        path = self._path(step)
        try:
            self._checkpointer.wait_until_finished()
            if not is_first():
                return
            check = jax.device_get(check)
            if not check.finite:
                raise ValueError("its numbers are not finite")
            # With its manifest it is whole, if a machine is about to go; whether it is good is seen at once.
            _complete(path, self._carried, step, evaluation, check)
            if _read_on_host(path, skeleton) != check.bits:
                raise OSError("what is read back is not what was written")
        except Exception as error:
            self._failed(step, error)
        else:
            self.failure = None
            self._delete_old(path)

    def _failed(self, step: int, error: Exception) -> None:
        if is_first():
            with contextlib.suppress(OSError):  # read-only by now
                _delete(self._path(step))
            self._discard(self._path(step).name)
        reason = os.strerror(errno.ENOSPC) if os.strerror(errno.ENOSPC) in str(error) else str(error).partition("\n")[0]
        self.failure = f"checkpoint {step} could not be written to {self._directory}: {reason}"
        say(f"WARNING: {self.failure}; training goes on, and the next one is tried")

    def _discard(self, step: str) -> None:
        """Deletes what was begun and not finished."""
        for path in self._directory.glob(f"{step}{_UNFINISHED}"):
            remove_directory(path)

    def _delete_old(self, verified: Place) -> None:
        """Deletes what is older than the good ones that are to stay, each of which is read once more: all but
        `verified`, which has just been."""
        paths = complete(self._directory)
        best, good, sound = best_of(paths), 0, False
        try:
            for path in reversed(paths if len(paths) > self._keep else []):
                if good >= self._keep and (sound or not _is_sound(path)):
                    if path != best:
                        _delete(path)
                elif path != verified and (damage := damaged_file(path)):
                    _set_aside(path, f"{damage} is not as it was written")
                else:
                    good, sound = good + 1, sound or _is_sound(path)
        except OSError as error:
            say(f"WARNING: an old checkpoint in {self._directory} could not be deleted: {error.strerror}")


def write_model(directory: Place, params: Parameters, carried: tuple[Place, ...]) -> None:
    """Writes the one checkpoint of a model that was not trained here: parameters without training state, at step 0."""
    path = directory / f"{0:0{_DIGITS}d}"
    with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as checkpointer:
        checkpointer.save(absolute(path), args=ocp.args.StandardSave({"params": params}))
    _complete(path, carried, 0, None, None)


def _complete(
    path: Place,
    carried: tuple[Place, ...],
    step: int,
    evaluation: dict[str, float] | None,
    check: StateCheck | None,
) -> None:
    """Copies what is `carried` into a checkpoint and, last, writes its manifest."""
    for source in carried:
        copy_into(source, path)
    sync_below(path)
    write_json(path / _MANIFEST, Manifest.of(path, step, evaluation, check)._asdict())
    sync(path)
    sync(path.parent)


def _read_on_host(path: Place, skeleton: TrainState) -> int:
    """`sum_of_bits` of the state that the checkpoint at `path` gives back; `skeleton` has its structure."""
    item = _item(skeleton)
    as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), item)
    here = ocp.options.MultiprocessingOptions(primary_host=0, active_processes={0})
    with ocp.Checkpointer(
        ocp.PyTreeCheckpointHandler(multiprocessing_options=here), multiprocessing_options=here
    ) as checkpointer:
        found = checkpointer.restore(absolute(path), args=ocp.args.PyTreeRestore(item, restore_args=as_numpy))
    return sum_of_bits_on_host(found["training"]._replace(params=found["params"]))


def _is_sound(path: Place) -> bool:
    """Whether the step before the checkpoint at `path` had finite gradients."""
    try:
        return Manifest.read(path).skipped_in_a_row == 0
    except ValueError:
        return False


def _delete(path: Place) -> None:
    """Deletes a checkpoint: without its manifest it is none, so half a deletion leaves none either."""
    (path / _MANIFEST).unlink(missing_ok=True)
    remove_directory(path)


def _set_aside(path: Place, damage: str) -> None:
    """Renames a damaged checkpoint, so that it counts no more and can still be looked at."""
    aside = path.with_name(f"damaged-{path.name}")
    remove_directory(aside)
    path.rename(aside)
    say(f"WARNING: {path} is damaged ({damage}); it is set aside as {aside.name}, and the one before it used, if any")


def complete(directory: Place) -> list[Place]:
    """The finished checkpoints in `directory`, oldest first."""
    return sorted(path.parent for path in directory.glob(f"{'[0-9]' * _DIGITS}/{_MANIFEST}"))


def damaged_file(path: Place) -> str | None:
    """The first file of the finished checkpoint at `path` that isn't as it was written, or None. Reads all of it."""
    try:
        manifest = Manifest.read(path)
    except ValueError:
        return _MANIFEST
    name = _MANIFEST
    try:
        there = files_below(path)
        for name, expected in manifest.files.items():
            if name not in there or FileSum.of(there[name]) != expected:
                return name
    except OSError:  # a disk that can't read it
        return name
    return None


def newest_undamaged(directory: Place) -> Place | None:
    """The newest checkpoint in `directory` whose files are as they were written; damaged ones are reported."""
    for path in reversed(complete(directory)):
        damaged = damaged_file(path)
        if not damaged:
            return path
        say(f"WARNING: {path} is damaged ({damaged} is not as it was written); the one before it is used, if any")
    return None


def checkpoint_of(path: Place) -> Place:
    """`path` if it is a checkpoint, or the newest undamaged one of the run there.

    Raises UsageError where there is no checkpoint, RunError where there are damaged ones only.
    """
    if not (path / _MANIFEST).is_file():
        if found := newest_undamaged(path / "checkpoints"):
            return found
        if not complete(path / "checkpoints"):
            raise UsageError(
                f"{path} holds no finished checkpoint; give a run that was trained, or a checkpoint of one"
            )
        raise RunError(f"{path} holds damaged checkpoints only; give the command that trained it again")
    if damaged := damaged_file(path):
        raise RunError(f"{path} is damaged: {damaged} is not as it was written; use another checkpoint of the run")
    return path


def best_of(paths: list[Place]) -> Place | None:
    """The one with the lowest held-out loss; None where none was evaluated."""
    losses = {}
    for path in paths:
        with contextlib.suppress(ValueError):  # damaged: found out, and said, by whoever reads it
            losses[path] = (Manifest.read(path).evaluation or {}).get("loss")
    return min((path for path, loss in losses.items() if loss is not None), key=losses.get, default=None)


def saved_shapes(path: Place) -> dict[str, Any]:
    """The parameter tree of the checkpoint at `path`, whose leaves have `shape` and `dtype`; nothing else is read."""
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        return checkpointer.metadata(absolute(path)).item_metadata.tree["params"]


def load_parameters(path: Place, shapes: Parameters) -> Parameters:
    """The parameters of the checkpoint at `path` (see `checkpoint_of`), of these shapes and shardings."""
    item = {"params": shapes}
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        return checkpointer.restore(
            absolute(path),
            args=ocp.args.PyTreeRestore(
                item, restore_args=ocp.checkpoint_utils.construct_restore_args(item), partial_restore=True
            ),
        )["params"]


def _item(state: TrainState) -> dict[str, Any]:
    """What orbax is given: the parameters by themselves, since most readers want nothing else."""
    return {"params": state.params, "training": state._replace(params=None)}
