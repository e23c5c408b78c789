"""What the TPU's attention kernels have in common: their sizes, who attends to whom, dropout, and the call."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Int

from bert_jax.model.dropout import survives

LANES = 128
"""Width of a TPU's vector registers: the last axis of every block is a multiple of it."""
LEAST = float(np.finfo(np.float32).min)
"""Score of a key that isn't admitted."""


class Kernel(NamedTuple):
    """What a kernel is compiled for."""

    heads: int
    head_size: int
    rate: float
    """Of dropout; 0 for none."""
    sequences: int
    """How many sequences a row may hold."""
    causal: bool
    window: int | None
    interpreted: bool
    """Whether it runs as plain JAX operations, on any backend: for tests."""

    @property
    def together(self) -> int:
        """Heads of a program: as many as fill the lanes."""
        return max(1, LANES // self.head_size)

    @property
    def lanes(self) -> int:
        """Features of a program's heads together."""
        return self.together * self.head_size

    @property
    def by_query(self) -> bool:
        """Whether the queries of a row attend to different keys."""
        return self.sequences > 1 or self.causal or self.window is not None

    @property
    def head_lanes(self) -> list[slice]:
        """The lanes of each head of a program."""
        return [slice(at * self.head_size, (at + 1) * self.head_size) for at in range(self.together)]


class Call(NamedTuple):
    """One run of a program over rows, heads and blocks of queries, one after the other."""

    kernel: Kernel
    shape: tuple[int, ...]
    """[B, T, D] of queries, keys and values."""
    rows: int
    """Rows of a program."""
    block: int
    """Queries of a program."""

    def __call__(
        self,
        program: Callable[..., None],
        scalars: Sequence[Array],
        taken: Sequence[tuple[str, Array]],
        made: Sequence[tuple[str, jax.ShapeDtypeStruct]],
        products: int,
        summed: int = 0,
    ) -> Sequence[Array]:
        """Runs `program` on its arrays, each after the name of what it is split by (see `_spec`).

        `products`: how many matrix products of all queries with all keys it takes; `summed`: for how many of the
        results it has an array of all keys in float32, for sums over the blocks of queries.
        """
        batch, length, width = self.shape
        grid = batch // self.rows, width // self.kernel.lanes, length // self.block
        keys = (self.rows, length, self.kernel.lanes)
        return pl.pallas_call(
            functools.partial(program, self.kernel),
            out_shape=[shape for _, shape in made],
            grid_spec=pltpu.PrefetchScalarGridSpec(
                num_scalar_prefetch=len(scalars),
                grid=grid,
                in_specs=[self._spec(by) for by, _ in taken],
                out_specs=[self._spec(by) for by, _ in made],
                scratch_shapes=[pltpu.VMEM(keys, jnp.float32)] * summed,
            ),
            compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
            cost_estimate=pl.CostEstimate(
                flops=products * 2 * batch * length * length * width,
                transcendentals=batch * self.kernel.heads * length * length,
                bytes_accessed=sum(_bytes(array) for _, array in taken) + sum(_bytes(shape) for _, shape in made),
            ),
            interpret=self.kernel.interpreted,
        )(*(scalar.reshape(-1) for scalar in scalars), *(array for _, array in taken))

    def _spec(self, by: str) -> pl.BlockSpec:
        """The part of an array that a program has: queries' and keys' [B, T, D], places [B, 2, T], and a number for
        each head and query, [B, D / lanes, heads of a program, T]."""
        rows, block, lanes, (_, length, _) = self.rows, self.block, self.kernel.lanes, self.shape
        return {
            "queries": pl.BlockSpec((rows, block, lanes), lambda row, head, part, *_: (row, part, head)),
            "keys": pl.BlockSpec((rows, length, lanes), lambda row, head, part, *_: (row, 0, head)),
            "places": pl.BlockSpec((rows, 2, length), lambda row, head, part, *_: (row, 0, 0)),
            "numbers": pl.BlockSpec(
                (rows, 1, self.kernel.together, block), lambda row, head, part, *_: (row, head, 0, part)
            ),
        }[by]


def _bytes(array: Array | jax.ShapeDtypeStruct) -> int:
    return int(array.size * array.dtype.itemsize)


def here() -> tuple[Array, Array, Array]:
    """The program's numbers along rows, heads and blocks of queries. Not to be asked for within a loop."""
    return pl.program_id(0), pl.program_id(1), pl.program_id(2)


def as_column(line: Array) -> Array:
    """A line [1, n] as a column [n, 1]."""
    return jnp.transpose(jnp.broadcast_to(line, (LANES, line.shape[1])))[:, :1]


def as_line(column: Array) -> Array:
    """A column [n, 1] as a line [1, n]."""
    return jnp.transpose(jnp.broadcast_to(column, (column.shape[0], LANES)))[:1]


def of_queries(places: Any, row: Array, part: Array, block: int) -> tuple[Array, Array]:
    """The sequence and position of each query of block `part`, as columns."""
    begin = pl.multiple_of(part * block, LANES)
    return as_column(places[row, :1, pl.ds(begin, block)]), as_column(places[row, 1:, pl.ds(begin, block)])


def admitted(kernel: Kernel, own: Any, at: Any, sequence: Int[Array, "1 n"], position: Int[Array, "1 n"]) -> Array:
    """Which of n keys each query attends to, by the sequence and position of both; one line for all queries, of which
    `own` and `at` are None, where that is the same."""
    found = sequence > 0
    if kernel.sequences > 1:
        found &= own == sequence
    if kernel.causal:
        found &= position <= at
    if kernel.window is not None:
        found &= jnp.abs(position - at) <= kernel.window
    return found


def survivors(kernel: Kernel, head_keys: Any, row: Array, head: Array, own: Any, line: Any, column: Any):
    """Which probabilities of a head dropout keeps, by the places of queries (`line`) and keys (`column`).

    `head_keys`: two words for each row, sequence and head. A query's are those of its own sequence.
    """
    first = 2 * (row * kernel.sequences * kernel.heads + head)
    words: tuple[Any, ...] = head_keys[first], head_keys[first + 1]
    for number in range(1, kernel.sequences):
        at = first + 2 * number * kernel.heads
        words = tuple(jnp.where(own == number + 1, head_keys[at + half], words[half]) for half in range(2))
    return survives(words, line.astype(jnp.uint32), column.astype(jnp.uint32), kernel.rate)


def product(first: Array, second: Array, contracted: tuple[int, int]) -> Array:
    """A product of two matrices over these axes, summed in float32."""
    axes = ((contracted[0],), (contracted[1],)), ((), ())
    return jax.lax.dot_general(first, second, axes, preferred_element_type=jnp.float32)
