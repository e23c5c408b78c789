"""TPU slices to compile for: their names, and their devices as libtpu describes them."""

import math
import os
import re
from importlib.util import find_spec
from typing import NamedTuple

import jax
from jax.experimental import topologies

from bert_jax.system.errors import RunError, UsageError
from bert_jax.training.devices import CHIPS, Chip

MOST_CHIPS = 1024
"""Largest slice that can be planned."""


class Family(NamedTuple):
    """A TPU generation."""

    slices: tuple[str, ...]
    """Slices on offer (https://cloud.google.com/tpu/docs), smallest first, up to MOST_CHIPS."""
    ring: int
    """Sides whose length is a multiple of this have wraparound links, so they are rings."""
    whole: bool
    """Whether there are wraparound links only if all sides have such a length."""
    cores: int = 1
    """What one chip counts for in the names of Cloud's accelerator types: v4-8 and v5p-8 are four chips of two
    TensorCores each."""
    options: dict[str, object] = {}
    """Options with which libtpu describes a chip as one device, as JAX sees it on a TPU machine."""


_FLAT = ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
_CUBES = ("1x1x1", "2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8", "8x8x8", "8x8x16")

FAMILIES = {
    "v4": Family(_CUBES, ring=4, whole=True, cores=2, options={"chip_config_name": "megacore"}),
    "v5e": Family(_FLAT, ring=16, whole=False),
    "v5p": Family(_CUBES, ring=4, whole=True, cores=2),
    "v6e": Family(_FLAT, ring=16, whole=False),
}


# Without these libtpu looks for a TPU on this machine and prints errors. The values make no difference.
_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v4-8",
    "TPU_WORKER_ID": "0",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # one process may use a TPU; any number may compile
}


class Topology(NamedTuple):
    """A slice: a grid of TPU chips."""

    family: str
    sides: tuple[int, ...]

    @classmethod
    def of(cls, family: str, shape: str) -> "Topology":
        return cls(family, tuple(map(int, shape.split("x"))))

    def __str__(self) -> str:
        return f"{self.family}:{'x'.join(map(str, self.sides))}"

    @property
    def chip(self) -> Chip:
        """Peak rates and memory of one chip."""
        return CHIPS[f"TPU {self.family}"]

    @property
    def chips(self) -> int:
        return math.prod(self.sides)

    @property
    def largest(self) -> "Topology":
        return Topology.of(self.family, FAMILIES[self.family].slices[-1])

    def seconds(self, flops: float) -> float:
        """The least time of matrix products over all chips."""
        return flops / (self.chip.flops * self.chips)

    @property
    def links(self) -> int:
        """Links of a chip that can send at the same time: two for each side that is a ring, one for other sides longer
        than 1.
        """
        family = FAMILIES[self.family]
        closed = [side > 1 and side % family.ring == 0 for side in self.sides]
        rings = all(closed) if family.whole else True
        return sum((side > 1) + (end and rings) for side, end in zip(self.sides, closed, strict=True))


def parse_topology(text: str) -> Topology:
    """Parses a slice such as `v5e:4x4` or `v4:2x2x2`. Raises UsageError with the form and similar slices."""
    name, _, shape = text.strip().partition(":")
    family = FAMILIES.get(name)
    if not family:
        if match := re.fullmatch(r"(v\d+[a-z]*)-(\d{1,4})", name.replace("litepod", "e")):
            raise UsageError(_of_accelerator_type(text, *match.groups()))
        raise UsageError(
            f"--topology {text}: there are plans for {', '.join(FAMILIES)}; "
            "give FAMILY:SIDExSIDE, as in v5e:4x4, or with three sides v4:2x2x2"
        )
    dimensions = family.slices[0].count("x") + 1
    if not re.fullmatch(r"[1-9]\d{0,3}(x[1-9]\d{0,3})" + f"{{{dimensions - 1}}}", shape):
        form = "x".join("ABC"[:dimensions])
        raise UsageError(f"--topology {text}: a slice of {name} is {name}:{form}, as in {_near(name, shape)}")
    topology = Topology.of(name, shape)
    # A host has 2x2 chips, or all chips of a smaller slice.
    if any(side > 1 and side % 2 for side in topology.sides[:2]) or topology.chips > MOST_CHIPS:
        raise UsageError(
            f"--topology {text}: the first two sides are 1 or even and the chips at most {MOST_CHIPS:,}; "
            f"near it are {_near(name, shape)}"
        )
    return topology


def _of_accelerator_type(text: str, name: str, count: str) -> str:
    """The message for `text`, a Cloud accelerator type such as v5litepod-64 instead of a slice."""
    if not (family := FAMILIES.get(name)):
        return f"--topology {text}: there are plans for {', '.join(FAMILIES)}; give one like v5e:4x4"
    chips = max(int(count) // family.cores, 1)
    same = [shape for shape in family.slices if Topology.of(name, shape).chips == chips]
    meant = f"{name}:{same[0]}" if same else f"one near it, {_near(name, str(chips))}"
    return f"--topology {text}: a slice is named by its sides; give {meant}"


def _near(name: str, shape: str) -> str:
    """Slices on offer with about as many chips as `shape` seems to mean."""
    chips = math.prod(int(number) or 1 for number in re.findall(r"[0-9]{1,4}", shape))
    slices = [Topology.of(name, each) for each in FAMILIES[name].slices]
    nearest = sorted(slices, key=lambda each: abs(math.log(each.chips / chips)))[:3]
    return ", ".join(map(str, sorted(nearest, key=lambda each: each.chips)))


def can_compile() -> bool:
    """Whether libtpu, the TPU compiler, is installed."""
    return find_spec("libtpu") is not None


def topology_devices(topology: Topology) -> list[jax.Device]:
    """One device for each chip, to compile for. Raises RunError if libtpu can't describe the slice.

    From here on this process computes on the CPU, even if the machine has accelerators.
    """
    jax.config.update("jax_platforms", "cpu")
    # Programs that are compiled ahead of time can be written to JAX' cache but not read from it.
    jax.config.update("jax_enable_compilation_cache", False)
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    here = tuple(min(side, 2) for side in topology.sides[:2])  # of the 2x2 chips of a host
    options = FAMILIES[topology.family].options | ({} if here == (2, 2) else {"chips_per_host_bounds": (*here, 1)})
    try:
        devices = topologies.get_topology_desc(str(topology), platform="tpu", **options).devices
    except (jax.errors.JaxRuntimeError, RuntimeError) as error:
        raise RunError(f"libtpu knows no slice {topology}: {str(error).splitlines()[0]}") from None
    if len(devices) != topology.chips:
        raise RunError(
            f"libtpu describes the {topology.chips} chips of {topology} as {len(devices)} devices; the tested set in "
            "launch/constraints.txt has a version that counts a chip as one"
        )
    return devices
