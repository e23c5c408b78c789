"""Writes the report of one run, or of several compared, as one HTML file."""

from collections.abc import Sequence

from bert_jax.report.charts import number_text
from bert_jax.report.comparison import compared_sections, names_of
from bert_jax.report.facts import RunFacts, score_text
from bert_jax.report.model_views import model_views
from bert_jax.report.page import Markup, element, page, paragraph
from bert_jax.report.sections import figures, run_sections
from bert_jax.system.bucket import Place
from bert_jax.system.files import replacing
from bert_jax.system.progress import duration

FILE_NAME = "report.html"
MOST_RUNS = 24
"""Runs in one comparison: with more the curves can't be told apart."""


def write_report(path: Place, runs: Sequence[Place]) -> None:
    """Writes the report of `runs`, one or several, to the file `path`.

    Raises UsageError if one of `runs` is no run or vl-convert isn't installed, RunError if settings are damaged or the
    disk takes no more.
    """
    text = run_page(runs[0]) if len(runs) == 1 else comparison_page(runs)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="replace")


def run_page(path: Place) -> str:
    """The page about one run. Raises what `write_report` does."""
    facts = RunFacts(path)
    sections = run_sections(facts, model_views(facts))
    return page(f"{facts.name}: report of a run", _header(facts), sections)


def comparison_page(paths: Sequence[Place]) -> str:
    """The page that compares several runs. Raises what `write_report` does."""
    facts = [RunFacts(path) for path in paths]
    runs = dict(zip(names_of(facts), facts, strict=True))
    header = element("header", element("h1", f"{len(runs)} runs compared"), paragraph(", ".join(runs)))
    return page(f"{len(runs)} runs compared", header, compared_sections(runs))


def _header(facts: RunFacts) -> Markup:
    return element("header", element("h1", facts.name), paragraph(_description(facts)), figures(_key_figures(facts)))


def _description(facts: RunFacts) -> str:
    model = facts.config.model
    size = f"{model.model_type}, {model.num_layers} layers of width {model.hidden_size:,}"
    if facts.origin:
        return f"Imported model: {size}."
    if task := facts.config.task:
        return f"Fine-tuning for {task.name} ({task.kind}): {size}."
    phases = "; ".join(f"{phase.steps:,} steps of {phase.batch()}" for phase in facts.config.phases)
    return f"Pretraining: {size}. {phases}."


def _key_figures(facts: RunFacts) -> dict[str, object]:
    """The figures at the head of the page, by name."""
    key_figures: dict[str, object] = {}
    value, guess = facts.held_out(facts.metric), facts.best_baseline(facts.metric)
    if value is not None and not facts.origin:
        beside = element("small", f"{guess[0]} {score_text(guess[1])}") if guess else ""
        key_figures[f"Held-out {facts.label}"] = Markup(f"{score_text(value)}{beside}")
    loss = facts.held_out("loss") if not facts.is_task else None
    if loss is not None:
        key_figures["Held-out loss"] = Markup(f"{score_text(loss)}{element('small', 'nats')}")
    if facts.steps:
        key_figures["Steps"] = Markup(f"{facts.step:,}{element('small', f'of {facts.steps:,}')}")
    if total := sum(part.copies * part.parameters for part in facts.parts):
        key_figures["Parameters"] = f"{total:,}" if total < 1e6 else f"{total / 1e6:,.1f} M"
    if facts.seconds:
        key_figures["Training time"] = duration(facts.seconds)
    speed = facts.curves.of("train", "tokens_per_second")
    if speed:
        middle = float(sorted(speed.values)[len(speed.values) // 2])
        key_figures["Speed"] = Markup(f"{number_text(middle, 'speed')}{element('small', 'tokens a second, median')}")
    return key_figures
