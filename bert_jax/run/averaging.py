"""The mean of the parameters of several checkpoints."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jaxtyping import Array, Float

from bert_jax.model.bert import Parameters

_PARTS = 4
"""A checkpoint is read and added in so many parts, each at least one array. Orbax holds most of the arrays that it
reads twice: reading all at once would take memory for a third copy of the parameters."""

Leaves = dict[tuple[str, ...], Any]
"""The leaves of a tree of parameters, by their paths."""


def mean_of(reads: Sequence[Callable[[Parameters], Parameters]], shapes: Parameters) -> Parameters:
    """The arithmetic mean of the parameters that `reads` return, as in Vaswani et al. (2017), section 6.1.

    They are summed up and divided in their type, float32; a single one is returned unchanged. Each of `reads` takes a
    tree of shapes with shardings, a part of `shapes`, and returns its arrays. Memory holds two copies of the parameters
    at most: the sum and the one being read. Raises ValueError if `reads` is empty.
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


def _added(total: Mapping, more: Mapping) -> Mapping:
    return jax.tree.map(jnp.add, total, more)


def _divided(total: Mapping, count: Float[Array, ""]) -> Mapping:
    return jax.tree.map(lambda leaf: leaf / count, total)


# `total` is donated: its arrays become those of the result.
_sum = jax.jit(_added, donate_argnums=0)
_quotient = jax.jit(_divided, donate_argnums=0)
