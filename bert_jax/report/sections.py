"""The sections of the page about one run."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from bert_jax.config.finetune import TaskRunConfig
from bert_jax.config.objective import num_predictions
from bert_jax.config.run import RunConfig
from bert_jax.pretraining.mixture import SourceShare
from bert_jax.report.charts import HELD_OUT, TRAINING, Chart, line_chart, number_text, points_for, scatter_chart
from bert_jax.report.curves import Curve
from bert_jax.report.facts import RunFacts, name_in_words, score_text
from bert_jax.report.model_views import Attention, ModelViews
from bert_jax.report.page import Markup, Section, data_block, element, paragraph, shown, table
from bert_jax.report.verdict import Sentence, verdict
from bert_jax.system.facts import Fact

_MOST_LANGUAGES = 8
"""Languages in a chart; its table and the results have all."""
_MOST_CLASSES = 40
_MOST_EVENTS = 200
_MOST_SETTINGS = 300
_WORDS = {"good": "Good", "note": "Note", "problem": "Problem"}


def run_sections(facts: RunFacts, views: ModelViews | None) -> list[Section]:
    """All sections that have something to show. `views`: None if the model isn't shown."""
    built = [
        verdict_section(facts),
        _learning(facts),
        _results(facts),
        _languages(facts),
        _reference(facts),
        _speed(facts),
        *(_model_sections(views) if views else []),
        _data(facts),
        _parameters(facts),
        _settings(facts),
        _events(facts),
    ]
    return [section for section in built if section]


def verdict_section(facts: RunFacts) -> Section:
    """What is to be said of the run in words."""
    section = Section("verdict", "Verdict")
    section.add(sentences(verdict(facts)))
    return section


def sentences(said: Iterator[Sentence]) -> Markup:
    """Remarks as a list, each with its kind in a word."""
    lines = [
        element("li", {"class": one.kind}, element("strong", _WORDS[one.kind]), Markup(" "), element("span", one.text))
        for one in said
    ]
    return element("ul", {"class": "verdict"}, *lines)


def _learning(facts: RunFacts) -> Section:
    section, curves = Section("learning", "Learning curves"), facts.curves
    if facts.is_task:
        section.add_charts(
            _against_held_out(facts, "loss", "training loss"),
            _held_out_alone(facts, facts.metric, facts.label),
        )
        return section
    shown_names = [name for question in facts.questions for name in (question.loss, question.accuracy)]
    section.add_charts(*(_against_held_out(facts, name, name_in_words(name)) for name in shown_names))
    if len(facts.questions) > 1:
        section.add_charts(_against_held_out(facts, "loss", "loss of all objectives"))
    if facts.baseline and curves.lines:
        section.add(paragraph("The dashed line is the baseline, which knows only how frequent pieces or classes are."))
    return section


def _against_held_out(facts: RunFacts, name: str, title: str) -> Chart | None:
    curves = {HELD_OUT: facts.curves.of("eval", name), TRAINING: facts.curves.of("train", name)}
    known = facts.baseline.get(name)
    return line_chart(
        title,
        curves,
        unit="nats" if "loss" in name else "share right",
        form="number" if "loss" in name else "share",
        points=points_for(16),
        baseline=("baseline", known) if known is not None else None,
    )


def _held_out_alone(facts: RunFacts, name: str, title: str) -> Chart | None:
    known = facts.baseline.get(name)
    baseline = ("baseline", known) if known is not None else None
    return line_chart(
        title, {HELD_OUT: facts.curves.of("eval", name)}, unit="score", points=points_for(16), baseline=baseline
    )


def _languages(facts: RunFacts) -> Section:
    section = Section("languages", "By language")
    for question in facts.questions[:1]:
        for name, unit, form in ((question.loss, "nats", "number"), (question.accuracy, "share right", "share")):
            found = facts.curves.by_language(name)
            chosen = dict(list(found.items())[:_MOST_LANGUAGES])
            if len(found) > 1:
                title = f"held-out {name_in_words(name)}"
                section.add_charts(line_chart(title, chosen, unit=unit, form=form, points=points_for(32)))  # type: ignore[arg-type]
                rows = [[language, number_text(curve.last)] for language, curve in found.items()]
                if len(found) > len(chosen):
                    section.add(paragraph(f"The chart has the first {len(chosen)} of {len(found)} languages."))
                    section.add(table(f"{title} of all languages", ["language", "newest"], rows))
    return section


def _reference(facts: RunFacts) -> Section:
    section = Section("normal", "Is this curve normal?")
    own = facts.curves.of("eval", "mlm_accuracy")
    if not own or not facts.steps:
        return section
    curves = {"this run": Curve(own.steps / facts.steps, own.values)}
    references = _references()
    for name, found in references.items():
        curves[name] = Curve(np.array(found["steps"]) / found["planned_steps"], np.array(found["mlm_accuracy"]))
    section.add_charts(
        line_chart(
            "held-out MLM accuracy beside known runs",
            curves,
            unit="share right",
            x="share of the training",
            form="share",
            points=points_for(16),
        )
    )
    for name, found in references.items():
        section.add(paragraph(element("strong", name), f": {found['about']}"))
    section.add(
        paragraph(
            "A healthy curve has this shape: flat near the baseline while the model knows only frequencies, then a "
            "steep rise, then a long slow one. Its height depends on the text, the vocabulary and the size of the "
            "model. A curve that stays flat to the end has not left the first part."
        )
    )
    return section


@cache
def _references() -> dict[str, Any]:
    return json.loads(files("bert_jax.report").joinpath("reference.json").read_text(encoding="utf-8"))


def _speed(facts: RunFacts) -> Section:
    section = Section("speed", "Rate and speed")

    def of_training(name: str, title: str, unit: str, form: Any) -> Chart | None:
        return line_chart(
            title, {TRAINING: facts.curves.of("train", name)}, unit=unit, form=form, points=points_for(32)
        )

    section.add_charts(
        of_training("learning_rate", "learning rate", "rate", "rate"),
        of_training("grad_norm", "norm of the gradient", "norm", "number"),
        of_training("tokens_per_second", "speed", "tokens a second", "speed"),
        of_training("mfu", "model FLOPs utilisation (MFU)", "share of the peak", "share"),
        of_training("fill", "fill of the batches", "share of positions", "share"),
    )
    if section and not facts.curves.of("train", "mfu"):
        section.add(paragraph("MFU is not known: the peak rate of this device isn't, as on every CPU."))
    return section


def _results(facts: RunFacts) -> Section:
    section = Section("results", "Results")
    if facts.metrics:
        what = "model", "commonest answer" if facts.is_task else "by frequency alone"
        rows = [
            [
                name_in_words(name),
                score_text(value, 4),
                score_text(facts.baseline[name], 4) if name in facts.baseline else "",
            ]
            for name, value in facts.metrics.items()
        ]
        section.add(table("Metrics on held-out data", ["metric", *what], rows))
    if facts.confusion:
        section.add(_confusion(*facts.confusion))
    if facts.errors:
        rows = [[str(number), *each.values()] for number, each in enumerate(facts.errors, 1)]
        errors = table("Worst errors", ["", "text", "right", "predicted"], rows, numbers=False)
        section.add(element("div", {"class": "errors"}, errors))
    elif facts.is_task and facts.metrics and "errors" in facts.results:
        section.add(paragraph("There is no error on the dev rows."))
    return section


def _confusion(labels: list[str], counts: list[list[int]]) -> Markup:
    """The confusion as a table, each cell tinted by its share of the true class; of many classes the commonest."""
    order = sorted(range(len(labels)), key=lambda number: -sum(counts[number]))[:_MOST_CLASSES]
    order.sort()

    def cell(row: int, column: int) -> Markup:
        share = counts[row][column] / max(sum(counts[row]), 1)
        style = {"style": f"--weight: {min(max(share, 0), 1):.3f}", "class": "right" if row == column else "wrong"}
        return element("td", f"{counts[row][column]:,}", style)

    rows = [[labels[row], *(cell(row, column) for column in order)] for row in order]
    some = f", the {len(order)} commonest of {len(labels)}" if len(order) < len(labels) else ""
    caption = f"Confusion: true classes (rows) and predicted ones (columns){some}"
    return element("div", {"class": "confusion"}, table(caption, ["", *(labels[number] for number in order)], rows))


def _model_sections(views: ModelViews) -> list[Section]:
    """Fills, attention and vectors. A model that couldn't be used is said so once."""
    fills, attention, words = _fills(views), _attention(views.attention), _senses(views)
    if views.problem:
        fills.add(paragraph(views.problem))
    return [fills, attention, words]


def _fills(views: ModelViews) -> Section:
    section = Section("fills", "Fills of the same sentences")
    if views.fills:
        steps = list(views.fills[0].by_step)
        rows = [
            [_with_mask(each.text), each.word, *(_likeliest(each.by_step[step]) for step in steps)]
            for each in views.fills
        ]
        headings = ["held-out sentence", "was", *(f"step {step:,}" for step in steps)]
        fills = table("The likeliest pieces for one masked word, by saved step", headings, rows, numbers=False)
        section.add(element("div", {"class": "fills"}, fills))
    return section


def _with_mask(text: str) -> Markup:
    return Markup(shown(text).replace("[MASK]", "<mark>[MASK]</mark>"))


def _likeliest(fills: list[tuple[str, float]]) -> Markup:
    lines = (
        element("span", {"class": "fill"}, piece, element("small", f"{probability:.0%}"))
        for piece, probability in fills
    )
    return Markup("<br>".join(lines))


def _attention(found: Attention | None) -> Section:
    section = Section("attention", "Attention of a sentence")
    if not found:
        return section
    heads = [("mean", "mean of all"), *((str(head), str(head + 1)) for head in range(found.heads))]
    section.add(
        element(
            "form",
            {"class": "choices"},
            _select("attention-layer", "Layer", [(str(layer), str(layer + 1)) for layer in range(found.layers)]),
            _select("attention-head", "Head", heads),
        ),
        element(
            "div",
            {"id": "attention-table", "class": "attention"},
            table(
                "Each row is a token, and its cells are the shares of its attention in percent; those below 10% are "
                "only tinted",
                ["", *found.tokens],
                [[token, *([Markup("<td></td>")] * len(found.tokens))] for token in found.tokens],
            ),
        ),
        data_block("attention-data", found._asdict()),
    )
    return section


def _select(anchor: str, label: str, options: list[tuple[str, str]]) -> Markup:
    inside = (element("option", text, {"value": value}) for value, text in options)
    return element("label", label, Markup(" "), element("select", *inside, {"id": anchor}))


def _senses(views: ModelViews) -> Section:
    section = Section("senses", "Vectors of a word by its use")
    if not views.uses:
        return section
    groups = {
        f"group {number}": [(use.x, use.y, use.context) for use in views.uses if use.group == number]
        for number in (1, 2)
    }
    title = f"the last layer's vectors of “{views.word}”"
    sizes = " and ".join(str(len(some)) for some in groups.values())
    about = f"{len(views.uses)} uses of “{views.word}” in held-out text, in two groups of {sizes}."
    section.add(
        paragraph(
            "Of the commonest words in held-out text this is the one whose vectors fall most clearly into two groups "
            "(by 2-means). Where a word has two uses, the groups should be these; the table has the texts."
        )
    )
    section.add_charts(scatter_chart(title, about, groups))
    return section


def _data(facts: RunFacts) -> Section:
    section = Section("data", "Data")
    if isinstance(facts.config, TaskRunConfig):
        task = facts.config.task
        rows = [["training rows", task.train or "", _count(facts.results.get("training_rows"))]]
        rows += [["dev rows", task.dev or "", _count(facts.results.get("dev_rows"))]]
        section.add(table("Rows of the task", ["", "source", "rows"], rows, numbers=False))
        return section
    if facts.shares:
        names = list(SourceShare.model_fields)
        headings = [Fact(SourceShare, name).heading for name in names]
        rows = [[Fact(SourceShare, name).text(getattr(share, name)) for name in names] for share in facts.shares]
        section.add(table("Sources of the training text", headings, rows))
    for length, data in facts.prepared.items():
        assert isinstance(facts.config, RunConfig)  # only pretraining has prepared data
        budget = num_predictions(facts.config.objective.masked_share, length)
        caption = f"Sequences of up to {length:,} tokens"
        section.add(table(caption, ["", "training", "held out"], data.table(budget)))
    return section


def _count(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else ""


def _parameters(facts: RunFacts) -> Section:
    section = Section("parameters", "Parameters")
    groups: dict[str, int] = {}
    for part in facts.parts:
        name = f"generator: {part.group}" if part.of_generator else part.group
        name = f"{facts.config.model.num_layers} blocks" if name == "block" else name
        groups[name] = groups.get(name, 0) + part.copies * part.parameters
    total = sum(groups.values())
    if total:
        rows = [[name, f"{count:,}", _bar(count / total)] for name, count in groups.items()]
        rows.append(["all", f"{total:,}", ""])
        section.add(table("Parameters by group", ["group", "parameters", "share"], rows))
    return section


def _bar(share: float) -> Markup:
    bar = element("span", {"class": "bar", "style": f"--weight: {share:.3f}", "aria-hidden": "true"})
    return element("td", {"class": "with-bar"}, bar, f"{share:.1%}")


def _settings(facts: RunFacts) -> Section:
    section = Section("settings", "Settings")
    changed = list(facts.changed_settings())
    rows = [[name, _setting(value), _setting(default)] for name, value, default in changed[:_MOST_SETTINGS]]
    has_defaults = any(default is not None for _, _, default in changed)
    headings = ["setting", "value", "default"] if has_defaults else ["setting", "value"]
    if rows:
        section.add(
            table(
                "Settings that differ from their defaults",
                headings,
                [row[: len(headings)] for row in rows],
                numbers=False,
            )
        )
    else:
        section.add(paragraph("All settings have their defaults."))
    return section


def _setting(value: object) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _events(facts: RunFacts) -> Section:
    section = Section("events", "Versions, machine and events")
    last = next((event.message for event in reversed(facts.events) if event.event == "environment"), None)
    if last:
        section.add(paragraph(last))
    told = [event for event in facts.events if event.event != "environment" or event.message != last]
    rows = [[event.time.replace("T", " ").replace("+00:00", ""), event.event, event.message] for event in told]
    if len(rows) > _MOST_EVENTS:
        section.add(paragraph(f"The newest {_MOST_EVENTS} of {len(rows):,} events:"))
    if rows:
        caption = "Starts, stops, faults and ends, in UTC"
        section.add(table(caption, ["time", "event", "message"], rows[-_MOST_EVENTS:], numbers=False))
    return section


def figures(named: Mapping[str, object]) -> Markup:
    """The most important figures, large."""
    pairs = (element("div", element("dt", name), element("dd", value)) for name, value in named.items())
    return element("dl", {"class": "key"}, *pairs)
