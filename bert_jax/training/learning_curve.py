"""A plot of a run's measurements over its steps."""

from typing import Any

from bert_jax.system.bucket import Place
from bert_jax.system.picture import write_picture

Line = dict[str, Any]
"""A line of metrics.jsonl."""


def write_learning_curve(path: Place, lines: list[Line], metric: str | None, title: str) -> None:
    """Writes a PNG of the loss and, if data was held out, of `metric` below it with its best value marked.

    Nothing is written if there are fewer than two points.
    """
    losses = {split: _values(lines, split, "loss") for split in ("train", "eval")}
    scores = _values(lines, "eval", metric) if metric else {}
    if len(losses["train"]) < 2:
        return

    def draw(figure: Any) -> None:
        panels = figure.subplots(2 if scores else 1, sharex=True, squeeze=False)[:, 0]
        panels[0].set_title(title, parse_math=False)  # dollar signs in a name are no formula
        for split, label, style in (("train", "training", "-"), ("eval", "held out", "o-")):
            if losses[split]:
                panels[0].plot(*_points(losses[split]), style, markersize=4, label=label)
        panels[0].set_ylabel("loss")
        panels[0].legend()
        if scores:
            best = max(scores, key=scores.__getitem__)
            panels[1].plot(*_points(scores), "o-", markersize=4, color="tab:green")
            panels[1].plot(best, scores[best], "*", markersize=14, color="tab:green")
            panels[1].set_ylabel(metric)
            panels[1].set_title(f"best: {scores[best]:.4f} at step {best:,}", fontsize="medium")
        for panel in panels:
            panel.grid(alpha=0.3)
        panels[-1].set_xlabel("step")

    write_picture(path, (7, 6 if scores else 3.5), draw)


def _values(lines: list[Line], split: str, name: str) -> dict[int, float]:
    """The values of one measurement by step, without those that were no finite numbers."""
    named = ((line["step"], line.get(name)) for line in lines if line["split"] == split)
    return {step: value for step, value in named if isinstance(value, int | float)}


def _points(values: dict[int, float]) -> tuple[list[int], list[float]]:
    return list(values), list(values.values())
