"""Draws the confusion matrix of a task."""

from typing import Any

from bert_jax.system.bucket import Place
from bert_jax.system.picture import write_picture

_FONT = "DejaVu Sans"
"""A font that comes with matplotlib."""
_LARGEST_NAMED = 30
"""Most classes drawn: with more, counts and names would overlap."""


def write_confusion_picture(path: Place, confusion: dict[str, Any], title: str) -> None:
    """Writes a PNG, each row coloured by shares of its class; prints a note if matplotlib isn't installed.

    Where no font on this machine has the labels' characters, they are numbers from 0 in the order of `labels`.
    """
    names, counts = confusion["labels"], confusion["counts"]
    side = min(2.5 + 0.45 * len(names), 16)
    shares = [[count / max(sum(row), 1) for count in row] for row in counts]

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        figure.colorbar(image, label="share of the true class")
        figure.suptitle(title, fontsize="medium", parse_math=False)
        axes.set_xlabel("predicted")
        axes.set_ylabel("true")
        if len(names) <= _LARGEST_NAMED:
            _write_names(axes, names)
            for row, of_row in enumerate(counts):
                for column, count in enumerate(of_row):
                    color = "white" if shares[row][column] > 0.5 else "black"
                    axes.text(column, row, f"{count:,}", ha="center", va="center", color=color)

    write_picture(path, (side + 1.5, side + 0.3), draw)


def _write_names(axes: Any, names: list[str]) -> None:
    """Writes the classes' names along both axes."""
    fonts = _fonts_with(names)
    labels = names if fonts else [str(number) for number in range(len(names))]
    style = {"fontfamily": fonts or _FONT, "parse_math": False}  # a label with dollar signs is no formula
    axes.set_xticks(range(len(names)), labels, rotation=45, ha="right", rotation_mode="anchor", **style)
    axes.set_yticks(range(len(names)), labels, **style)


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
