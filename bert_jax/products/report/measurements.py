"""The sections of a run's page that show what was measured."""

import itertools
import json
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from bert_jax.config.wording import counted
from bert_jax.finetuning.columns import sorted_labels
from bert_jax.finetuning.metrics import HEADINGS, SHOWN, class_table
from bert_jax.products.page.charts import HELD_OUT_CURVE, TRAINING_CURVE, AxisFormat, Chart, line_chart, points_for
from bert_jax.products.page.page import Markup, Section, element, paragraph, table
from bert_jax.products.report.run_summary import RunSummary
from bert_jax.run.curves import Curve
from bert_jax.run.remarks import by_language, name_in_words, score_text
from bert_jax.run.results import Mistake

_MOST_ERRORS, _MOST_CHARACTERS = 20, 600
"""Worst errors in their table, and characters of each of their texts."""
_MOST_COLUMNS = 40
"""Most columns of a confusion table, so that it stays readable."""
_MOST_GROUPS = 200
"""Most groups, or files, of minimal pairs in a table."""
_MOST_LANGUAGES = 8
"""Most languages in a chart; its table and the results have all."""


def learning(summary: RunSummary) -> Section:
    """Loss and accuracy of each objective, or loss and metric of a task, with their baselines."""
    section, curves = Section("learning", "Learning curves"), summary.curves
    if summary.is_task:
        section.add_charts(
            _against_held_out(summary, "loss", "training loss"), _held_out_alone(summary, summary.metric, summary.label)
        )
        return section
    shown_names = [name for question in summary.questions for name in (question.loss, question.accuracy)]
    section.add_charts(*(_against_held_out(summary, name, name_in_words(name)) for name in shown_names))
    if len(summary.questions) > 1:
        section.add_charts(_against_held_out(summary, "loss", "loss of all objectives"))
    if summary.baseline and curves.lines:
        section.add(paragraph("The dashed line is the baseline, which knows only how frequent pieces or classes are."))
    return section


def _against_held_out(summary: RunSummary, name: str, title: str) -> Chart | None:
    curves = {HELD_OUT_CURVE: summary.curves.of("eval", name), TRAINING_CURVE: summary.curves.of("train", name)}
    return line_chart(
        title,
        curves,
        unit="nats" if "loss" in name else "share right",
        axis="number" if "loss" in name else "share",
        points=points_for(16),
        baseline=summary.best_baseline(name),
    )


def _held_out_alone(summary: RunSummary, name: str, title: str) -> Chart | None:
    curves = {HELD_OUT_CURVE: summary.curves.of("eval", name)}
    return line_chart(title, curves, unit="score", points=points_for(16), baseline=summary.best_baseline(name))


def languages(summary: RunSummary) -> Section:
    """Held-out loss and accuracy of each language; empty where there is one."""
    section = Section("languages", "By language")
    if not summary.questions:
        return section
    asked = summary.questions[0]
    found = summary.curves.by_language(asked.accuracy)
    if len(found) < 2:
        return section
    losses = summary.curves.by_language(asked.loss)
    chosen = list(found)[:_MOST_LANGUAGES]

    def chart(name: str, curves: dict[str, Curve], unit: str, axis: AxisFormat) -> Chart | None:
        some = {language: curves[language] for language in chosen if language in curves}
        return line_chart(f"held-out {name_in_words(name)}", some, unit=unit, axis=axis, points=points_for(32))

    section.add_charts(
        chart(asked.loss, losses, "nats", "number"), chart(asked.accuracy, found, "share right", "share")
    )
    if len(found) > len(chosen):
        section.add(paragraph(f"The charts have the first {len(chosen)} of {len(found)} languages."))
    newest = {f"{language}/{asked.accuracy}": curve.last for language, curve in found.items()}
    newest |= {f"{language}/{asked.loss}": curve.last for language, curve in losses.items()}
    headings, rows = by_language(newest | summary.results.measurements, summary.baseline)
    section.add(table("Newest measurements of all languages", headings, rows))
    return section


def reference(summary: RunSummary) -> Section:
    """The held-out accuracy of masked pieces beside that of known runs, over the share of the training."""
    section = Section("normal", "Is this curve normal?")
    own = summary.curves.of("eval", "mlm_accuracy")
    if not own or not summary.steps:
        return section
    curves = {"this run": Curve(own.steps / summary.steps, own.values)}
    references = _references()
    for name, found in references.items():
        curves[name] = Curve(np.array(found["steps"]) / found["planned_steps"], np.array(found["mlm_accuracy"]))
    section.add_charts(
        line_chart(
            "held-out MLM accuracy beside known runs",
            curves,
            unit="share right",
            x="share of the training",
            axis="share",
            points=points_for(16),
        )
    )
    for name, found in references.items():
        section.add(paragraph(element("strong", name), f": {found['about']}"))
    section.add(
        paragraph(
            "A healthy curve has this shape: flat near the baseline while the model knows only frequencies, then a "
            "steep rise, then a long slow one. Its height depends on the text, the vocabulary and the size of the "
            "model. One that is still flat at the end means that only frequencies were learned."
        )
    )
    return section


@cache
def _references() -> dict[str, Any]:
    return json.loads(files("bert_jax.products.report").joinpath("reference.json").read_text(encoding="utf-8"))


def speed(summary: RunSummary) -> Section:
    """The section with the curves of the learning rate, the gradient's norm and the speed."""
    section = Section("speed", "Rate and speed")

    def of_training(name: str, title: str, unit: str, axis: AxisFormat) -> Chart | None:
        return line_chart(
            title, {TRAINING_CURVE: summary.curves.of("train", name)}, unit=unit, axis=axis, points=points_for(32)
        )

    section.add_charts(
        of_training("learning_rate", "learning rate", "rate", "rate"),
        of_training("grad_norm", "norm of the gradient", "norm", "number"),
        of_training("tokens_per_second", "speed", "tokens a second", "speed"),
        of_training("mfu", "model FLOPs utilisation (MFU)", "share of the peak", "share"),
        of_training("fill", "fill of the batches", "share of positions", "share"),
    )
    if section and not summary.curves.of("train", "mfu"):
        section.add(paragraph("MFU is unknown, because the peak rate of this device is; it always is for a CPU."))
    return section


def results(summary: RunSummary) -> Section:
    """Every metric beside its baselines; of a task also the confusion and the worst errors."""
    section = Section("results", "Results")
    if summary.metrics:
        guess = "most frequent answer" if summary.is_task else "by frequency alone"
        baselines = summary.word_baselines or {guess: summary.baseline}
        rows = [
            [
                name_in_words(name),
                score_text(value, 4),
                *(score_text(known[name], 4) if name in known else "" for known in baselines.values()),
            ]
            for name, value in summary.metrics.items()
        ]
        section.add(table("Metrics on held-out data", ["metric", "model", *baselines], rows))
    title, classes = class_table(summary.results)
    if classes:
        section.add(table(title, [heading.removeprefix(">") for heading in HEADINGS], classes))
    counts = summary.results.confusion
    if counts and (len(counts) <= SHOWN or not classes):  # the table of more classes says what they are taken for
        section.add(_confusion(counts))
    if summary.results.errors:
        shown = summary.results.errors[:_MOST_ERRORS]
        names = [name for name in Mistake.model_fields if any(getattr(each, name) is not None for each in shown)]
        rows = [[str(number), *(_cell(getattr(each, name)) for name in names)] for number, each in enumerate(shown, 1)]
        errors = table("Worst errors", ["", *names], rows, numbers=False)
        section.add(element("div", {"class": "errors"}, errors))
    elif summary.is_task and summary.metrics and summary.results.errors is not None:
        section.add(paragraph("There is no error on the dev rows."))
    return section


def minimal_pairs(summary: RunSummary) -> Section:
    """The kept accuracies on minimal pairs: means over files, and of each group and file."""
    section, measured = Section("pairs", "Minimal pairs"), summary.pairs
    if not measured.files or measured.score is None:
        return section
    of_steps = f" at step {measured.steps:,}" if measured.steps else ""
    mean = f"mean of {counted(len(measured.files), 'files')}{of_steps}"
    how = f"{measured.method or 'unknown method'}{', divided by the number of tokens' if measured.normalized else ''}"
    caption = f"Accuracy: how often the acceptable sentence of two has the higher score ({how})"
    section.add(table(caption, ["", "accuracy"], [[mean, score_text(measured.score)]]))
    section.add(*map(paragraph, measured.remarks))
    for column, accuracies in {**measured.groups, "file": measured.files}.items():
        shown = itertools.islice(accuracies.items(), _MOST_GROUPS)
        rows = [[name[:_MOST_CHARACTERS], score_text(value)] for name, value in shown]
        section.add(table(f"By {column[:_MOST_CHARACTERS].replace('_', ' ')}", ["", "accuracy"], rows))
    return section


def _cell(value: str | float | None) -> str:
    return "" if value is None else f"{value:.3f}" if isinstance(value, float) else value[:_MOST_CHARACTERS]


def _confusion(counts: dict[str, dict[str, int]]) -> Markup:
    """The confusion as a table, each cell tinted by its share of the true class; of many classes the worst."""
    worst = dict(itertools.islice(counts.items(), SHOWN))
    columns = sorted_labels([*worst, *itertools.chain(*worst.values())])[:_MOST_COLUMNS]

    def cell(row: str, column: str) -> Markup:
        count = counts[row].get(column, 0)
        share = count / max(sum(counts[row].values()), 1)
        style = {"style": f"--weight: {min(max(share, 0), 1):.3f}", "class": "right" if row == column else "wrong"}
        return element("td", f"{count:,}", style)

    rows = [[row, *(cell(row, column) for column in columns)] for row in sorted_labels(worst)]
    some = f", {len(worst)} of {len(counts):,}, those with the most errors" if len(worst) < len(counts) else ""
    caption = f"Confusion: true classes (rows) and predicted ones (columns){some}"
    return element("div", {"class": "confusion"}, table(caption, ["", *columns], rows))
