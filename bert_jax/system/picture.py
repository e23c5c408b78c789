"""Plots, drawn by matplotlib if it is installed."""

import functools
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from bert_jax.system.bucket import Place
from bert_jax.system.errors import install_extra
from bert_jax.system.files import replacing
from bert_jax.system.progress import say


def write_picture(path: Place, size: tuple[float, float], draw: Callable[[Any], None]) -> None:
    """Writes a PNG to `path`: `draw` gets a matplotlib Figure of `size` (width and height in inches) to draw on.

    Without matplotlib nothing is written, and a message says so once.
    """
    if find_spec("matplotlib") is None:
        _say_missing(path.name)
        return
    from matplotlib.figure import Figure

    figure = Figure(size, layout="constrained")
    draw(figure)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)


@functools.cache
def _say_missing(name: str) -> None:
    say(f"{name} isn't drawn: matplotlib is not installed; {install_extra('plot')}")
