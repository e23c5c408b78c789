"""The two stacks of LSTM layers of ELMo (Peters et al. 2018, section 3), one a direction.

Further letters in shapes: F width of a cell, E width of a direction's vectors.
"""

import operator
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import ExecutionConfig
from bert_jax.model.attention import at_places
from bert_jax.model.attention_pattern import AttentionPattern
from bert_jax.model.dropout import split, token_dropout
from bert_jax.model.encoder import UNTRAINED, rematerialised
from bert_jax.model.kernels.platform import compute_dtype
from bert_jax.model.kernels.products import product, product_of_transposed
from bert_jax.model.linear import initial_weights, project
from bert_jax.model.placement import split_by_rows, whole
from bert_jax.system.errors import Setting, UsageError

GATES = 4
"""The parts of a cell's input, in this order: input gate, new value, forget gate, output gate."""
_BOUND = 3.0
"""Largest size of the elements of a cell's state and of its projected output, as in ELMo's release."""
_FORGET_BIAS = 1.0
"""Added to the forget gate's input; the stored bias doesn't contain it."""
_UNROLL = 4
"""Tokens in one iteration of the loop over a row; the fastest on CPUs."""


class LstmEncoder(nn.Module):
    """`num_layers` LSTM layers a direction, their parameters stacked along a layer axis and a direction axis.

    A token's vector is the output of the forwards direction, then that of the backwards direction. From the second
    layer on, a layer's input is added to its output. Dropout is applied to each layer's output, as the next layer's
    input. A cell's state starts from 0 at the first token of each sequence of a row, backwards at the last token.
    """

    config: ModelConfig
    execution: ExecutionConfig = UNTRAINED
    frozen_layers: int | None = None
    """Number of layers, from the first, that get no gradient; the encoder's input gets none either. None: all get
    one."""

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B T E"],
        pattern: AttentionPattern,
        dropout_keys: Key[Array, "B N"] | None,
        places: Int[Array, "B R"] | None = None,
        return_layers: bool = False,
        return_attention: bool = False,
    ) -> tuple[Float[Array, "B R D"], Float[Array, "L B T D"] | None, None]:
        """The output at `places` of each row (None: at all T); on request, every layer's output. Both directions read
        x, which is half as wide as the output. Raises UsageError if attention is requested."""
        config, count = self.config, self.config.num_layers
        if return_attention:
            raise UsageError(
                f"the model has LSTM layers ({Setting('model.layer', config.layer)}), which have no attention; ask for "
                "the vectors of its layers"
            )
        params = self.param("layers", _initial(config))
        keys = [None] * count if dropout_keys is None else split(dropout_keys, count)
        sequence = pattern.queries.sequence

        def layer(adds: bool, params: PyTree, x: Float[Array, "B T D"], keys: Key[Array, "B N"] | None):
            output = _layer(config, params, x, sequence)
            output = output + x if adds else output
            dropped = token_dropout(output, config.dropout, keys, sequence, pattern.query_positions)
            return split_by_rows(dropped), output

        x = split_by_rows(jnp.concatenate([x, x], axis=-1))
        outputs: list[Array] = []
        for number in range(count):
            if number == self.frozen_layers:
                x, outputs = jax.lax.stop_gradient((x, outputs))
            one = rematerialised(partial(layer, number > 0), self.execution.remat, looped=False)
            x, output = one(jax.tree.map(operator.itemgetter(number), params), x, keys[number])
            outputs.append(output)
        if self.frozen_layers == count:
            x, outputs = jax.lax.stop_gradient((x, outputs))
        return at_places(x, places), jnp.stack(outputs) if return_layers else None, None


def _initial(config: ModelConfig) -> Callable[..., PyTree]:
    """Initialiser of the parameters of all layers."""
    width, inner, weights = config.input_size, config.inner_size, initial_weights(config)
    stacked = (config.num_layers, 2)

    def init(key: Key[Array, ""]) -> PyTree:
        of_inputs, of_states, of_outputs = jax.random.split(key, 3)
        kernel = weights(of_inputs, (*stacked, width, GATES, inner))
        return {
            "inputs": {"kernel": kernel, "bias": jnp.zeros((*stacked, GATES, inner))},
            "recurrence": {"kernel": weights(of_states, (*stacked, width, GATES, inner))},
            "projection": {"kernel": weights(of_outputs, (*stacked, inner, width))},
        }

    return init


def _layer(
    config: ModelConfig, params: PyTree, x: Float[Array, "B T D"], sequence: Int[Array, "B T"]
) -> Float[Array, "B T D"]:
    """The outputs of both directions of a layer, each of its half of x."""
    dtype, outputs = compute_dtype(config), []
    for direction, half in enumerate(jnp.split(x, 2, axis=-1)):
        own = jax.tree.map(operator.itemgetter(direction), params)
        order = slice(None, None, -1 if direction else 1)
        half, of = half[:, order], sequence[:, order]
        continues = jnp.pad(
            of[:, 1:] == of[:, :-1], ((0, 0), (1, 0))
        )  # whether a cell starts from the state of the token before
        inputs = project(half, own["inputs"]["kernel"], own["inputs"]["bias"], dtype)
        kernel = whole(own["recurrence"]["kernel"].reshape(half.shape[-1], -1).astype(dtype))
        projection = whole(own["projection"]["kernel"].astype(dtype))
        by_time = inputs.reshape(*half.shape[:2], -1).swapaxes(0, 1), continues.T
        outputs.append(_recurrence(*by_time, kernel, projection).swapaxes(0, 1)[:, order])
    return jnp.concatenate(outputs, axis=-1)


@jax.custom_vjp
def _recurrence(
    inputs: Float[Array, "T B GF"],
    continues: Bool[Array, "T B"],
    kernel: Float[Array, "E GF"],
    projection: Float[Array, "F E"],
) -> Float[Array, "T B E"]:
    """The outputs of LSTM cells with a projection (Sak et al. 2014), over all times.

    `inputs`: the products of the layer's input with the weights of the gates, plus the gates' biases. The gradients of
    both matrices are one product each over all times; in the loop's own gradient, they would be added up in memory at
    each time.
    """
    return _scan(inputs, jnp.zeros((*continues.shape, len(kernel))), continues, kernel, projection)[0]


def _scan(
    inputs: Float[Array, "T B GF"],
    added: Float[Array, "T B E"],
    continues: Bool[Array, "T B"],
    kernel: Float[Array, "E GF"],
    projection: Float[Array, "F E"],
) -> tuple[Float[Array, "T B E"], Float[Array, "T B F"]]:
    """The outputs of the cells and their hidden vectors. `added`, which is 0, is added to the projected hidden vectors,
    because its gradient is that of the projection's result."""

    def step(state, at):
        (output, cell), (inputs, added, continues) = state, at
        output, cell = (continues[:, None].astype(each.dtype) * each for each in (output, cell))
        gates = inputs + product(output, kernel, inputs.dtype)
        hidden, cell = _cell(gates, cell)
        projected = product(hidden, projection, jnp.float32) + added
        output = jnp.clip(projected, -_BOUND, _BOUND).astype(inputs.dtype)
        return (output, cell), (output, hidden)

    rows = continues.shape[1]
    start = jnp.zeros((rows, len(kernel)), inputs.dtype), jnp.zeros((rows, len(projection)))
    return jax.lax.scan(step, start, (inputs, added, continues), unroll=_UNROLL)[1]


@jax.checkpoint  # the backward pass reads the gates and the state, and computes the rest again
def _cell(gates: Float[Array, "B GF"], cell: Float[Array, "B F"]) -> tuple[Float[Array, "B F"], Float[Array, "B F"]]:
    """A cell's hidden vector, which is projected, and its new state, in float32."""
    input_gate, value, forget_gate, output_gate = jnp.split(gates.astype(jnp.float32), GATES, axis=-1)
    kept = jax.nn.sigmoid(forget_gate + _FORGET_BIAS) * cell
    cell = jnp.clip(kept + jax.nn.sigmoid(input_gate) * jnp.tanh(value), -_BOUND, _BOUND)
    return (jax.nn.sigmoid(output_gate) * jnp.tanh(cell)).astype(gates.dtype), cell


def _forward(inputs, continues, kernel, projection):
    added = jnp.zeros((*continues.shape, len(kernel)))
    (outputs, hidden), pull = jax.vjp(lambda x, more: _scan(x, more, continues, kernel, projection), inputs, added)
    return outputs, (pull, outputs, hidden, continues)


def _backward(residuals, gradient):
    pull, outputs, hidden, continues = residuals
    of_inputs, of_added = pull((gradient, jnp.zeros_like(hidden)))
    before = jnp.where(continues[:, :, None], jnp.pad(outputs[:-1], ((1, 0), (0, 0), (0, 0))), 0)

    def of_matrix(rows: Float[Array, "T B N"], gradient: Float[Array, "T B M"]) -> Float[Array, "N M"]:
        flat = gradient.reshape(-1, gradient.shape[-1]).astype(rows.dtype)
        return product_of_transposed(rows.reshape(-1, rows.shape[-1]), flat, rows.dtype)

    return of_inputs, None, of_matrix(before, of_inputs), of_matrix(hidden, of_added)


_recurrence.defvjp(_forward, _backward)
