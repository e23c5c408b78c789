"""The page of a suite: what is said of the differences, the table, the best settings, the curves and every run."""

from bert_jax.config.wording import counted
from bert_jax.report.charts import line_chart, points_for
from bert_jax.report.curves import Curves
from bert_jax.report.page import Section, element, page, paragraph, remarks, table
from bert_jax.suite.job import Job
from bert_jax.suite.suite_tables import setting_text
from bert_jax.suite.summary import Summary

_MOST_CURVES = 24
"""Curves of a chart: with more they can't be told apart."""
_RUN = "model", "task", "setting", "seed", "metric", "score"
_CHARTS = ("score on dev rows", "eval", "score", "score"), ("training loss", "train", "loss", "nats")
"""Title, split, measurement and unit of a task's charts."""


def suite_page(title: str, summary: Summary) -> str:
    """The page. Raises UsageError if vl-convert isn't installed."""
    suite = summary.suite
    sizes = f"{counted(len(suite.models), 'models')}, {counted(len(suite.tasks), 'tasks')}"
    subtitle = f"{sizes}, {counted(len(suite.tables.seeds), 'seeds')}; scores of the {suite.tables.report} rows"
    verdicts, results, runs = Section("verdict", "Verdict"), Section("results", "Results"), Section("runs", "Runs")
    verdicts.add(remarks(summary.sentences()))
    lines = summary.table()
    headings = [heading.removeprefix(">") for heading in lines[0]]
    about = "Mean and standard deviation over seeds, with the best setting of each model and task"
    results.add(table(about, headings, [list(line.values()) for line in lines]))
    if rows := [[_text(value) for name, value in row.items() if name != "run"] for row in summary.pretrained]:
        names = [name.replace("_", " ") for name in summary.pretrained[0] if name != "run"]
        results.add(table("Pretraining: sequences until the loss left its plateau", names, rows))
    cells = [cell for of_task in summary.cells.values() for cell in of_task.values() if cell.setting]
    if cells:
        best = [[cell.model, cell.task, setting_text(cell.setting)] for cell in cells]
        results.add(table("Best settings, chosen on dev rows", ["model", "task", "setting"], best, numbers=False))
    every = [[_text(row[name]) for name in _RUN] for row in summary.runs]
    runs.add(table("Every finished run", _RUN, every, numbers=False))
    built = (verdicts, results, _curves(summary), runs)
    header = element("header", element("h1", title), paragraph(subtitle))
    return page(title, header, [section for section in built if section])


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
    """A run in a legend: its model, the values of its setting, and its seed."""
    return " ".join([job.model, *map(str, job.setting.values()), f"#{job.seed}"])


def _text(value: object) -> str:
    if isinstance(value, dict):
        return setting_text(value)
    return "" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)
