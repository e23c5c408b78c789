"""How often each class was taken for each, as a picture."""

from importlib.util import find_spec
from typing import Any

from bert_jax.system.bucket import Place
from bert_jax.system.files import replacing
from bert_jax.system.progress import say

_FONT = "DejaVu Sans"
"""Comes with matplotlib."""
_LARGEST_NAMED = 30
"""With more classes counts and names would lie over each other."""


def write_confusion_picture(path: Place, confusion: dict[str, Any]) -> None:
    """Writes a PNG, each row coloured by shares of its class; says so where matplotlib isn't installed.

    Where no font on this machine has the labels' characters, they are numbers from 0 in the order of `labels`.
    """
    if find_spec("matplotlib") is None:
        say(f"pip install bert_jax[plot] for a picture of the classes, {path.name}")
        return
    from matplotlib.figure import Figure

    names, counts = confusion["labels"], confusion["counts"]
    side = min(2.5 + 0.45 * len(names), 16)
    figure = Figure((side + 1, side), layout="constrained")
    axes = figure.add_subplot()
    shares = [[count / max(sum(row), 1) for count in row] for row in counts]
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(image, label="share of the row")
    axes.set_xlabel("predicted")
    axes.set_ylabel("right")
    if len(names) <= _LARGEST_NAMED:
        fonts = _fonts_with(names)
        shown = names if fonts else [str(number) for number in range(len(names))]
        style = {"fontfamily": fonts or _FONT, "parse_math": False}  # a label with dollar signs is no formula
        axes.set_xticks(range(len(names)), shown, rotation=45, ha="right", rotation_mode="anchor", **style)
        axes.set_yticks(range(len(names)), shown, **style)
        for row, of_row in enumerate(counts):
            for column, count in enumerate(of_row):
                color = "white" if shares[row][column] > 0.5 else "black"
                axes.text(column, row, f"{count:,}", ha="center", va="center", color=color)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)


def _fonts_with(names: list[str]) -> list[str]:
    """Matplotlib's own font, and another one for the characters that it lacks; none where these are in no font."""
    from matplotlib.font_manager import findfont, fontManager, get_font

    missing = set(map(ord, "".join(names))) - get_font(findfont(_FONT)).get_charmap().keys()
    if not missing:
        return [_FONT]
    others = [font for font in fontManager.ttflist if not font.name.startswith("Last Resort")]  # has a box for each
    found = (font.name for font in others if missing <= get_font(font.fname).get_charmap().keys())
    other = next(found, None)
    return [_FONT, other] if other else []
