"""Reading a training state or parameters from a checkpoint by Orbax."""

from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from bert_jax.model.bert import Parameters
from bert_jax.run.checkpoint_choice import being_read
from bert_jax.run.orbax_reading import by_orbax
from bert_jax.run.state import TrainState, saved_item
from bert_jax.run.state_check import sum_of_bits_on_host
from bert_jax.system.bucket import Place
from bert_jax.system.files import absolute


def restored_state(path: Place, shapes: TrainState) -> TrainState:
    """The state of the checkpoint at `path`, with the shapes and shardings of `shapes`.

    The window stays that of `shapes`: measurements are stored in the manifest. Raises RunError if Orbax can't read it.
    """
    found = _restored(path, saved_item(shapes))
    return shapes._replace(params=found["params"], **found["training"])


def load_parameters(path: Place, shapes: Parameters) -> Parameters:
    """The parameters of the checkpoint at `path` (see `checkpoint_of`), of these shapes and shardings.

    Raises RunError if Orbax can't read it, CheckpointGone if it is deleted meanwhile.
    """
    with being_read(path):
        return _restored(path, {"params": shapes})["params"]


def saved_shapes(path: Place) -> dict[str, Any]:
    """The parameter tree of the checkpoint at `path`, whose leaves have `shape` and `dtype`; nothing else is read.

    Raises RunError where Orbax can't read it, CheckpointGone where it is deleted meanwhile.
    """
    with being_read(path), by_orbax(path) as place, ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        return checkpointer.metadata(place).item_metadata.tree["params"]


def bits_on_disk(path: Place, skeleton: dict[str, Any]) -> int:
    """`sum_of_bits` of the state read from the checkpoint at `path`; `skeleton` has the structure of `saved_item`."""
    as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), skeleton)
    here = ocp.options.MultiprocessingOptions(primary_host=0, active_processes={0})
    with ocp.Checkpointer(
        ocp.PyTreeCheckpointHandler(multiprocessing_options=here), multiprocessing_options=here
    ) as checkpointer:
        found = checkpointer.restore(absolute(path), args=ocp.args.PyTreeRestore(skeleton, restore_args=as_numpy))
    return sum_of_bits_on_host(found)


def _restored(path: Place, item: dict[str, Any]) -> dict[str, Any]:
    """The part of a checkpoint that `item`, a tree of shapes and shardings, describes."""
    restore_args = ocp.checkpoint_utils.construct_restore_args(item)
    with by_orbax(path) as place, ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        return checkpointer.restore(
            place,
            args=ocp.args.PyTreeRestore(item, restore_args=restore_args, partial_restore=True),
        )
