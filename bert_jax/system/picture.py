"""Pictures, drawn by matplotlib where it is installed."""

import functools
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from bert_jax.system.bucket import Place
from bert_jax.system.errors import install_extra
from bert_jax.system.files import replacing
from bert_jax.system.progress import say


def write_picture(path: Place, size: tuple[float, float], draw: Callable[[Any], None]) -> None:
    """Writes the PNG at `path` that `draw` draws on a matplotlib Figure, of so many inches.

    Where matplotlib isn't installed nothing is written, which is said once.
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
