"""Checkpoints: written in the background, checked when read."""

import contextlib
import errno
import json
import os
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import orbax.checkpoint as ocp

from bert_jax.model.bert import Parameters
from bert_jax.system.bucket import Place
from bert_jax.system.copies import copy_into
from bert_jax.system.errors import RunError, UsageError
from bert_jax.system.files import FileSum, absolute, files_below, remove_directory, write_json
from bert_jax.system.progress import say
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

    @classmethod
    def of(cls, directory: Place, step: int, evaluation: dict[str, float] | None) -> "Manifest":
        """Sums up the files in `directory`."""
        paths = files_below(directory)
        return cls(step, evaluation, {name: FileSum.of(path) for name, path in paths.items() if name != _MANIFEST})

    @classmethod
    def read(cls, directory: Place) -> "Manifest":
        """Raises FileNotFoundError, or ValueError where it is damaged."""
        try:
            value = json.loads((directory / _MANIFEST).read_text(encoding="utf-8"))
            return cls(**value | {"files": {name: FileSum(*total) for name, total in value["files"].items()}})
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(str(error)) from None


class Checkpoints:
    """The checkpoints of a run: one directory a step, with parameters, training state, config and tokenizer."""

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
        self._discard("*")
        for path in set(directory.glob("[0-9]" * _DIGITS)) - set(complete(directory)):
            remove_directory(path)  # killed before its manifest was written, or while it was deleted
        # One item: each one more would start threads of its own, for which the loop waits.
        self._checkpointer = ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler())
        self._finishing: threading.Thread | None = None
        self.failure: str | None = None
        """Why the newest save failed, if it did."""

    def save(self, step: int, state: TrainState, evaluation: dict[str, float] | None) -> None:
        """Begins to write `state`; it may be donated at once. A save that fails is reported, and the next one tried."""
        self.wait()
        self._check_owner()
        path = self._path(step)
        remove_directory(path)  # complete or not: this state takes its place
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._checkpointer.save(absolute(path), args=ocp.args.StandardSave(_item(state)))
        except Exception as error:  # the writer underneath raises OSError, ValueError and others
            self._failed(step, error)
            return
        self._finishing = threading.Thread(target=self._finish, args=(step, evaluation))
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
        found = newest_undamaged(self._directory)
        for path in complete(self._directory):
            if found is None or path > found:
                aside = path.with_name(f"damaged-{path.name}")
                remove_directory(aside)
                path.rename(aside)
                say(f"{path} is set aside as {aside.name}")
        if found is None:
            return None
        restored = self._checkpointer.restore(absolute(found), args=ocp.args.StandardRestore(_item(shapes)))
        return restored["training"]._replace(params=restored["params"])

    def _path(self, step: int) -> Place:
        return self._directory / f"{step:0{_DIGITS}d}"

    def _finish(self, step: int, evaluation: dict[str, float] | None) -> None:
        path = self._path(step)
        try:
            self._checkpointer.wait_until_finished()
            _complete(path, self._carried, step, evaluation)
            self.failure = None
        except Exception as error:
            self._failed(step, error)
        else:
            self._delete_old()

    def _failed(self, step: int, error: Exception) -> None:
        remove_directory(self._path(step))
        self._discard(self._path(step).name)
        reason = os.strerror(errno.ENOSPC) if os.strerror(errno.ENOSPC) in str(error) else str(error).partition("\n")[0]
        self.failure = f"checkpoint {step} could not be written to {self._directory}: {reason}"
        say(f"WARNING: {self.failure}; training goes on, and the next one is tried")

    def _discard(self, step: str) -> None:
        """Deletes what was begun and not finished."""
        for path in self._directory.glob(f"{step}{_UNFINISHED}"):
            remove_directory(path)

    def _delete_old(self) -> None:
        paths = complete(self._directory)
        keep = set(paths[-self._keep :])
        best = best_of(paths)
        for path in paths:
            if path not in keep and path != best:
                # Without its manifest it is no checkpoint, so half a deletion is none either.
                (path / _MANIFEST).unlink()
                remove_directory(path)


def write_model(directory: Place, params: Parameters, carried: tuple[Place, ...]) -> None:
    """Writes the one checkpoint of a model that was not trained here: parameters without training state, at step 0."""
    path = directory / f"{0:0{_DIGITS}d}"
    with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as checkpointer:
        checkpointer.save(absolute(path), args=ocp.args.StandardSave({"params": params}))
    _complete(path, carried, 0, None)


def _complete(path: Place, carried: tuple[Place, ...], step: int, evaluation: dict[str, float] | None) -> None:
    """Copies what is `carried` into a checkpoint and, last, writes its manifest."""
    for source in carried:
        copy_into(source, path)
    write_json(path / _MANIFEST, Manifest.of(path, step, evaluation)._asdict())


def complete(directory: Place) -> list[Place]:
    """The finished checkpoints in `directory`, oldest first."""
    return sorted(path.parent for path in directory.glob(f"{'[0-9]' * _DIGITS}/{_MANIFEST}"))


def damaged_file(path: Place) -> str | None:
    """The first file of the finished checkpoint at `path` that isn't as it was written, or None. Reads all of it."""
    try:
        manifest = Manifest.read(path)
    except ValueError:
        return _MANIFEST
    there = files_below(path)
    for name, expected in manifest.files.items():
        if name not in there or FileSum.of(there[name]) != expected:
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
