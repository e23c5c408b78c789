"""The sections of the page that compares several runs."""

from collections.abc import Mapping, Sequence

from bert_jax.report.charts import Chart, Format, line_chart, points_for
from bert_jax.report.curves import Curve
from bert_jax.report.facts import RunFacts, name_in_words, score_text
from bert_jax.report.page import Section, element, table
from bert_jax.report.sections import sentences
from bert_jax.report.verdict import verdict

_MOST_DIFFERENCES = 200


def compared_sections(runs: Mapping[str, RunFacts]) -> list[Section]:
    """All sections that have something to show; `runs`: by the name that each has in the page."""
    built = [_verdicts(runs), _results(runs), _curves(runs), _speed(runs), _settings(runs), _machines(runs)]
    return [section for section in built if section]


def names_of(runs: Sequence[RunFacts]) -> list[str]:
    """A name for each run that no other has: the folder's, or with as many of its parents as needed."""
    for depth in range(1, 9):
        names = ["/".join(facts.run.path.parts[-depth:]) for facts in runs]
        if len(set(names)) == len(names):
            return names
    return [f"{number}: {facts.name}" for number, facts in enumerate(runs, 1)]


def _verdicts(runs: Mapping[str, RunFacts]) -> Section:
    section = Section("verdict", "Verdicts")
    for name, facts in runs.items():
        section.add(element("h3", name), sentences(verdict(facts)))
    return section


def _results(runs: Mapping[str, RunFacts]) -> Section:
    section = Section("results", "Results")
    metrics = list(dict.fromkeys(name for facts in runs.values() for name in facts.metrics))
    rows = []
    for name, facts in runs.items():
        values = (facts.metrics.get(metric) for metric in metrics)
        rows.append(
            [
                name,
                "" if facts.origin else f"{facts.step:,} of {facts.steps:,}",
                *("" if value is None else score_text(value, 4) for value in values),
            ]
        )
    section.add(table("Metrics on held-out data", ["run", "steps", *map(name_in_words, metrics)], rows))
    return section


def _curves(runs: Mapping[str, RunFacts]) -> Section:
    section = Section("learning", "Learning curves")
    points = points_for(8 * len(runs))

    def chart(split: str, name: str, title: str, unit: str, form: Format = "number") -> Chart | None:
        curves = {run: facts.curves.of(split, name) for run, facts in runs.items()}
        return line_chart(title, curves, unit=unit, form=form, points=points)

    asked = dict.fromkeys(question for facts in runs.values() for question in facts.questions)
    for question in asked:
        section.add_charts(
            chart("eval", question.loss, f"held-out {name_in_words(question.loss)}", "nats"),
            chart("eval", question.accuracy, f"held-out {name_in_words(question.accuracy)}", "share right", "share"),
        )
    measured = dict.fromkeys(facts.metric for facts in runs.values() if facts.is_task)
    section.add_charts(
        *(chart("eval", metric, f"held-out {name_in_words(metric)}", "score") for metric in measured),
        chart("train", "loss", "training loss", "nats"),
    )
    return section


def _speed(runs: Mapping[str, RunFacts]) -> Section:
    section = Section("speed", "Rate and speed")
    points = points_for(8 * len(runs))

    def curves(name: str) -> dict[str, Curve]:
        return {run: facts.curves.of("train", name) for run, facts in runs.items()}

    section.add_charts(
        line_chart("learning rate", curves("learning_rate"), unit="rate", form="rate", points=points),
        line_chart("speed", curves("tokens_per_second"), unit="tokens a second", form="speed", points=points),
    )
    return section


def _settings(runs: Mapping[str, RunFacts]) -> Section:
    section = Section("settings", "Settings that differ")
    flat = {name: facts.config.flat() for name, facts in runs.items()}
    settings = dict.fromkeys(setting for each in flat.values() for setting in each)
    rows = [
        [setting, *(_text(each.get(setting)) for each in flat.values())]
        for setting in settings
        if len({_text(each[setting]) for each in flat.values() if setting in each}) > 1
    ]
    if rows:
        section.add(table("Settings of each run", ["setting", *runs], rows[:_MOST_DIFFERENCES], numbers=False))
    return section


def _machines(runs: Mapping[str, RunFacts]) -> Section:
    section = Section("machines", "Versions and machines")
    rows = [
        [name, event.message]
        for name, facts in runs.items()
        for event in facts.events[::-1]
        if event.event == "environment"
    ]
    newest = {row[0]: row for row in reversed(rows)}
    if newest:
        section.add(table("At each run's last start", ["run", "where"], list(newest.values()), numbers=False))
    return section


def _text(value: object) -> str:
    return "" if value is None else str(value)
