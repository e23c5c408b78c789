"""What a suite's figures say, in sentences: the verdicts, what they rest on, and what to do next."""

import itertools
from collections.abc import Iterator

from bert_jax.config.wording import counted
from bert_jax.products.suite.significance import LEVEL
from bert_jax.products.suite.suite_tables import AVERAGE, setting_text
from bert_jax.products.suite.summary import BASELINE, Summary
from bert_jax.products.suite.tasks import FineTuning, HeldOutTokens
from bert_jax.system.errors import command_line

_BASELINES = "the most frequent class or tag, the mean number, 0.5 for pairs, BM25 for texts to find"


def verdict_sentences(summary: Summary) -> Iterator[tuple[str, str]]:
    """Yields the verdicts, the notes and the failures, each with its kind (good, note or problem)."""
    yield from _verdicts(summary)
    notes = (_edges, _missing_scores, _remarks, _averages, _chosen_by_dev_rows, _rows_seen, _ready_models)
    of_kinds = (
        ("note", _comparisons(summary)),
        ("problem", _no_better_than_baseline(summary)),
        ("note", itertools.chain.from_iterable(of_suite(summary) for of_suite in notes)),
        ("problem", (f"Failed: {failure}" for failure in summary.work.failures)),
    )
    for kind, sentences in of_kinds:
        yield from ((kind, sentence) for sentence in sentences)


def _verdicts(summary: Summary) -> Iterator[tuple[str, str]]:
    """Yields the best model of each task and each comparison with the first model, with their kinds."""
    for winner in summary.winners:
        leads = len(winner.indistinguishable) < len(summary.cells[winner.task]) - 1
        yield "good" if leads else "note", winner.text
    for (name, task), found in summary.differences.items():
        yield "good" if found.is_significant else "note", f"{task}: {summary.verdict(name, task, found)}"


def _comparisons(summary: Summary) -> Iterator[str]:
    """Yields how the verdicts are made, and what the deviations and baselines are."""
    suite = summary.suite
    if summary.differences:
        families = "over all comparisons on tasks, and over those of the average"
        p = "p: the probability of a difference this large or larger between equal models, with Holm's correction"
        yield f"Every model is compared with the first, at {LEVEL:.0%}. {p} {families}."
        if once := [model.name for model in suite.models if model.path or len(suite.tables.seeds) == 1]:
            names = "all models" if len(once) == len(suite.models) else ", ".join(once)
            made = f"Made with one seed: {names}. A verdict"
            yield f"{made} holds for these trained models, not for the ways they are made."
    if any(cell.spread is not None for cell in summary.all_cells):
        errors = "that of a difference is its standard error"
        yield f"The ± of a score is the standard deviation over seeds, {errors}."
    yield f"{BASELINE.capitalize()}: {_BASELINES}."


def _no_better_than_baseline(summary: Summary) -> Iterator[str]:
    for task, cells in summary.cells.items():
        if low := [name for name, cell in cells.items() if cell.baseline is not None and cell.mean <= cell.baseline]:
            yield f"{task}: {', '.join(low)} scored no better than the baseline."


def _edges(summary: Summary) -> Iterator[str]:
    """Yields a sentence for each highest or lowest number of the grid that is the best for some model and task."""
    for name, values in summary.suite.tables.grid.items():
        if len(values) < 2 or not all(type(value) in (int, float) for value in values):
            continue
        for extreme, side, further in ((max(values), "highest", "higher"), (min(values), "lowest", "lower")):
            cells = [cell for cell in summary.all_cells if cell.setting and cell.setting[name] == extreme]
            if at := ", ".join(f"{cell.model} on {cell.task}" for cell in cells):
                what = f"{setting_text({name: extreme})} is the {side} of the grid and the best for {at}"
                yield f"{what}: a {further} value may be better."


def _missing_scores(summary: Summary) -> Iterator[str]:
    """Yields why models have no score on tasks and on the held-out tokens of other recipes."""
    suite = summary.suite
    for (name, task), reason in suite.lacking.items():
        yield f"{task}: {name} has no score, as it {reason}."
    for task, count in summary.missing.items():
        if task in summary.cells:
            yield f"{task}: {counted(count, 'measurements')} missing, so no best model is named there or on average."
    for name in {job.model: None for job in summary.work.measurements() if job.done and not job.measured}:
        yield f"{name} has no score on held-out text: none was held out, or too many pieces of it are unknown."
    if len({task.predict for task in suite.measured.values() if isinstance(task, HeldOutTokens)}) > 1:
        yield "Held-out tokens: a recipe has scores for what it learned to predict, and none in other columns."


def _remarks(summary: Summary) -> Iterator[str]:
    """Yields the remarks on pretrainings and on trainings with the best settings, each with its seeds."""
    suite, work = summary.suite, summary.work
    seeds: dict[tuple[str, str, str], list[int]] = {}
    rows = [
        {"model": job.model, "task": job.task, "seed": job.seed, "metrics": job.measured} for job in work.pretrainings()
    ]
    for row in [*rows, *summary.runs]:
        task = suite.measured.get(row["task"])
        if not isinstance(task, FineTuning) or row["setting"] == work.best_setting(suite.model(row["model"]), task):
            for remark in row["metrics"].get("remarks", ()):
                seeds.setdefault((row["task"], row["model"], remark), []).append(row["seed"])
    several = len(suite.tables.seeds) > 1
    for (name, model_name, remark), having in seeds.items():
        of_seeds = f" (seed {', '.join(map(str, having))})" if several else ""
        yield f"{name}: {model_name}{of_seeds}: {remark}"


def _averages(summary: Summary) -> Iterator[str]:
    """Yields why averages aren't compared, and which tasks they leave out."""
    if AVERAGE in summary.cells and summary.without_verdict:
        yield f"Averages aren't compared, as there is no verdict on {', '.join(summary.without_verdict)}."
    if left := [task.name for task in summary.suite.tasks if task.name not in summary.averaged]:
        yield f"The average leaves out {', '.join(left)}, where a model has no score."


def _chosen_by_dev_rows(summary: Summary) -> Iterator[str]:
    suite = summary.suite
    choices = [counted(len(suite.settings), "settings")] if len(suite.settings) > 1 else []
    if any(task.config.task.epochs > 1 for task in suite.tuned):
        choices.append("the checkpoints of all epochs")
    if suite.tuned and choices and suite.tables.report == "dev":
        yield f"Each score is the best of {' and of '.join(choices)} on the same dev rows; new rows would score lower."


def _rows_seen(summary: Summary) -> Iterator[str]:
    """Yields what a share of seen rows is, and the models of whose texts a part couldn't be looked through."""
    searched = [cell for cell in summary.all_cells if cell.share_seen is not None]
    if searched:
        yield "Seen: the share of dev and test rows that was found in the model's pretraining text."
    for model, reason in dict.fromkeys((cell.model, cell.unread) for cell in searched if cell.unread):
        yield f"Seen: only a part of {model}'s pretraining text was looked through, as {reason}."


def _ready_models(summary: Summary) -> Iterator[str]:
    """Yields, for each fine-tuned task, the command that uses the best model and, if the suite trained its encoder, the
    command that exports the encoder."""
    for task in summary.suite.tuned:
        if not (cells := summary.cells.get(task.name)):
            continue
        name = max(cells, key=lambda name: cells[name].mean)
        model, cell = summary.suite.model(name), cells[name]
        tuned = [summary.work.tuning(model, task, cell.setting, seed) for seed in cell.scores]
        best = max(tuned, key=lambda job: task.score(job.measured)[1])
        subcommand = "features" if task.config.task.makes_vectors else "predict"
        use = command_line("bert-jax", subcommand, best.path, "INPUT", "OUTPUT")
        export = best.needs and command_line("bert-jax", "export", best.needs.path, "FOLDER")
        exported = f"; to export its encoder: {export}" if export else ""
        yield f"{task.name}: to use {name}, with its best seed on the dev rows: {use}{exported}"
