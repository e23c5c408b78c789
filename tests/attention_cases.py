"""Patterns of attention, and comparisons of a form with the exact one for them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.model.attention_pattern import AttentionPattern, Places
from bert_jax.model.exact_attention import exact_attention

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


def assert_alike(form, pattern, heads, size, rate):
    """Compares the context, and the gradients of query, key and value, with those of the exact form."""
    for exact, found in zip(*(_with_gradients(each, pattern, heads, size, rate) for each in (exact_attention, form))):
        assert np.abs(exact - found).max() < 1e-5 * np.abs(exact).max()


def _with_gradients(form, pattern, heads, size, rate):
    """The context and the gradients, where nothing depends on the context of padding."""
    batch, length = pattern.keys.sequence.shape
    key, value, *of_queries = jax.random.normal(jax.random.key(1), (4, batch, length, heads, size))
    real = (pattern.queries.sequence > 0)[:, :, None, None]
    query, gradient = (each[:, : real.shape[1]] for each in of_queries)
    keys = jax.random.split(jax.random.key(2), (batch, pattern.sequences, heads))

    @jax.jit
    def computed(*given):
        context, backward = jax.vjp(lambda *given: form(*given, pattern, rate, keys), *given)
        return context, *backward(jnp.where(real, gradient, 0))

    context, *gradients = map(np.asarray, computed(query, key, value))
    assert np.isfinite(context).all()
    return np.where(real, context, 0), *gradients


def assert_sequences_are_apart(form, pattern, heads, size):
    """NaN in the second sequence, which any product would carry on, doesn't reach the first one, as by the exact form
    it does."""
    batch, length = pattern.keys.sequence.shape
    keys = jax.random.split(jax.random.key(0), (batch, pattern.sequences, heads))
    clean = jax.random.normal(jax.random.key(1), (4, batch, length, heads, size))
    first = np.asarray(pattern.keys.sequence) == 1
    spoiled = jnp.where((pattern.keys.sequence == 2)[:, :, None, None], jnp.nan, clean)

    @functools.partial(jax.jit, static_argnums=0)
    def of_first(form, query, key, value, gradient):
        context, backward = jax.vjp(lambda *given: form(*given, pattern, 0.1, keys), query, key, value)
        return jnp.stack([context, *backward(gradient)])[:, first]

    assert jnp.array_equal(of_first(form, *spoiled), of_first(form, *clean))
    assert jnp.isnan(of_first(exact_attention, *spoiled)).any()
