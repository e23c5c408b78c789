"""The sections of the page about one run."""

import json
from collections.abc import Iterator, Mapping

from bert_jax.config.objective import num_predictions
from bert_jax.config.vectors import HELD_OUT_PAIRS
from bert_jax.pretraining.mixture import SourceShare
from bert_jax.report.facts import RunFacts
from bert_jax.report.measurements import languages, learning, reference, results, speed
from bert_jax.report.model_views import Attention, ModelViews
from bert_jax.report.page import Markup, Section, data_block, element, escaped, paragraph, table
from bert_jax.report.verdict import Sentence, verdict
from bert_jax.system.facts import Figure

_MOST_EVENTS, _MOST_MESSAGE = 200, 300
"""Events in the table, and characters of each."""
_MOST_SETTINGS = 300
_WORDS = {"good": "Good", "note": "Note", "problem": "Problem"}


def run_sections(facts: RunFacts, views: ModelViews) -> list[Section]:
    """All sections that have something to show."""
    built = [
        verdict_section(facts),
        learning(facts),
        results(facts),
        languages(facts),
        reference(facts),
        speed(facts),
        *_model_sections(views),
        _readings(facts),
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


def _model_sections(views: ModelViews) -> list[Section]:
    """Fills and attention. If the model couldn't be used, one sentence says so."""
    fills = _fills(views)
    if views.problem:
        fills.add(paragraph(views.problem))
    return [fills, _attention(views.attention)]


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
    return Markup(escaped(text).replace("[MASK]", "<mark>[MASK]</mark>"))


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
                "Each row is a token; its cells show how many percent of its attention go to each token. Small shares "
                "are tinted but not printed",
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


def _readings(facts: RunFacts) -> Section:
    section = Section("reading", "What was read")
    for reading in facts.readings:
        rows = [[fact.name, fact.value, fact.known_by] for fact in reading.facts]
        section.add(table(reading.subject, ["", "taken for", "known by"], rows, numbers=False))
        if reading.remarks:
            section.add(sentences(Sentence("problem", remark) for remark in reading.remarks))
    return section


def _data(facts: RunFacts) -> Section:
    section = Section("data", "Data")
    if task := facts.config.task:
        learned = task.train or task.source
        if not learned:  # an imported model
            return section
        rows = [["training rows", learned, _count(facts.results.training_rows)]]
        measured = task.dev or (HELD_OUT_PAIRS if task.source else "")
        rows += [["dev rows", measured, _count(facts.results.dev_rows)]]
        section.add(table("Rows of the task", ["", "source", "rows"], rows, numbers=False))
        return section
    if facts.shares:
        names = list(SourceShare.model_fields)
        headings = [Figure(SourceShare, name).heading for name in names]
        rows = [[Figure(SourceShare, name).text(getattr(share, name)) for name in names] for share in facts.shares]
        section.add(table("Sources of the training text", headings, rows))
    for length, data in facts.prepared.items():
        assert facts.config.objective, "only a pretraining has prepared data"
        budget = num_predictions(facts.config.objective.masked_share, length)
        try:
            counts = data.table(budget)
        except ValueError:  # of sizes of units that no release writes
            continue
        section.add(table(f"Sequences of up to {length:,} tokens", ["", "training", "held out"], counts))
    return section


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


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
    rows = [
        [event.time[:40].replace("T", " ").replace("+00:00", ""), event.event, event.message[:_MOST_MESSAGE]]
        for event in told
    ]
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
