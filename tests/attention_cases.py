"""Patterns of attention, and the results of a form for them, to be compared with those of the exact form."""

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.model.attention_pattern import AttentionPattern, Places

PATTERNS = {
    "whole rows and short ones": dict(lengths=[[128], [100], [1], []]),
    "several sequences a row": dict(lengths=[[50, 30, 40], [128], [1, 1], []]),
    "causal": dict(lengths=[[128], [77]], causal=True),
    "packed, causal, near": dict(lengths=[[64, 64], [30, 90]], causal=True, window=16),
    "several blocks of queries": dict(lengths=[[1024], [300]]),
}


def pattern_of(lengths, numbers=None, size=None, **sizes) -> AttentionPattern:
    """Rows of `size` tokens, by default as many as the first row has, with sequences of these lengths, which have these
    numbers, by default 1, 2 and so on."""
    numbers = numbers or [range(1, len(row) + 1) for row in lengths]
    places = np.zeros((2, len(lengths), size or max(128, sum(lengths[0]))), np.int32)
    for row, of_row in enumerate(zip(lengths, numbers)):
        each, named = (np.array(values, int) for values in of_row)
        places[:, row, : each.sum()] = (
            np.repeat(named, each),
            np.arange(each.sum()) - np.repeat(each.cumsum() - each, each),
        )
    queries = Places(*map(jnp.asarray, places))
    return AttentionPattern(queries, queries, max(map(max, filter(len, numbers))), **sizes)


def with_gradients(form, pattern, heads, size, rate):
    """The context, and the gradients of query, key and value, where nothing depends on the context of padding."""
    batch, length = pattern.keys.sequence.shape
    *given, gradient = jax.random.normal(jax.random.key(1), (4, batch, length, heads, size))
    real = (pattern.keys.sequence > 0)[:, :, None, None]
    keys = jax.random.split(jax.random.key(2), (batch, pattern.sequences, heads))

    @jax.jit
    def computed(*given):
        context, backward = jax.vjp(lambda *given: form(*given, pattern, rate, keys), *given)
        return context, *backward(jnp.where(real, gradient, 0))

    context, *gradients = map(np.asarray, computed(*given))
    assert np.isfinite(context).all()
    return np.where(real, context, 0), *gradients
