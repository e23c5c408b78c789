"""Writes the report of one run, or of several compared, as one HTML file; the sections of the page about one run."""

import json
from collections.abc import Sequence

from bert_jax.config.objective import num_predictions
from bert_jax.config.vectors import HELD_OUT_PAIRS
from bert_jax.pretraining.mixture import SourceShare
from bert_jax.products.page.charts import number_text
from bert_jax.products.page.page import Markup, Section, data_block, element, escaped, page, paragraph, remarks, table
from bert_jax.products.report.comparison import compared_sections, names_of
from bert_jax.products.report.measurements import languages, learning, minimal_pairs, reference, results, speed
from bert_jax.products.report.model_views import Attention, ModelViews, model_views
from bert_jax.products.report.run_summary import RunSummary
from bert_jax.products.report.verdict import Sentence, verdict
from bert_jax.run.remarks import score_text
from bert_jax.run.run_files import RunFiles
from bert_jax.system.bucket import Place
from bert_jax.system.figures import Figure
from bert_jax.system.files import replacing
from bert_jax.system.progress import duration

REPORT_FILE = "report.html"
MOST_RUNS = 24
"""Runs in one comparison: with more the curves can't be told apart."""
_MOST_EVENTS, _MOST_MESSAGE = 200, 300
"""Events in the table, and characters of each."""
_MOST_SETTINGS = 300


def write_report(path: Place, runs: Sequence[Place | RunFiles]) -> None:
    """Writes the report of `runs`, one or several, to the file `path`.

    Raises UsageError if one of `runs` is no run or vl-convert isn't installed, RunError if settings are damaged or the
    disk is full.
    """
    text = run_page(runs[0]) if len(runs) == 1 else comparison_page(runs)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="replace")


def run_page(run: Place | RunFiles) -> str:
    """The HTML of the report of one run."""
    summary = RunSummary(run)
    described = element("h1", summary.name), paragraph(_description(summary)), _key_figures(summary)
    sections = run_sections(summary, model_views(summary))
    return page(f"{summary.name}: report of a run", element("header", *described), sections)


def comparison_page(compared: Sequence[Place | RunFiles]) -> str:
    """The HTML of a report that compares several runs."""
    summaries = [RunSummary(run) for run in compared]
    runs = dict(zip(names_of(summaries), summaries, strict=True))
    header = element("header", element("h1", f"{len(runs)} runs compared"), paragraph(", ".join(runs)))
    return page(f"{len(runs)} runs compared", header, compared_sections(runs))


def _description(summary: RunSummary) -> str:
    model = summary.config.model
    size = f"{model.model_type}, {model.num_layers} layers of width {model.hidden_size:,}"
    if summary.origin:
        return f"Imported model: {size}."
    if task := summary.config.task:
        return f"Fine-tuning for {task.name} ({task.kind}): {size}."
    phases = "; ".join(
        f"{phase.steps:,} steps of {summary.config.batch_in_words(number)}"
        for number, phase in enumerate(summary.config.phases)
    )
    return f"Pretraining: {size}. {phases}."


def _key_figures(summary: RunSummary) -> Markup:
    key_figures: dict[str, object] = {}
    value, guess = summary.held_out(summary.metric), summary.best_baseline(summary.metric)
    if value is not None and not summary.origin:
        beside = element("small", f"{guess[0]} {score_text(guess[1])}") if guess else ""
        key_figures[f"Held-out {summary.label}"] = Markup(f"{score_text(value)}{beside}")
    loss = summary.held_out("loss") if not summary.is_task else None
    if loss is not None:
        key_figures["Held-out loss"] = Markup(f"{score_text(loss)}{element('small', 'nats')}")
    if summary.steps:
        key_figures["Steps"] = Markup(f"{summary.step:,}{element('small', f'of {summary.steps:,}')}")
    if total := sum(part.copies * part.parameters for part in summary.parts):
        key_figures["Parameters"] = f"{total:,}" if total < 1e6 else f"{total / 1e6:,.1f} M"
    if summary.seconds:
        key_figures["Training time"] = duration(summary.seconds)
    if rates := summary.curves.of("train", "tokens_per_second"):
        middle = float(sorted(rates.values)[len(rates.values) // 2])
        key_figures["Speed"] = Markup(f"{number_text(middle, 'speed')}{element('small', 'tokens a second, median')}")
    pairs = (element("div", element("dt", name), element("dd", value)) for name, value in key_figures.items())
    return element("dl", {"class": "key"}, *pairs)


def run_sections(summary: RunSummary, views: ModelViews) -> list[Section]:
    """The sections of a run's report, without those that have no content."""
    built = [
        Section("verdict", "Verdict", remarks(verdict(summary))),
        learning(summary),
        results(summary),
        languages(summary),
        minimal_pairs(summary),
        reference(summary),
        speed(summary),
        *_model_sections(views),
        _readings(summary),
        _data(summary),
        _parameters(summary),
        _settings(summary),
        _events(summary),
    ]
    return [section for section in built if section]


def _model_sections(views: ModelViews) -> list[Section]:
    """Fills and attention. If the model couldn't be used, one sentence says so."""
    fills = _fills(views)
    if views.problem:
        fills.add(paragraph(views.problem))
    return [fills, _attention(views.attention)]


def _fills(views: ModelViews) -> Section:
    section = Section("fills", "Fills of the same sentences")
    if views.fills:
        steps = list(views.fills[0].step_fills)
        marked = [Markup(escaped(each.text).replace("[MASK]", "<mark>[MASK]</mark>")) for each in views.fills]
        rows = [
            [text, each.word, *(_likeliest(each.step_fills[step]) for step in steps)]
            for text, each in zip(marked, views.fills, strict=True)
        ]
        headings = ["held-out sentence", "original", *(f"step {step:,}" for step in steps)]
        fills = table("The likeliest pieces for one masked word, by saved step", headings, rows, numbers=False)
        section.add(element("div", {"class": "fills"}, fills))
    return section


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


def _readings(summary: RunSummary) -> Section:
    section = Section("reading", "What was read")
    for reading in summary.readings:
        rows = [[fact.name, fact.value, fact.known_by] for fact in reading.facts]
        section.add(table(reading.subject, ["", "taken for", "known by"], rows, numbers=False))
        if reading.remarks:
            section.add(remarks(Sentence("problem", remark) for remark in reading.remarks))
    return section


def _data(summary: RunSummary) -> Section:
    section = Section("data", "Data")
    if task := summary.config.task:
        learned = task.train or task.source
        if not learned:  # an imported model
            return section
        rows = [["training rows", learned, _count(summary.results.training_rows)]]
        measured = task.dev_in_words or (HELD_OUT_PAIRS if task.source else "")
        rows += [["dev rows", measured, _count(summary.results.dev_rows)]]
        section.add(table("Rows of the task", ["", "source", "rows"], rows, numbers=False))
        return section
    if summary.shares:
        names = list(SourceShare.model_fields)
        headings = [Figure(SourceShare, name).heading for name in names]
        rows = [[Figure(SourceShare, name).text(getattr(share, name)) for name in names] for share in summary.shares]
        section.add(table("Sources of the training text", headings, rows))
    for length, data in summary.prepared.items():
        assert summary.config.objective, "only a pretraining has prepared data"
        budget = num_predictions(summary.config.objective.masked_share, length)
        try:
            counts = data.table(budget)
        except ValueError:  # the units have sizes that no release writes
            continue
        section.add(table(f"Sequences of up to {length:,} tokens", ["", "training", "held out"], counts))
    return section


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _parameters(summary: RunSummary) -> Section:
    section = Section("parameters", "Parameters")
    groups: dict[str, int] = {}
    for part in summary.parts:
        name = f"generator: {part.group}" if part.is_generator else part.group
        name = f"{summary.config.model.num_layers} blocks" if name == "block" else name
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


def _settings(summary: RunSummary) -> Section:
    section = Section("settings", "Settings")
    changed = list(summary.changed_settings())
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


def _events(summary: RunSummary) -> Section:
    section = Section("events", "Versions, machine and events")
    last = next((event.message for event in reversed(summary.events) if event.event == "environment"), None)
    if last:
        section.add(paragraph(last))
    told = [event for event in summary.events if event.event != "environment" or event.message != last]
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
