"""The two rates that bound a computation, of matrix products and of main memory, and the limit that they set."""

from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, DTypeLike
from pydantic import Field

from bert_jax.system import facts
from bert_jax.system.facts import Facts
from bert_jax.system.json_file import Shape
from bert_jax.training.devices import SquareProduct, chip_of

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


class Limit(Facts):
    """The least time of some work."""

    seconds: Annotated[facts.BareMilliseconds, "limit\nms"]
    binds: Annotated[Literal["FLOPs", "bytes"], "by"]
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


class Probe(NamedTuple):
    """Work whose time gives a rate."""

    run: Callable[[], Array]
    amount: int
    """FLOPs, or bytes moved, of one run."""


def copy(elements: int = _COPIED) -> Probe:
    """An addition to a float32 array that is larger than any cache: it reads and writes each element.

    It is in place, since the first writes to new memory wait for the system to map it.
    """
    array = jnp.zeros(elements, jnp.float32)
    add = jax.jit(lambda x: x + 1, donate_argnums=0)

    def run() -> Array:
        nonlocal array
        array = add(array)
        return array

    return Probe(run, 2 * array.nbytes)


class RateProbes:
    """Work whose times give the rates. It is timed in turn with the work that the rates are to bound."""

    def __init__(self, dtype: DTypeLike):
        """`dtype`: the compute dtype."""
        self._dtype = jnp.dtype(dtype)
        sizes = _CPU_SIZES if jax.default_backend() == "cpu" else _ACCELERATOR_SIZES
        self._probes = {f"product of {size}": Probe(*SquareProduct.of(size, dtype)) for size in sizes} | {
            "copy": copy()
        }

    @property
    def work(self) -> dict[str, Callable[[], Any]]:
        """The work to be timed, by name."""
        return {name: probe.run for name, probe in self._probes.items()}

    def rates(self, times: dict[str, list[float]]) -> Rates:
        """The rates by the shortest of the seconds that each of `work` took.

        Of known chips they are those of the data sheet, whose matrix rate is that of bfloat16.
        """
        measured = {name: probe.amount / min(times[name]) for name, probe in self._probes.items()}
        memory = measured.pop("copy")
        matrix = max(measured.values())
        chip = chip_of(jax.devices()[0].device_kind)
        peak = chip.flops if chip and self._dtype == jnp.bfloat16 else None
        return Rates(matrix=_rate(peak, matrix), memory=_rate(chip and chip.memory_bandwidth, memory))


def _rate(known: float | None, measured: float) -> Rate:
    return Rate(per_second=known or measured, source="data sheet" if known else "measured", measured=measured)
