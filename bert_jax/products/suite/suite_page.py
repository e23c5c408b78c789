"""The page of a suite: the verdicts, the table, the best settings, the curves and every run."""

from collections.abc import Mapping, Sequence

from bert_jax.config.wording import counted
from bert_jax.products.page.charts import line_chart, points_for
from bert_jax.products.page.page import Markup, Section, element, page, paragraph, remarks, table
from bert_jax.products.suite.job import Job
from bert_jax.products.suite.suite_tables import setting_text
from bert_jax.products.suite.summary import Summary
from bert_jax.products.suite.verdict_sentences import verdict_sentences
from bert_jax.run.curves import Curves

_MOST_CURVES = 24
"""Curves of a chart: with more they can't be told apart."""
_LEFT_OUT = "run", "metrics"
"""Values of a row that only suite.json has."""
_CHARTS = ("score on dev rows", "eval", "score", "score"), ("training loss", "train", "loss", "nats")
"""Title, split, measurement and unit of a task's charts."""


def suite_page(title: str, summary: Summary) -> str:
    """The page. Raises UsageError if vl-convert isn't installed."""
    suite = summary.suite
    sizes = f"{counted(len(suite.models), 'models')}, {counted(len(suite.tasks), 'tasks')}"
    subtitle = f"{sizes}, {counted(len(suite.tables.seeds), 'seeds')}; scores of the {suite.tables.report} rows"
    verdicts, results, runs = Section("verdict", "Verdict"), Section("results", "Results"), Section("runs", "Runs")
    verdicts.add(remarks(verdict_sentences(summary)))
    about = "Mean ± standard deviation over seeds, with the best setting of each model and task"
    results.add(_table(about, summary.table()))
    results.add(_table("Pretraining: sequences until the loss left its plateau", summary.pretrained))
    tuned = [cell for cell in summary.all_cells if cell.setting]
    best = [{"model": cell.model, "task": cell.task, "setting": cell.setting} for cell in tuned]
    results.add(_table("Best settings, chosen on dev rows", best, numbers=False))
    runs.add(_table("Every finished run", summary.runs, numbers=False))
    built = (verdicts, results, _curves(summary), runs)
    header = element("header", element("h1", title), paragraph(subtitle))
    return page(title, header, [section for section in built if section])


def _table(caption: str, rows: Sequence[Mapping[str, object]], numbers: bool = True) -> Markup:
    if not rows:
        return Markup()
    names = [name for name in rows[0] if name not in _LEFT_OUT]
    headings = [name.removeprefix(">").replace("_", " ") for name in names]
    return table(caption, headings, [[_text(row[name]) for name in names] for row in rows], numbers)


def _curves(summary: Summary) -> Section:
    """The curves of all runs of each task in one chart, and of all pretrainings; a score only if several were measured
    in a run."""
    section, work = Section("learning", "Learning curves"), summary.work
    by_task: dict[str, list[Job]] = {}
    for job in (*work.pretrainings(), *work.measurements()):
        if (job.path / "metrics.jsonl").is_file():
            by_task.setdefault(job.task, []).append(job)
    if by_task:
        section.add(paragraph("A curve is named by its model, the values of its setting, and #SEED."))
    for task, jobs in by_task.items():
        drawn = {_named(job): Curves(job.path / "metrics.jsonl") for job in jobs[:_MOST_CURVES]}
        points = points_for(2 * len(by_task) * len(drawn))
        charts = []
        for title, split, name, unit in _CHARTS:
            curves = {run: of_run.of(split, name) for run, of_run in drawn.items()}
            if max(len(curve.steps) for curve in curves.values()) > 1:
                charts.append(line_chart(f"{task}: {title}", curves, unit=unit, points=points))
        section.add_charts(*charts)
        if len(jobs) > len(drawn):
            section.add(paragraph(f"The charts of {task} have the first {len(drawn)} of {len(jobs)} runs."))
    return section


def _named(job: Job) -> str:
    return " ".join([job.model, *map(str, job.setting.values()), f"#{job.seed}"])


def _text(value: object) -> str:
    if isinstance(value, dict):
        return setting_text(value)
    return "" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)
