"""The figures of a suite: every run, the table of models and tasks, and which differences count."""

import math
import statistics
from collections import Counter
from collections.abc import Iterator
from typing import Any

from bert_jax.products.suite.cells import (
    Cell,
    Winner,
    average_cell,
    cells_of_common_pairs,
    paired_scores,
    rank_of,
    row_errors,
)
from bert_jax.products.suite.significance import LEVEL, Difference, adjusted, difference_text, score_difference
from bert_jax.products.suite.suite import SuiteModel
from bert_jax.products.suite.suite_tables import AVERAGE, RANK
from bert_jax.products.suite.tasks import FineTuning, SuiteTask
from bert_jax.products.suite.work import SuiteWork
from bert_jax.system.json_file import JsonObject

BASELINE = "baseline"
"""Name of the row of scores that need no model."""
_FEWEST_RANKED = 3
"""Least number of models for which a verdict names the best; for two, the comparison with the first model says it."""


class Summary:
    """The figures of a suite's finished runs.

    Each model is compared with the first model of the file. The comparisons on single tasks are one family for Holm's
    correction, and those of the average another. The best model of a task is compared with all others. Any pair of
    models might have been compared, so all pairs on all tasks are a further family, and those of the average another.
    """

    def __init__(self, work: SuiteWork):
        self.work, self.suite, self.cells = work, work.suite, dict[str, dict[str, Cell]]()
        self.runs = list(self._rows())
        """The rows of suite.json, one a measurement."""
        jobs = (*work.measurements(), *work.row_answers())
        self.missing = Counter(job.task for job in jobs if not job.done)
        """By task, how many measurements aren't done or have failed."""
        for cell in self._cells():
            self.cells.setdefault(cell.task, {})[cell.model] = cell
        for task, cells in self.cells.items():
            self.cells[task] = cells_of_common_pairs(cells)
        names = [model.name for model in self.suite.models]
        self.averaged = [task.name for task in self.suite.tasks if len(self.cells.get(task.name, {})) == len(names)]
        """The tasks on which all models have a score."""
        averaged = [self.cells[task] for task in self.averaged]
        self.ranks = {name: statistics.fmean(rank_of(cells, name) for cells in averaged) for name in names if averaged}
        """The mean of each model's rank over those tasks."""
        if len(averaged) > 1:
            self.cells[AVERAGE] = {name: average_cell([cells[name] for cells in averaged]) for name in names}
        self.without_verdict = list[str]()
        """The tasks on which some model isn't judged beside the first. If there is one, averages aren't compared."""
        self._known_errors = dict[tuple[str, ...], list[tuple[float, int]]]()
        self.differences = self._differences()
        """Of each model but the first on each task, by model and task, with Holm's probabilities."""
        self.winners = list(self._winners())
        """The best model of each task, if several are compared."""

    @property
    def all_cells(self) -> list[Cell]:
        """The cells of every task and model, those of the average included."""
        return [cell for cells in self.cells.values() for cell in cells.values()]

    @property
    def content(self) -> dict[str, Any]:
        table = list[dict[str, Any]]()
        for task, cells in self.cells.items():
            for name, cell in cells.items():
                found = self.differences.get((name, task))
                compared = {"verdict": self.verdict(name, task, found)} | found._asdict() if found else {}
                of_cell = {key: value for key, value in cell._asdict().items() if key not in ("scores", "outcomes")}
                rank = self.ranks[name] if task == AVERAGE else rank_of(cells, name)
                of_cell |= {"mean": cell.mean, "spread": cell.spread, "seeds": list(cell.scores), "rank": rank}
                table.append(compared | of_cell)  # the `seeds` of `of_cell` replace the count in `compared`
        return {
            "suite": self.suite.tables.model_dump(mode="json", exclude_none=True, by_alias=True),
            "pretrained": self.pretrained,
            "runs": self.runs,
            "table": table,
            "winners": [winner._asdict() for winner in self.winners],
            "missing": self.missing,
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

    def verdict(self, name: str, task: str, found: Difference) -> str:
        """The verdict, in words, on a model beside the first on a task or the average."""
        rows = sorted({each.ROWS for each in self.suite.tasks if task in (each.name, AVERAGE)}, reverse=True)
        return difference_text(name, self.suite.models[0].name, found, " and ".join(rows or ["rows"]))

    def _rows(self) -> Iterator[dict[str, Any]]:
        """Yields the row of suite.json of each finished measurement that has figures."""
        for job in self.work.measurements():
            if metrics := job.measured:
                metric, score = self.suite.measured[job.task].score(metrics)
                row = {"model": job.model, "task": job.task, "setting": job.setting, "seed": job.seed}
                row |= {"run": str(job.path), "metric": metric, "score": score, "seconds": job.seconds}
                yield row | {"metrics": metrics}

    def _cells(self) -> Iterator[Cell]:
        for model in self.suite.models:
            in_text = self.work.contamination(model).measured
            for task in self.suite.measured.values():
                if cell := self._cell(model, task, in_text.get(task.name, {})):
                    yield cell

    def _cell(self, model: SuiteModel, task: SuiteTask, seen: JsonObject) -> Cell | None:
        """The scores of a model on a task, with which of its rows were `seen` in the model's text; None if it has no
        score yet, or if the best setting isn't known."""
        rows = [row for row in self.runs if (row["model"], row["task"]) == (model.name, task.name)]
        setting = self.work.best_setting(model, task) if isinstance(task, FineTuning) else {}
        if not rows or setting is None:
            return None
        measured: dict[int, JsonObject] = {row["seed"]: row["metrics"] for row in rows}
        if isinstance(task, FineTuning):  # the answers of the best setting give the scores and what is tested
            jobs = [self.work.answers(model, task, setting, seed) for seed in self.suite.tables.seeds]
            measured = {job.seed: job.measured for job in jobs if job.done}
        if not measured:
            return None
        first = next(iter(measured.values()))
        baseline = first.get("baseline")
        return Cell(
            model.name,
            task.name,
            rows[0]["metric"],
            scores={seed: task.score(metrics)[1] for seed, metrics in measured.items()},
            planned=len(self.work.seeds(model, task)),
            setting=setting,
            outcomes=task.outcomes([*measured.values()]),
            baseline=task.score({"metric": first.get("metric"), **baseline})[1] if baseline else None,
            share_seen=seen.get("share"),
            unread=seen.get("unknown"),
        )

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
        if task != AVERAGE and (obstacle := self.suite.measured[task].obstacle):
            return Difference(
                cells[0].mean - cells[1].mean, 0.0, 1.0, min(len(cell.scores) for cell in cells), 0, obstacle
            )
        if lacking := [
            f"{cell.model} has {len(cell.scores)} of {cell.planned} seeds" for cell in cells if cell.lacks_seeds
        ]:
            difference, seeds = cells[0].mean - cells[1].mean, min(len(cell.scores) for cell in cells)
            return Difference(difference, 0.0, 1.0, seeds, 0, " and ".join(lacking))
        scores = paired_scores(*cells)
        if task != AVERAGE:
            return score_difference(*scores, self._row_errors(task, name, other))
        parts = [part for each in self.averaged for part in self._row_errors(each, name, other)]
        return score_difference(*scores, [(error / len(self.averaged), rows) for error, rows in parts])

    def _row_errors(self, task: str, name: str, other: str) -> list[tuple[float, int]]:
        key = (task, *sorted((name, other)))
        if key not in self._known_errors:
            self._known_errors[key] = row_errors(self.cells[task][name], self.cells[task][other])
        return self._known_errors[key]

    def _winners(self) -> Iterator[Winner]:
        """Yields the best model of each task on which several models are compared and nothing is missing."""
        compared = dict[str, tuple[str, dict[str, float]]]()
        for task, cells in self.cells.items():
            parts = self.averaged if task == AVERAGE else [task]
            best = max(cells, key=lambda name: cells[name].mean)
            others = [name for name in cells if name != best]
            differs = all(not self._difference(part, best, name).obstacle for part in parts for name in others)
            if len(cells) >= _FEWEST_RANKED and not any(self.missing[part] for part in parts) and differs:
                compared[task] = best, {name: self._difference(task, best, name).p for name in others}
        for tasks in ([task for task in compared if task != AVERAGE], [task for task in compared if task == AVERAGE]):
            pairs = sum(math.comb(len(self.cells[task]), 2) for task in tasks)
            p = iter(adjusted([each for task in tasks for each in compared[task][1].values()], pairs))
            for task in tasks:
                best, of_others = compared[task]
                indistinguishable = [name for name in of_others if next(p) >= LEVEL]
                yield Winner(task, best, self.cells[task][best].mean, indistinguishable)
