"""The state of a training, and the part of it that a checkpoint holds."""

from typing import Any, NamedTuple

from jaxtyping import Array, Int, UInt32

from bert_jax.model.bert import Parameters
from bert_jax.run.measurement import Means


class TrainState(NamedTuple):
    """Everything that a training step changes."""

    step: Int[Array, ""]
    """Steps done, skipped ones included."""
    params: Parameters
    optimizer: Any
    """The optimizer's state."""
    window: Means
    """Measurements since the last line of the log."""
    skipped: Int[Array, ""]
    """Steps skipped since the beginning because a gradient wasn't finite."""
    skipped_in_a_row: Int[Array, ""]
    """Steps skipped since the last one that wasn't."""
    seed: UInt32[Array, ""]
    """Seed of the randomness in a step. It is part of the state so that runs of all seeds share one compiled
    program."""


def saved_item(state: TrainState) -> dict[str, Any]:
    """The tree that Orbax saves: the parameters by themselves, since most readers want nothing else, and the rest of
    the state. Measurements are in the manifest instead, because the set of them may change (see `Manifest.window`).
    """
    training = state._asdict()
    del training["params"], training["window"]
    return {"params": state.params, "training": training}
