"""Rotary positions: queries and keys are rotated by their positions, so that their inner product depends only on the
distance between them (Su et al. 2021)."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bert_jax.model.linear import recomputed


def rotated(x: Float[Array, "B T H K"], positions: Int[Array, "B T"] | None, base: float) -> Float[Array, "B T H K"]:
    """`x` with features i and i + K/2 of each vector turned as a pair by the angle position / base^(2i/K), in float32.

    `positions`: None where vector t of each row has position t. Pairs are those of transformers; Su et al. pair 2i with
    2i + 1, the same up to the order of the features.
    """
    frequencies = (base ** -(np.arange(0, x.shape[-1], 2) / x.shape[-1])).astype(np.float32)
    if positions is None:  # constants of the program
        angles = np.arange(x.shape[1], dtype=np.float32)[None, :, None] * frequencies
        cosines, sines = jnp.asarray(np.cos(angles)), jnp.asarray(np.sin(angles))
    else:
        cosines, sines = jnp.cos(positions[:, :, None] * frequencies), jnp.sin(positions[:, :, None] * frequencies)
    cosines, sines = cosines[:, :, None], sines[:, :, None]  # the same for all heads

    @recomputed
    def turned(x, cosines, sines):
        first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
        parts = first * cosines - second * sines, second * cosines + first * sines
        return jnp.concatenate(parts, axis=-1).astype(x.dtype)

    return turned(x, cosines, sines)
