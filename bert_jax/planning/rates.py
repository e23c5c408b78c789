"""The two rates that bound a computation, of matrix products and of main memory, and the limit that they set."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, DTypeLike
from pydantic import Field

from bert_jax.model.products import product
from bert_jax.system.json_file import Shape
from bert_jax.training.devices import chip_of

_CPU_SIZES = (1024, 2048)
"""Sizes of square products on CPUs: which of them is faster depends on the caches."""
_ACCELERATOR_SIZES = (8192,)
"""Sizes of square products elsewhere: large enough to keep all of a chip busy."""
_COPIED = 1 << 26
"""Elements of float32 that are copied: 256 MiB, more than a cache holds."""


Positive = Annotated[float, Field(gt=0)]


class Rate(Shape):
    """A rate of one device (of the whole machine, if it is a CPU)."""

    per_second: Positive
    source: Literal["data sheet", "measured"]
    measured: float
    """What this process measured, per second; where the data sheet is the source, too."""


class Limit(Shape):
    """The least time of some work."""

    seconds: float
    binds: Literal["FLOPs", "bytes"]
    """Which of the two takes the longer time."""


class Rates(Shape):
    """The rates that bound a computation."""

    matrix: Rate
    """FLOPs a second of matrix products in the compute dtype."""
    memory: Rate
    """Bytes a second that are read from main memory and written to it, together."""

    def limit(self, flops: float, moved: float) -> Limit:
        """The longer of `flops` at the matrix rate and `moved` bytes at the memory bandwidth."""
        compute, memory = flops / self.matrix.per_second, moved / self.memory.per_second
        return Limit(seconds=max(compute, memory), binds="FLOPs" if compute >= memory else "bytes")


class SquareProduct:
    """The product of two square matrices of `dtype` on one device, with a float32 result."""

    def __init__(self, size: int, dtype: DTypeLike):
        self._size = size
        self._factors = [jax.random.normal(jax.random.key(number), (size, size), dtype) for number in range(2)]
        self._product = jax.jit(lambda a, b: product(a, b, jnp.float32))

    @property
    def flops(self) -> int:
        """FLOPs of one product."""
        return 2 * self._size**3

    def __call__(self) -> Array:
        return self._product(*self._factors)


class Copy:
    """An addition to a float32 array that is larger than any cache, in place: it reads and writes each element."""

    def __init__(self, elements: int = _COPIED):
        self._array = jnp.zeros(elements, jnp.float32)
        # In place, since the first writes to new memory wait for the system to map it.
        self._add = jax.jit(lambda x: x + 1, donate_argnums=0)

    @property
    def bytes(self) -> int:
        """Bytes that are read and written."""
        return 2 * self._array.nbytes

    def __call__(self) -> Array:
        self._array = self._add(self._array)
        return self._array


class RateProbes:
    """Work whose times tell the rates. It is timed in turn with what the rates are to bound."""

    def __init__(self, dtype: DTypeLike):
        """`dtype`: the compute dtype."""
        self._dtype = jnp.dtype(dtype)
        sizes = _CPU_SIZES if jax.default_backend() == "cpu" else _ACCELERATOR_SIZES
        self._products = {f"product of {size}": SquareProduct(size, dtype) for size in sizes}
        self._copy = Copy()

    @property
    def work(self) -> dict[str, Callable[[], Any]]:
        """What is to be timed, by name."""
        return {**self._products, "copy": self._copy}

    def rates(self, times: dict[str, list[float]]) -> Rates:
        """The rates by the shortest of the seconds that each of `work` took.

        Of known chips they are those of the data sheet, whose matrix rate is that of bfloat16.
        """
        chip = chip_of(jax.devices()[0].device_kind)
        matrix = max(product.flops / min(times[name]) for name, product in self._products.items())
        memory = self._copy.bytes / min(times["copy"])
        known = chip.flops if chip and self._dtype == jnp.bfloat16 else None
        return Rates(matrix=_rate(known, matrix), memory=_rate(chip and chip.memory_bandwidth, memory))


def _rate(known: float | None, measured: float) -> Rate:
    return Rate(per_second=known or measured, source="data sheet" if known else "measured", measured=measured)
