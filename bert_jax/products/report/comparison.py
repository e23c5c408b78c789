"""The sections of the page that compares several runs."""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import JsonValue

from bert_jax.products.page.charts import AxisFormat, Chart, line_chart, points_for
from bert_jax.products.page.page import Markup, Section, element, paragraph, remarks, table
from bert_jax.products.report.run_summary import RunSummary
from bert_jax.products.report.verdict import verdict
from bert_jax.run.curves import NO_CURVE, Curve
from bert_jax.run.remarks import name_in_words, score_text

_MOST_DIFFERENCES = 200
_DESCRIBED = ("rows", "sequences", "length", "units", "seed")
"""What a title says of `measured_on`."""
_KINDS = ("pretraining", "fine-tuning")
_APART = (
    "Figures of different tables of results, and curves of their runs, can't be compared: they were measured on other "
    "sequences, with other masks, or on other rows."
)
_ALIKE = "With one --units and --data bert-jax evaluate measures pretrained runs alike."


def compared_sections(runs: Mapping[str, RunSummary]) -> list[Section]:
    """All sections that have something to show; `runs`: by the name that each has in the page."""
    built = [_verdicts(runs), _results(runs), _curves(runs), _speed(runs), _settings(runs), _machines(runs)]
    return [section for section in built if section]


def names_of(runs: Sequence[RunSummary]) -> list[str]:
    """A name for each run that no other has: the folder's, or with as many of its parents as needed."""
    for depth in range(1, 9):
        names = ["/".join(summary.run.path.parts[-depth:]) for summary in runs]
        if len(set(names)) == len(names):
            return names
    return [f"{number}: {summary.name}" for number, summary in enumerate(runs, 1)]


def _verdicts(runs: Mapping[str, RunSummary]) -> Section:
    section = Section("verdict", "Verdicts")
    for name, summary in runs.items():
        section.add(element("h3", name), remarks(verdict(summary)))
    return section


class _Group(NamedTuple):
    """Runs that were measured on the same sequences with the same masks, or on the same rows."""

    name: str
    measured_on: str
    runs: dict[str, RunSummary]


def _groups(runs: Mapping[str, RunSummary]) -> list[_Group]:
    by_kind: dict[bool, dict[str, dict[str, RunSummary]]] = {False: {}, True: {}}
    for name, summary in runs.items():
        measured_on = json.dumps(summary.results.measured_on, sort_keys=True)
        by_kind[summary.is_task].setdefault(measured_on, {})[name] = summary
    return [
        _Group(f"{kind} {number}" if len(groups) > 1 else kind, _described(json.loads(measured_on)), some)
        for kind, groups in zip(_KINDS, by_kind.values(), strict=True)
        for number, (measured_on, some) in enumerate(groups.items(), 1)
    ]


def _described(measured_on: dict[str, JsonValue] | None) -> str:
    if measured_on is None:
        return "measured on what isn't recorded (by an earlier release, or not finished)"
    known = {name: measured_on[name] for name in _DESCRIBED if name in measured_on}
    return ", ".join(f"{name} {' '.join(map(str, it)) if isinstance(it, list) else it}" for name, it in known.items())


def _results(runs: Mapping[str, RunSummary]) -> Section:
    section, groups = Section("results", "Results"), _groups(runs)
    if len(groups) > 1:
        section.add(paragraph(f"{_APART} {_ALIKE}"))
    for group in groups:
        metrics = list(dict.fromkeys(name for summary in group.runs.values() for name in summary.metrics))
        rows = [
            [
                name,
                "" if summary.origin else f"{summary.step:,} of {summary.steps:,}",
                *(_beside_baseline(summary, metric) for metric in metrics),
            ]
            for name, summary in group.runs.items()
        ]
        title = f"{group.name.capitalize()}: {group.measured_on}"
        section.add(table(title, ["run", "steps", *map(name_in_words, metrics)], rows))
    return section


def _beside_baseline(summary: RunSummary, metric: str) -> Markup:
    if metric not in summary.metrics:
        return Markup("")
    baseline = summary.best_baseline(metric)
    beside = element("small", f" {baseline[0]} {score_text(baseline[1], 4)}") if baseline else ""
    return Markup(f"{score_text(summary.metrics[metric], 4)}{beside}")


def _curves(runs: Mapping[str, RunSummary]) -> Section:
    section = Section("learning", "Learning curves")
    if len(_groups(runs)) > 1:
        section.add(paragraph(_APART))
    points = points_for(8 * len(runs))

    def chart(split: str, name: str, title: str, unit: str, axis: AxisFormat = "number") -> Chart | None:
        curves = {run: summary.curves.of(split, name) for run, summary in runs.items()}
        return line_chart(title, curves, unit=unit, axis=axis, points=points)

    asked = dict.fromkeys(question for summary in runs.values() for question in summary.questions)
    for question in asked:
        section.add_charts(
            chart("eval", question.loss, f"held-out {name_in_words(question.loss)}", "nats"),
            chart("eval", question.accuracy, f"held-out {name_in_words(question.accuracy)}", "share right", "share"),
        )
    measured = dict.fromkeys(summary.metric for summary in runs.values() if summary.is_task)
    section.add_charts(*(chart("eval", name, f"held-out {name_in_words(name)}", "score") for name in measured))
    for number, kind in enumerate(_KINDS):
        losses = {run: summary.curves.of("train", "loss") for run, summary in runs.items()}
        curves = {run: curve if runs[run].is_task == bool(number) else NO_CURVE for run, curve in losses.items()}
        section.add_charts(line_chart(f"training loss, {kind}", curves, unit="nats", points=points))
    return section


def _speed(runs: Mapping[str, RunSummary]) -> Section:
    section = Section("speed", "Rate and speed")
    points = points_for(8 * len(runs))

    def curves(name: str) -> dict[str, Curve]:
        return {run: summary.curves.of("train", name) for run, summary in runs.items()}

    section.add_charts(
        line_chart("learning rate", curves("learning_rate"), unit="rate", axis="rate", points=points),
        line_chart("speed", curves("tokens_per_second"), unit="tokens a second", axis="speed", points=points),
    )
    return section


def _settings(runs: Mapping[str, RunSummary]) -> Section:
    """The settings that differ between runs of one kind: pretraining and fine-tuning have other settings anyway."""
    section = Section("settings", "Settings that differ")
    flat = {name: summary.config.flat() for name, summary in runs.items()}
    kinds = {type(summary.config) for summary in runs.values()}
    of_kinds = [[flat[name] for name, summary in runs.items() if type(summary.config) is kind] for kind in kinds]
    settings = dict.fromkeys(setting for each in flat.values() for setting in each)
    rows = [
        [setting, *(_text(each.get(setting)) for each in flat.values())]
        for setting in settings
        if any(len({_text(each.get(setting)) for each in of_kind}) > 1 for of_kind in of_kinds)
    ]
    if rows:
        section.add(table("Settings of each run", ["setting", *runs], rows[:_MOST_DIFFERENCES], numbers=False))
    return section


def _machines(runs: Mapping[str, RunSummary]) -> Section:
    section = Section("machines", "Versions and machines")
    rows = [
        [name, event.message]
        for name, summary in runs.items()
        for event in summary.events[::-1]
        if event.event == "environment"
    ]
    newest = {row[0]: row for row in reversed(rows)}
    if newest:
        section.add(table("At each run's last start", ["run", "where"], list(newest.values()), numbers=False))
    return section


def _text(value: object) -> str:
    return "" if value is None else str(value)
