"""The state of a training, and what of it is in a checkpoint."""

from typing import Any, NamedTuple

from jaxtyping import Array, Int, UInt32

from bert_jax.model.bert import Parameters
from bert_jax.run.measurement import Means


class TrainState(NamedTuple):
    """All that training changes."""

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
    """Of all that is random in a step: here, so that runs that differ by their seed share one compiled program."""


def saved_item(state: TrainState) -> dict[str, Any]:
    """What Orbax is given: the parameters by themselves, since most readers want nothing else, and all that training
    goes on from. Measurements are not among it: a checkpoint outlives what is measured (see `Manifest.window`).
    """
    training = state._asdict()
    del training["params"], training["window"]
    return {"params": state.params, "training": training}
