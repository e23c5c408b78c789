"""Small states of a training, and the checkpoints of a folder that hold them."""

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config.training import OptimizerConfig
from bert_jax.model.sharding import abstract
from bert_jax.run.checkpoint_manifest import complete
from bert_jax.training.optimizer import make_optimizer
from bert_jax.training.step import initial_state


def state_at(step, width=30):
    """A state whose numbers tell its step, of one layer of this width."""
    kernel, bias = jnp.arange(20.0 * width).reshape(20, width) + step, jnp.full(width, step / 10)
    state = initial_state(
        {"task": {"dense": {"kernel": kernel, "bias": bias}}}, make_optimizer(OptimizerConfig()), ("loss",), seed=0
    )
    return state._replace(step=jnp.asarray(step, jnp.int32))


def shapes_of(state):
    """Its shapes, on one device."""
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return abstract(state, jax.tree.map(lambda _: device, state))


def save(checkpoints, *steps, losses=None):
    """Saves the states of these steps, each with its loss, to the end."""
    for step in steps:
        checkpoints.save(step, state_at(step), {"loss": losses[step]} if losses else None)
    checkpoints.wait()


def equal(first, second):
    """Whether two trees hold the same numbers."""
    return all(
        np.array_equal(one, other) for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    )


def steps_in(folder):
    """The steps of the finished checkpoints of a run."""
    return [int(path.name) for path in complete(folder / "checkpoints")]
