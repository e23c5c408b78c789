"""The figures of a suite: every run, the table of models and tasks, and which differences count."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.config.wording import counted
from bert_jax.products.suite.significance import (
    LEVEL,
    Difference,
    adjusted,
    bootstrap_error,
    difference_text,
    pair_errors,
    score_difference,
)
from bert_jax.products.suite.suite import SuiteModel
from bert_jax.products.suite.suite_tables import AVERAGE, RANK, setting_text
from bert_jax.products.suite.tasks import AND, FineTuning, HeldOutTokens, RowOutcomes, SuiteTask
from bert_jax.products.suite.work import SuiteWork
from bert_jax.system.errors import command_line

BASELINE = "baseline"
"""Name of the row of scores that need no model."""
_FEWEST_RANKED = 3
"""Least number of models for which a verdict names the best; for two, the comparison with the first model says it."""
_BASELINES = "the most frequent class or tag, the mean number, 0.5 for pairs, BM25 for texts to find"


class Cell(NamedTuple):
    """A model's scores on a task with its best setting, by seed."""

    model: str
    task: str
    metric: str
    scores: dict[int, float]
    planned: int = 1
    """Number of seeds with which it is measured."""
    setting: dict[str, Any] = {}
    outcomes: RowOutcomes = RowOutcomes()
    baseline: float | None = None
    """The score of a method that learns nothing; None if it isn't known."""
    share_seen: float | None = None
    """The share of the rows that was found in the model's pretraining text; None if it isn't known."""
    unread: str | None = None
    """Why a part of that text couldn't be looked through, so that the share may be larger."""

    @property
    def mean(self) -> float:
        return statistics.fmean(self.scores.values())

    @property
    def spread(self) -> float | None:
        return statistics.stdev(self.scores.values()) if len(self.scores) > 1 else None

    @property
    def text(self) -> str:
        spread = "" if self.spread is None else f" ± {self.spread:.3f}"
        seeds = f" ({len(self.scores)} of {self.planned} seeds)" if self.lacks_seeds else ""
        least = "at least " if self.unread else ""
        seen = "" if self.share_seen is None else f" ({least}{self.share_seen:.1%} seen)"
        return f"{self.mean:.3f}{spread}{seeds}{seen}"

    @property
    def lacks_seeds(self) -> bool:
        """Whether a run of some seed failed or isn't finished."""
        return len(self.scores) < self.planned


class Winner(NamedTuple):
    """The model with the highest score on a task."""

    task: str
    model: str
    score: float
    indistinguishable: list[str]
    """The models that are not distinguishable from it, by Holm's correction over the comparisons of all pairs of
    models, as any of them might have been the best."""

    @property
    def text(self) -> str:
        near = f"not distinguishable from it: {'; '.join(self.indistinguishable)}" if self.indistinguishable else ""
        return f"{self.task}: the best is {self.model} with {self.score:.3f}; {near or 'all others are worse'}"


class Summary:
    """The figures of a suite's finished runs.

    Each model is compared with the first model of the file. The comparisons on single tasks are one family for Holm's
    correction, and those of the average another. The best model of a task is compared with all others; the pairs of
    models are a further family for each task.
    """

    def __init__(self, work: SuiteWork):
        self.work, self.suite, self.cells = work, work.suite, dict[str, dict[str, Cell]]()
        self.runs = list(self._rows())
        """The rows of suite.json, one a measurement."""
        for cell in self._cells():
            self.cells.setdefault(cell.task, {})[cell.model] = cell
        for task, cells in self.cells.items():
            self.cells[task] = _of_common_pairs(cells)
        names = [model.name for model in self.suite.models]
        self.averaged = [task.name for task in self.suite.tasks if len(self.cells.get(task.name, {})) == len(names)]
        """The tasks on which all models have a score."""
        averaged = [self.cells[task] for task in self.averaged]
        self.ranks = {name: statistics.fmean(_rank(cells, name) for cells in averaged) for name in names if averaged}
        """The mean of each model's rank over those tasks."""
        if len(averaged) > 1:
            self.cells[AVERAGE] = {name: _average([cells[name] for cells in averaged]) for name in names}
        self.without_verdict = list[str]()
        """The tasks on which some model isn't judged beside the first. If there is one, averages aren't compared."""
        self._known_errors = dict[tuple[str, ...], list[tuple[float, int]]]()
        self.differences = self._differences()
        """Of each model but the first on each task, by model and task, with Holm's probabilities."""
        self.winners = list(self._winners())
        """The best model of each task, if several are compared."""

    @property
    def content(self) -> dict[str, Any]:
        table = list[dict[str, Any]]()
        for task, cells in self.cells.items():
            for name, cell in cells.items():
                found = self.differences.get((name, task))
                compared = {"verdict": self._verdict(name, task, found)} | found._asdict() if found else {}
                of_cell = {key: value for key, value in cell._asdict().items() if key not in ("scores", "outcomes")}
                rank = self.ranks[name] if task == AVERAGE else _rank(cells, name)
                of_cell |= {"mean": cell.mean, "spread": cell.spread, "seeds": list(cell.scores), "rank": rank}
                table.append(compared | of_cell)  # the `seeds` of `of_cell` replace the count in `compared`
        return {
            "suite": self.suite.tables.model_dump(mode="json", exclude_none=True, by_alias=True),
            "pretrained": self.pretrained,
            "runs": self.runs,
            "table": table,
            "winners": [winner._asdict() for winner in self.winners],
            "failed": self.work.failures,
        }

    @property
    def pretrained(self) -> list[dict[str, Any]]:
        """Of each finished pretraining: steps, sequences, and how many of these before it left the plateau; sequences
        and plateau with those of the recipe that it began with."""
        found, seconds = [], self.work.recipes.step_seconds()
        for job in (job for job in self.work.pretrainings() if job.done):
            row = {"model": job.model, "seed": job.seed, "run": str(job.path), "step_seconds": seconds.get(job.model)}
            # A release before this one kept no number of sequences.
            found.append(row | {name: job.measured.get(name) for name in ("steps", "sequences", "plateau")})
        return found

    def table(self) -> list[dict[str, str]]:
        """The score of each model on each task, the average, and the mean rank, by heading; last, the baselines."""
        rows = [
            {"model": model.name}
            | {f">{task}": cells[model.name].text if model.name in cells else "" for task, cells in self.cells.items()}
            | ({f">{RANK}": f"{self.ranks[model.name]:.1f}"} if len(self.ranks) > 1 else {})
            for model in self.suite.models
        ]
        known = {task: next((cell.baseline for cell in cells.values()), None) for task, cells in self.cells.items()}
        shown = {f">{task}": "" if value is None else f"{value:.3f}" for task, value in known.items()}
        return [*rows, dict.fromkeys(rows[0], "") | {"model": BASELINE} | shown]

    def sentences(self) -> Iterator[tuple[str, str]]:
        """Yields the verdicts, the notes and the failures, each with its kind (good, note or problem)."""
        for winner in self.winners:
            leads = len(winner.indistinguishable) < len(self.cells[winner.task]) - 1
            yield "good" if leads else "note", winner.text
        for (name, task), found in self.differences.items():
            yield "good" if found.is_significant else "note", f"{task}: {self._verdict(name, task, found)}"
        if self.differences:
            families = "over all comparisons on tasks, and over those of the average"
            p = "p: the probability of such a difference between equal models, with Holm's correction"
            yield "note", f"Every model is compared with the first, at {LEVEL:.0%}. {p} {families}."
            if once := [model.name for model in self.suite.models if model.path or len(self.suite.tables.seeds) == 1]:
                names = "all models" if len(once) == len(self.suite.models) else ", ".join(once)
                made = f"Made with one seed: {names}. A verdict"
                yield "note", f"{made} holds for these trained models, not for the ways they are made."
        if any(cell.spread is not None for cells in self.cells.values() for cell in cells.values()):
            errors = "that of a difference is its standard error"
            yield "note", f"The ± of a score is the standard deviation over seeds, {errors}."
        yield "note", f"{BASELINE.capitalize()}: {_BASELINES}."
        for task, cells in self.cells.items():
            if low := [
                name for name, cell in cells.items() if cell.baseline is not None and cell.mean <= cell.baseline
            ]:
                yield "problem", f"{task}: {', '.join(low)} scored no better than the baseline."
        yield from (("note", text) for text in self._edges())
        for (name, task), reason in self.suite.lacking.items():
            yield "note", f"{task}: {name} has no score, as it {reason}."
        if len({task.predict for task in self.suite.measured.values() if isinstance(task, HeldOutTokens)}) > 1:
            yield (
                "note",
                "Held-out tokens: a recipe has scores for what it learned to predict, and none in other columns.",
            )
        yield from (("note", text) for text in self._remarks())
        if AVERAGE in self.cells and self.without_verdict:
            tasks = ", ".join(self.without_verdict)
            yield "note", f"Averages aren't compared, as there is no verdict on {tasks}."
        if left := [task.name for task in self.suite.tasks if task.name not in self.averaged]:
            yield "note", f"The average leaves out {', '.join(left)}, where a model has no score."
        if len(self.suite.settings) > 1 and self.suite.tables.report == "dev":
            best = f"the best of {counted(len(self.suite.settings), 'settings')}"
            yield "note", f"Each score is {best} on the same dev rows; new rows would score lower."
        yield from (("note", text) for text in self._contamination_notes())
        yield from (("note", text) for text in self._ready_models())
        yield from (("problem", f"Failed: {failure}") for failure in self.work.failures)

    def _verdict(self, name: str, task: str, found: Difference) -> str:
        rows = sorted({each.ROWS for each in self.suite.tasks if task in (each.name, AVERAGE)}, reverse=True)
        return difference_text(name, self.suite.models[0].name, found, " and ".join(rows or ["rows"]))

    def _contamination_notes(self) -> Iterator[str]:
        """Yields what a share of seen rows is, and the models of whose texts a part couldn't be looked through."""
        searched = [each for cells in self.cells.values() for each in cells.values() if each.share_seen is not None]
        if searched:
            yield "Seen: the share of dev and test rows that was found in the model's pretraining text."
        for model, reason in dict.fromkeys((each.model, each.unread) for each in searched if each.unread):
            yield f"Seen: only a part of {model}'s pretraining text was looked through, as {reason}."

    def _ready_models(self) -> Iterator[str]:
        """Yields, for each fine-tuned task, the command that uses the best model and, if the suite trained its encoder,
        the command that exports the encoder."""
        for task in self.suite.tuned:
            if not (cells := self.cells.get(task.name)):
                continue
            name = max(cells, key=lambda name: cells[name].mean)
            model = self.suite.model(name)
            tuned = [self.work.tuning(model, task, cells[name].setting, seed) for seed in cells[name].scores]
            best = max(tuned, key=lambda job: task.score(job.measured)[1])
            subcommand = "features" if task.config.task.makes_vectors else "predict"
            use = command_line("bert-jax", subcommand, best.path, "INPUT", "OUTPUT")
            export = best.needs and command_line("bert-jax", "export", best.needs.path, "FOLDER")
            exported = f"; to export its encoder: {export}" if export else ""
            yield f"{task.name}: to use {name}, with its best seed on the dev rows: {use}{exported}"

    def _remarks(self) -> Iterator[str]:
        """Yields the remarks on pretrainings and on trainings with the best settings, each with its seeds."""
        seeds: dict[tuple[str, str, str], list[int]] = {}
        rows = [
            {"model": job.model, "task": job.task, "seed": job.seed, "metrics": job.measured}
            for job in self.work.pretrainings()
            if job.done
        ]
        for row in [*rows, *self.runs]:
            task = self.suite.measured.get(row["task"])
            model = self.suite.model(row["model"])
            if not isinstance(task, FineTuning) or row["setting"] == self.work.best_setting(model, task):
                for remark in row["metrics"].get("remarks", ()):
                    seeds.setdefault((row["task"], row["model"], remark), []).append(row["seed"])
        several = len(self.suite.tables.seeds) > 1
        for (name, model_name, remark), having in seeds.items():
            of_seeds = f" (seed {', '.join(map(str, having))})" if several else ""
            yield f"{name}: {model_name}{of_seeds}: {remark}"

    def _edges(self) -> Iterator[str]:
        """Yields a sentence for each highest or lowest number of the grid that is the best for some model and task."""
        for name, values in self.suite.tables.grid.items():
            for extreme, side, further in ((max, "highest", "higher"), (min, "lowest", "lower")):
                if len(values) < 2 or not all(type(value) in (int, float) for value in values):
                    continue
                cells = [cell for cells in self.cells.values() for cell in cells.values() if cell.setting]
                at = ", ".join(
                    f"{cell.model} on {cell.task}" for cell in cells if cell.setting[name] == extreme(values)
                )
                what = f"{setting_text({name: extreme(values)})} is the {side} of the grid and the best for {at}"
                yield from [f"{what}: a {further} value may be better."] if at else []

    def _rows(self) -> Iterator[dict[str, Any]]:
        """Yields the row of suite.json of each finished measurement that has figures."""
        for job in self.work.measurements():
            if metrics := job.measured if job.done else {}:
                metric, score = self.suite.measured[job.task].score(metrics)
                row = {"model": job.model, "task": job.task, "setting": job.setting, "seed": job.seed}
                row |= {"run": str(job.path), "metric": metric, "score": score, "seconds": metrics.get("work_seconds")}
                yield row | {"metrics": metrics}

    def _cells(self) -> Iterator[Cell]:
        for model in self.suite.models:
            looked_up = self.work.contamination(model)
            shares = looked_up.measured if looked_up.done else {}
            for task in self.suite.measured.values():
                cell = self._cell(model, task)
                if cell and cell.scores:
                    seen = shares.get(task.name, {})
                    yield cell._replace(share_seen=seen.get("share"), unread=seen.get("unknown"))

    def _cell(self, model: SuiteModel, task: SuiteTask) -> Cell | None:
        rows = [row for row in self.runs if (row["model"], row["task"]) == (model.name, task.name)]
        setting = self.work.best_setting(model, task) if isinstance(task, FineTuning) else {}
        if not rows or setting is None:
            return None
        measured = {row["seed"]: row["metrics"] for row in rows if row["setting"] == setting}
        if isinstance(task, FineTuning):  # the answers of the best setting give the scores and what is tested
            jobs = [self.work.answers(model, task, setting, seed) for seed in self.suite.tables.seeds]
            measured = {job.seed: job.measured for job in jobs if job.done}
        scores = {seed: task.score(each)[1] for seed, each in measured.items()}
        planned = len(self.work.seeds(model, task))
        cell = Cell(model.name, task.name, rows[0]["metric"], scores, planned, setting)
        some: dict[str, Any] = next(iter(measured.values()), {})
        if baseline := some.get("baseline"):
            cell = cell._replace(baseline=task.score({"metric": some.get("metric"), **baseline})[1])
        return cell._replace(outcomes=task.outcomes([*measured.values()])) if measured else cell

    def _differences(self) -> dict[tuple[str, str], Difference]:
        first, found = self.suite.models[0].name, dict[tuple[str, str], Difference]()
        for task, cells in self.cells.items():
            for name in cells if first in cells else ():
                if name == first or task == AVERAGE and self.without_verdict:
                    continue
                found[name, task] = self._difference(task, name, first)
                if task in self.averaged and task not in self.without_verdict and found[name, task].obstacle:
                    self.without_verdict.append(task)
        for is_average in (False, True):
            family = [key for key in found if (key[1] == AVERAGE) == is_average]
            for key, p in zip(family, adjusted([found[key].p for key in family]), strict=True):
                found[key] = found[key]._replace(p=p)
        return found

    def _difference(self, task: str, name: str, other: str) -> Difference:
        """The difference of two models on a task or the average, without a correction for several comparisons."""
        cells = self.cells[task][name], self.cells[task][other]
        if lacking := [
            f"{cell.model} has {len(cell.scores)} of {cell.planned} seeds" for cell in cells if cell.lacks_seeds
        ]:
            difference, seeds = cells[0].mean - cells[1].mean, min(len(cell.scores) for cell in cells)
            return Difference(difference, 0.0, 1.0, seeds, 0, " and ".join(lacking))
        scores = _paired(*cells)
        if task != AVERAGE:
            return score_difference(*scores, self._row_errors(task, name, other))
        parts = [part for each in self.averaged for part in self._row_errors(each, name, other)]
        return score_difference(*scores, [(error / len(self.averaged), rows) for error, rows in parts])

    def _row_errors(self, task: str, name: str, other: str) -> list[tuple[float, int]]:
        key = (task, *sorted((name, other)))
        if key not in self._known_errors:
            self._known_errors[key] = _row_error(self.cells[task][name], self.cells[task][other])
        return self._known_errors[key]

    def _winners(self) -> Iterator[Winner]:
        for task, cells in self.cells.items():
            if len(cells) < _FEWEST_RANKED:
                continue
            best = max(cells, key=lambda name: cells[name].mean)
            others = [name for name in cells if name != best]
            parts = self.averaged if task == AVERAGE else [task]
            if any(self._difference(part, best, name).obstacle for part in parts for name in others):
                continue
            pairs = math.comb(len(cells), 2)
            p = adjusted([self._difference(task, best, name).p for name in others], pairs)
            indistinguishable = [name for name, of_name in zip(others, p, strict=True) if of_name >= LEVEL]
            yield Winner(task, best, cells[best].mean, indistinguishable)


def _paired(ours: Cell, theirs: Cell) -> tuple[list[float], list[float]]:
    """The scores of two models, paired by seed. The score of a model that is measured once stands for every seed."""
    seeds = max([list(ours.scores), list(theirs.scores)], key=len)
    first, second = ([cell.scores.get(seed, cell.mean) for seed in seeds] for cell in (ours, theirs))
    return first, second


def _of_common_pairs(cells: dict[str, Cell]) -> dict[str, Cell]:
    """The cells with the pairs alone that all models score, if there are some, and with the scores on these."""
    every = [outcomes for cell in cells.values() for outcomes in cell.outcomes.sums if len(cell.outcomes.files)]
    kept = ~np.isnan(sum(every, np.zeros((1, 1))))[:, 0]
    if kept.all() or not kept.any():
        return cells
    common = dict[str, Cell]()
    for name, cell in cells.items():
        files = np.unique(cell.outcomes.files[kept], return_inverse=True)[1]
        sums = tuple(each[kept] for each in cell.outcomes.sums)
        means = [np.bincount(files, each[:, 0]) / np.bincount(files) for each in sums]
        scores = {seed: float(mean.mean()) for seed, mean in zip(cell.scores, means, strict=True)}
        common[name] = cell._replace(outcomes=RowOutcomes(sums, files), scores=scores)
    return common


def _row_error(ours: Cell, theirs: Cell) -> list[tuple[float, int]]:
    """Standard errors of a difference by the choice of rows, and their numbers; [] where they aren't compared."""
    first, second = ours.outcomes.sums, theirs.outcomes.sums
    if not (first and second and len(first[0]) == len(second[0])):
        return []
    if len(ours.outcomes.files):
        return pair_errors(np.mean(first, axis=0)[:, 0] - np.mean(second, axis=0)[:, 0], ours.outcomes.files)
    return [(bootstrap_error(first, second, ours.metric.split(AND)), len(first[0]))]


def _average(cells: Sequence[Cell]) -> Cell:
    """The means over tasks, for the seeds of the task that has most. A task that lacks a seed counts with its mean over
    seeds."""
    seeds = max((list(cell.scores) for cell in cells), key=len)
    means = {seed: statistics.fmean(cell.scores.get(seed, cell.mean) for cell in cells) for seed in seeds}
    known = [cell.baseline for cell in cells if cell.baseline is not None]
    return Cell(
        cells[0].model,
        AVERAGE,
        "",
        means,
        planned=max(cell.planned for cell in cells),
        baseline=statistics.fmean(known) if len(known) == len(cells) else None,
    )


def _rank(cells: Mapping[str, Cell], name: str) -> float:
    """The rank of a model by its mean, from 1 for the highest; equal means share theirs."""
    means = [cell.mean for cell in cells.values()]
    return 1 + sum(mean > cells[name].mean for mean in means) + (means.count(cells[name].mean) - 1) / 2
