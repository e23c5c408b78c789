"""Reads a training state, or the parameters of one or several checkpoints, by Orbax."""

import contextlib
import functools
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import tensorstore
from flax.traverse_util import flatten_dict, unflatten_dict
from jaxtyping import Array, Float, PyTree

from bert_jax.model.bert import Parameters
from bert_jax.run.checkpoint_choice import raising_if_deleted
from bert_jax.run.state import TrainState, saved_item, sum_of_bits_on_host
from bert_jax.system.bucket import Place, in_bucket, is_trained_in, object_name
from bert_jax.system.copies import fetched
from bert_jax.system.errors import BertJaxError, RunError, UsageError, failure_reason, is_out_of_memory
from bert_jax.system.json_file import Shape, as_shape, parse_object, read_object

_METADATA = ("_METADATA", "_CHECKPOINT_METADATA", "_sharding")
"""Orbax' JSON files. They name no classes that would be imported, and nothing is pickled."""
_LATE = ("Event loop is closed", "reading array index", "tensorstore_spec")
"""Parts of asyncio's messages about arrays that are no longer wanted."""
_PARTS = 4
"""Number of parts in which a checkpoint is read and added; a part has at least one array. Orbax holds two copies of
most arrays that it reads: reading all at once would take memory for a third copy of the parameters."""

Leaves = dict[tuple[str, ...], Array]
"""The leaves of a tree of parameters, by their paths."""


def restored_state(path: Place, shapes: TrainState) -> TrainState:
    """The state of the checkpoint at `path`, with the shapes and shardings of `shapes`.

    The window of measurements is that of `shapes`, because measurements are stored in the manifest. Raises RunError if
    Orbax can't read it.
    """
    with by_orbax(path) as place:
        _check_sizes(place)
    item = _restored(path, saved_item(shapes))
    return shapes._replace(params=item["params"], **item["training"])


def load_parameters(path: Place, shapes: Parameters) -> Parameters:
    """The parameters of the checkpoint at `path`, with the shardings of `shapes`: its `saved_shapes`, or a part of
    them.

    Raises RunError if Orbax can't read it, CheckpointGone if it is deleted meanwhile.
    """
    with raising_if_deleted(path):
        return _restored(path, {"params": shapes})["params"]


def saved_shapes(path: Place) -> Parameters:
    """The parameter tree of the checkpoint at `path`, whose leaves have `shape` and `dtype`; nothing else is read.
    Raises RunError if Orbax can't read it, CheckpointGone if it is deleted meanwhile.
    """
    with (
        raising_if_deleted(path),
        by_orbax(path) as place,
        ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer,
    ):
        _check_sizes(place)
        return checkpointer.metadata(place).item_metadata.tree["params"]


def bits_on_disk(path: Place, skeleton: PyTree) -> int:
    """`sum_of_bits` of the state read from the checkpoint at `path`; `skeleton` has the structure of `saved_item`."""
    as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), skeleton)
    here = ocp.options.MultiprocessingOptions(primary_host=0, active_processes={0})
    with ocp.Checkpointer(
        ocp.PyTreeCheckpointHandler(multiprocessing_options=here), multiprocessing_options=here
    ) as checkpointer:
        found = checkpointer.restore(path, args=ocp.args.PyTreeRestore(skeleton, restore_args=as_numpy))
    return sum_of_bits_on_host(found)


def _restored(path: Place, item: PyTree) -> PyTree:
    """The part of a checkpoint that `item`, a tree of shapes and shardings, describes."""
    restore_args = ocp.checkpoint_utils.construct_restore_args(item)
    with by_orbax(path) as place, ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        return checkpointer.restore(
            place, args=ocp.args.PyTreeRestore(item, restore_args=restore_args, partial_restore=True)
        )


def mean_of(reads: Sequence[Callable[[Parameters], Parameters]], shapes: Parameters) -> Parameters:
    """The arithmetic mean of the parameters that `reads` return, as in Vaswani et al. (2017), section 6.1.

    The sum and the division are in float32, the parameters' type. A single set of parameters is returned unchanged.
    Each of `reads` takes a tree of shapes with shardings, a part of `shapes`, and returns its arrays. Memory holds two
    copies of the parameters at most: the sum and the one being read. Raises ValueError if `reads` is empty.
    """
    if not reads:
        raise ValueError("no parameters were given, and a mean is of one or more")
    total = reads[0](shapes)
    if len(reads) == 1:
        return total
    leaves, wanted = flatten_dict(total), flatten_dict(shapes)
    del total  # `leaves` holds its arrays, which are donated one after the other
    for read in reads[1:]:
        for part in _parts(wanted):
            more = unflatten_dict({path: wanted[path] for path in part})
            # A sum in progress would keep its arrays in memory while the next part is read.
            leaves |= jax.block_until_ready(_sum({path: leaves[path] for path in part}, flatten_dict(read(more))))
    return unflatten_dict(_quotient(leaves, np.float32(len(reads))))


def _parts(shapes: Leaves) -> Iterator[list[tuple[str, ...]]]:
    """Yields the paths of `shapes` in groups that are read together."""
    sizes = {path: leaf.size * leaf.dtype.itemsize for path, leaf in shapes.items()}
    most = sum(sizes.values()) / _PARTS
    part: list[tuple[str, ...]] = []
    held = 0
    for path, size in sizes.items():
        if part and held + size > most:
            yield part
            part, held = [], 0
        part, held = [*part, path], held + size
    yield part


# `total` is donated: its arrays become those of the result.
@functools.partial(jax.jit, donate_argnums=0)
def _sum(total: Leaves, more: Leaves) -> Leaves:
    return jax.tree.map(jnp.add, total, more)


@functools.partial(jax.jit, donate_argnums=0)
def _quotient(total: Leaves, count: Float[Array, ""]) -> Leaves:
    return jax.tree.map(lambda leaf: leaf / count, total)


class _Array(Shape):
    """The fields of an array's .zarray that determine the memory needed to read it."""

    shape: list[int]
    chunks: list[int]
    filters: None = None


@contextlib.contextmanager
def by_orbax(path: Place) -> Iterator[Place]:
    """Yields the place from which Orbax reads the checkpoint at `path`: a local copy if it can't read there.

    Every error in the block becomes a RunError of one line.
    """
    logging.getLogger("asyncio").addFilter(_is_not_late)
    if not isinstance(sys.unraisablehook, _WithoutLateErrors):
        sys.unraisablehook = _WithoutLateErrors(sys.unraisablehook)
    try:
        yield path if is_trained_in(path) else fetched(path)
    except (BertJaxError, MemoryError):
        raise
    except Exception as error:  # ValueError, KeyError, OSError, and errors of C++ libraries
        if is_out_of_memory(error):
            raise
        reason = failure_reason(error)
        raise RunError(
            f"{path} can't be read, though its files have their checksums ({reason}); give the same command again, "
            "with the releases of JAX and Orbax that wrote it, or move it away to use the checkpoint before it"
        ) from error


def check_name(path: Place, written: bool = False) -> None:
    """Raises UsageError if checkpoints can't be read at `path`, or with `written` not be written, because of its name:
    TensorStore takes a backslash for a slash. Orbax takes *, ? and [ for a pattern when it writes."""
    if sign := next((sign for sign in ("\\*?[" if written else "\\") if sign in os.fspath(path)), None):
        raise UsageError(f"{path}: checkpoints can't be kept in a folder with {sign} in its path; choose or rename it")


def _check_sizes(path: Place) -> None:
    """Raises ValueError for JSON that is too large, because Orbax' parser has no bounds, and for an array whose chunks
    are larger than the array, because TensorStore fills whole chunks in memory."""
    for file in (path / name for name in _METADATA):
        if file.exists():  # Orbax reports missing files
            read_object(file)
    if in_bucket(path):
        bucket, _, folder = object_name(path).partition("/")
        base = {"driver": "gcs", "bucket": bucket, "path": f"{folder}/"}
    else:
        check_name(path)
        base = {"driver": "file", "path": f"{path}/"}
    store = tensorstore.KvStore.open({"driver": "ocdbt", "base": base}).result()
    names = [name for name in store.list().result() if name.endswith(b"/.zarray")]
    if not names:
        raise ValueError("it has no arrays")
    for name, read in [(name, store.read(name)) for name in names]:
        array = as_shape(parse_object(read.result().value), _Array)
        if len(array.chunks) != len(array.shape) or any(map(int.__gt__, array.chunks, array.shape)):
            raise ValueError(f"{name.decode()!r} says chunks of {array.chunks} for a shape of {array.shape}")


def _is_not_late(record: logging.LogRecord) -> bool:
    """Filter of asyncio's log: drops messages about arrays that are no longer wanted."""
    return not any(words in record.getMessage() for words in _LATE)


class _WithoutLateErrors:
    """A `sys.unraisablehook` that drops the errors of arrays that are no longer wanted.

    When one array can't be read, Orbax closes its event loop. TensorStore's threads still report the other arrays to
    it, at any time afterwards, and Python would print a traceback for each.
    """

    def __init__(self, hook: Callable[["sys.UnraisableHookArgs"], object]):
        self._hook = hook

    def __call__(self, unraisable: "sys.UnraisableHookArgs") -> None:
        if not any(words in str(unraisable.exc_value) for words in _LATE):
            self._hook(unraisable)
