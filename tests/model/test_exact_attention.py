"""Attention of long rows in parts is the exact form, with gradients and dropout."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from token_rows import packed_tokens

from bert_jax.layout import lay_out
from bert_jax.model import exact_attention
from bert_jax.model.attention_pattern import AttentionPattern

LENGTH = 33
ROWS = {"one sequence a row": ((30,), (22,)), "packed": ((10, 20), (22, 5))}


def values_and_gradients(tokens, pattern, rate):
    arrays = jax.random.normal(jax.random.key(0), (3, 2, LENGTH, 2, 8))
    keys = jax.random.split(jax.random.key(1), (2, pattern.sequences, 2))
    real = (tokens.sequence > 0)[:, :, None, None]

    def loss(arrays):
        context = jnp.where(real, exact_attention.exact_attention(*arrays, pattern, rate, keys if rate else None), 0.0)
        return jnp.sum(jnp.sin(context)), context

    (_, context), gradients = jax.jit(jax.value_and_grad(loss, has_aux=True))(arrays)
    return context, gradients


@pytest.mark.parametrize(
    "rows, window, causal, rate",
    [("packed", window, causal, 0.3) for window in (3, None) for causal in (False, True)]
    + [("packed", window, True, 0.0) for window in (3, None)]
    + [("one sequence a row", 3, True, 0.3), ("one sequence a row", None, False, 0.3)],
)
def test_parts_give_what_the_whole_gives(monkeypatch, rows, window, causal, rate):
    tokens = packed_tokens(ROWS[rows], LENGTH)
    pattern = AttentionPattern.of(tokens, causal)._replace(window=window)
    expected = values_and_gradients(tokens, pattern, rate)
    parts = []
    for name in ("_in_bands", "_in_strips"):
        part = getattr(exact_attention, name)
        counted = lambda *arguments, part=part, name=name: parts.append(name) or part(*arguments)
        monkeypatch.setattr(exact_attention, name, counted)
    monkeypatch.setattr(exact_attention, "_LEAST_BLOCK", 4)
    monkeypatch.setattr(exact_attention, "_STRIP", 8)
    monkeypatch.setattr(exact_attention, "_MOST_SCORES", 500)
    found = values_and_gradients(tokens, pattern, rate)
    assert parts == ["_in_bands" if window else "_in_strips"]
    for one, other in zip(expected, found):
        np.testing.assert_allclose(one, other, atol=3e-6)


def scores_of(program: str) -> int:
    """Elements of the largest array of a lowered program."""
    return max(
        int(np.prod([int(size) for size in shape.split("x")[:-1]]))
        for shape in set(part.split(">")[0] for part in program.split("tensor<")[1:])
        if "x" in shape
    )


@pytest.mark.parametrize("window", [8, None])
def test_no_array_grows_with_the_square_of_the_length(window, monkeypatch):
    monkeypatch.setattr(exact_attention, "_LEAST_BLOCK", 8)
    monkeypatch.setattr(exact_attention, "_STRIP", 32)
    monkeypatch.setattr(exact_attention, "_MOST_SCORES", 64 * 64)
    largest = []
    for length in (256, 512):
        one = lay_out(np.ones(length, int), np.array([length]), np.array([length]), (1, length))
        pattern = AttentionPattern.of(jax.tree.map(jnp.asarray, one), causal=False)._replace(window=window)
        arrays = jnp.zeros((3, 1, length, 2, 8))
        step = jax.jit(jax.grad(lambda arrays: jnp.sum(exact_attention.exact_attention(*arrays, pattern, 0.0, None))))
        largest.append(scores_of(step.lower(arrays).as_text()))
    assert largest[1] <= 2.1 * largest[0]
