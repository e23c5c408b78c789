"""Facts: records of figures with units, which `system/tables.py` prints as tables or JSON."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_type_hints

from pydantic import ConfigDict

from bert_jax.system.json_file import Shape
from bert_jax.system.progress import duration


@dataclass(frozen=True)
class Unit:
    """The unit of a figure, in the Annotated type of a field or property of a Facts."""

    text: Callable[[Any], str]
    """Writes a figure as text with its unit."""
    unknown: str = ""
    """The text of None."""


def _rounded(value: float) -> str:
    return f"{value:,.{0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 2}f}"


def percent(share: float) -> str:
    """A share as text in percent, with two or three digits."""
    return f"{share:.0%}" if abs(share) >= 0.1 else f"{share:.1%}"


def bytes_moved(size: float) -> str:
    """Bytes of traffic as text in MB or GB."""
    return f"{size / 1e9:,.2f} GB" if size >= 1e8 else f"{size / 1e6:,.2f} MB"


def flops_per_second(rate: float) -> str:
    """A rate of FLOPs as text in GFLOP/s or TFLOP/s."""
    return f"{rate / 1e12:,.1f} TFLOP/s" if rate > 1e13 else f"{rate / 1e9:,.1f} GFLOP/s"


def bytes_per_second(rate: float) -> str:
    """A rate of bytes as text in GB/s."""
    return f"{rate / 1e9:,.1f} GB/s"


def milliseconds(seconds: float, decimals: int = 2) -> str:
    """`seconds` as text in ms."""
    return f"{seconds * 1e3:,.{decimals}f} ms"


def gib(size: float) -> str:
    """`size` in bytes as text in GiB."""
    return f"{size / 2**30:,.2f} GiB"


Memory = Annotated[int, Unit(gib)]
Traffic = Annotated[int, Unit(bytes_moved)]
Megabytes = Annotated[float, Unit(lambda size: _rounded(size / 1e6))]
Milliseconds = Annotated[float, Unit(milliseconds)]
BareMilliseconds = Annotated[float, Unit(lambda seconds: _rounded(seconds * 1e3))]
"""Milliseconds without their unit, which stands in the heading."""
Flops = Annotated[float, Unit("{:.3e}".format)]
Gigaflops = Annotated[float, Unit(lambda flops: _rounded(flops / 1e9))]
FlopRate = Annotated[float, Unit(flops_per_second)]
PerSecond = Annotated[float, Unit(lambda rate: f"{rate:,.0f} /s")]
Share = Annotated[float, Unit("{:.1%}".format)]
Hours = Annotated[float, Unit(lambda hours: duration(3600 * hours))]
Seconds = Annotated[float, Unit(duration)]


class Facts(Shape):
    """A record of figures. Its fields and properties have a heading for tables as a text in their Annotated type;
    without it, the heading is the name."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class Figure:
    """A field or property of a Facts: its heading, what it means, and its value as text."""

    def __init__(self, kind: type[Facts], name: str):
        if field := kind.model_fields.get(name):
            annotation, self.meaning = get_type_hints(kind, include_extras=True)[name], field.description or ""
        else:
            getter: Any = inspect.getattr_static(kind, name)
            getter = getattr(getter, "wrapped", getter).fget  # of a computed_field the property
            annotation, self.meaning = get_type_hints(getter, include_extras=True)["return"], getter.__doc__
        metadata = _metadata(annotation)
        self._unit = next((each for each in metadata if isinstance(each, Unit)), None)
        self.heading = next((each for each in metadata if isinstance(each, str)), name.replace("_", " "))

    def text(self, value: Any) -> str:
        """The value as text, with its unit if it has one."""
        if value is None:
            return self._unit.unknown if self._unit else ""
        if self._unit:
            return self._unit.text(value)
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, dict):
            return " x ".join(f"{name} {size}" for name, size in value.items())
        return f"{value:,}" if isinstance(value, int | float) else str(value)


def _metadata(annotation: Any) -> list[Any]:
    """The metadata in `annotation`, an Annotated type or a union with one."""
    inner = [each for option in get_args(annotation) for each in _metadata(option)]
    return [*getattr(annotation, "__metadata__", ()), *inner]


def facts_of(kind: type[Facts]) -> Iterator[str]:
    """The names of a Facts' fields and computed fields, in order."""
    yield from kind.model_fields
    yield from kind.model_computed_fields
