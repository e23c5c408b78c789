"""Charts as Vega-Lite specifications, with their data and the same figures as a table."""

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from bert_jax.run.curves import MOST_POINTS, Curve
from bert_jax.system.errors import first_of

_MOST_IN_PAGE = 24_000
"""Most points in all charts of a page, which take about half a megabyte."""
_ROWS = 20
"""Steps in the table under a chart."""
_MARKED = 40
"""Most points of a curve that are drawn as dots."""
_HEIGHT = 230
HELD_OUT_CURVE, TRAINING_CURVE = "held out", "training"

AxisFormat = Literal["number", "share", "rate", "speed"]
_AXES: dict[AxisFormat, dict[str, str]] = {
    "number": {
        "labelExpr": "datum.value !== 0 && (abs(datum.value) < 1e-3 || abs(datum.value) >= 1e6) "
        "? format(datum.value, '.3~e') : format(datum.value, ',.6~r')"
    },
    "share": {"format": ".1~%"},
    "rate": {"labelExpr": "datum.value === 0 ? '0' : format(datum.value, '~e')"},
    "speed": {"format": "~s"},
}


class Chart(NamedTuple):
    """One chart, with a description and a table for readers who can't see it."""

    title: str
    description: str
    """In a sentence or two: what it shows, with the first and last figures."""
    spec: dict[str, Any]
    """Vega-Lite; its data has the name `points` and fields x, y and s (the name of the curve)."""
    series: list[dict[str, Any]]
    """For each curve its `name`, `x` and `y`; the last one is drawn over the others."""
    headings: list[str]
    rows: list[list[str]]
    """The table: figures of some steps."""
    palette: Literal["two", "many"] = "many"
    """Two: the held-out and the training curve. Many: curves of equal rank."""


def number_text(value: float, axis: AxisFormat = "number") -> str:
    """A number as an axis of this format, or a cell of a table, shows it."""
    if axis == "share":
        return f"{value:.1%}"
    if axis == "rate":
        return f"{value:.2e}"
    size = abs(value)
    if size >= 1e7 or 0 < size < 1e-3:
        return f"{value:.3g}"
    return f"{value:,.0f}" if size >= 1000 or axis == "speed" and size >= 100 else f"{value:.4g}"


def points_for(curves: int) -> int:
    """Most points of each curve, in a page with `curves` curves in all."""
    return min(MOST_POINTS, max(2, _MOST_IN_PAGE // max(curves, 1)))


def line_chart(
    title: str,
    curves: Mapping[str, Curve],
    *,
    unit: str,
    points: int,
    x: str = "step",
    axis: AxisFormat = "number",
    baseline: tuple[str, float] | None = None,
) -> Chart | None:
    """A chart of the curves over the steps, by name; None if no curve has a point. The colour of a curve depends on its
    place in `curves`, empty ones included.

    `unit`: the title of the vertical axis. `points`: most points of a curve. `baseline`: a dashed line, with its name.
    """
    known = list(curves)
    curves = {name: curve for name, curve in curves.items() if curve}
    if not curves:
        return None
    thinned = {name: curve.thinned(points) for name, curve in curves.items()}
    names = list(thinned)
    two = set(names) <= {HELD_OUT_CURVE, TRAINING_CURVE}
    dotted = [name for name, curve in curves.items() if len(curve.steps) <= _MARKED]
    encoding = {
        "x": {"field": "x", "type": "quantitative", "title": x, "axis": {"format": ",.0f" if x == "step" else ".0%"}},
        "y": {"field": "y", "type": "quantitative", "title": unit, "scale": {"zero": False}, "axis": _AXES[axis]},
        "color": _color(names, [HELD_OUT_CURVE, TRAINING_CURVE] if two else known),
    }
    layers: list[dict[str, Any]] = [{"mark": {"type": "line", "strokeJoin": "round"}, "encoding": encoding}]
    if dotted:
        chosen = {"filter": {"field": "s", "oneOf": dotted}}
        mark = {"type": "point", "filled": True, "size": 28, "opacity": 1}
        layers.append({"transform": [chosen], "mark": mark, "encoding": encoding})
    layers.append(_hover(encoding, x, title))
    if baseline:
        layers = [*_baseline(*baseline), *layers]
    return Chart(
        title,
        _line_description(title, x, curves, axis, baseline),
        {"width": "container", "height": _HEIGHT, "data": {"name": "points"}, "layer": layers},
        [
            {"name": name, "x": curve.steps.tolist(), "y": [float(f"{value:.5g}") for value in curve.values]}
            for name, curve in reversed(thinned.items())
        ],
        [x, *names, *([baseline[0]] if baseline else [])],
        _rows(curves, x, axis, baseline),
        "two" if two else "many",
    )


def _color(names: list[str], domain: list[str]) -> dict[str, Any]:
    """The colour of each curve by its place in `domain`, and a legend of `names`, those that are there."""
    alone = len(domain) == 1 or domain == [HELD_OUT_CURVE, TRAINING_CURVE] and len(names) == 1
    legend = None if alone else {"values": names}
    return {"field": "s", "type": "nominal", "scale": {"domain": domain}, "legend": legend, "title": None}


def _hover(encoding: dict[str, Any], x: str, title: str) -> dict[str, Any]:
    shown = {"param": "hover", "empty": False, "value": 1}
    select = {"type": "point", "nearest": True, "on": "pointermove", "clear": "pointerout"}
    return {
        "transform": [{"filter": "datum.h"}],
        "params": [{"name": "hover", "select": select}],
        "mark": {"type": "point", "filled": True, "size": 80},
        "encoding": encoding
        | {
            "opacity": {"condition": shown, "value": 0},
            "tooltip": [
                {"field": "s", "type": "nominal", "title": "curve"},
                {"field": "x", "type": "quantitative", "title": x, "format": "," if x == "step" else ".1%"},
                {"field": "y", "type": "quantitative", "title": title, "format": ",.5~g"},
            ],
        },
    }


def _baseline(name: str, value: float) -> list[dict[str, Any]]:
    here: dict[str, Any] = {"data": {"values": [{"y": value, "s": name}]}}
    y = {"y": {"field": "y", "type": "quantitative"}}
    label = {"type": "text", "align": "right", "baseline": "bottom", "dy": -3, "dx": -2, "style": "baseline"}
    return [
        here | {"mark": {"type": "rule", "style": "baseline"}, "encoding": y},
        here | {"mark": label, "encoding": y | {"x": {"value": "width"}, "text": {"field": "s", "type": "nominal"}}},
    ]


def _line_description(
    title: str, x: str, curves: Mapping[str, Curve], axis: AxisFormat, baseline: tuple[str, float] | None
) -> str:
    told = [
        f"{name} from {number_text(float(curve.values[0]), axis)} at {_x_text(float(curve.steps[0]), x)} to "
        f"{number_text(curve.last, axis)} at {_x_text(float(curve.steps[-1]), x)}"
        for name, curve in curves.items()
    ]
    beside = f". {baseline[0]}: {number_text(baseline[1], axis)}" if baseline else ""
    return f"{title}: {first_of(told, 6, '; ')}{beside}."


def _rows(curves: Mapping[str, Curve], x: str, axis: AxisFormat, baseline: tuple[str, float] | None) -> list[list[str]]:
    """One row for each of at most _ROWS steps of the curve with the fewest points (with the most, if these are fewer
    than three). Every other curve has its newest value up to the step."""
    fewest = min(curves.values(), key=lambda curve: len(curve.steps))
    if len(fewest.steps) < 3:
        fewest = max(curves.values(), key=lambda curve: len(curve.steps))
    places = np.unique(np.linspace(0, len(fewest.steps) - 1, _ROWS).round().astype(int))
    rows = []
    for step in fewest.steps[places].tolist():
        row = [_x_text(step, x)]
        for curve in curves.values():
            at = int(np.searchsorted(curve.steps, step, side="right")) - 1
            row.append(number_text(float(curve.values[at]), axis) if at >= 0 else "")
        rows.append(row + ([number_text(baseline[1], axis)] if baseline else []))
    return rows


def _x_text(value: float, x: str) -> str:
    if x == "step":
        return f"{int(value):,}"
    return f"{value:.0%}" if math.isfinite(value) else ""
