"""What the report of one run shows, read from the run's directory."""

import datetime
import itertools
import math
import operator
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from bert_jax.config.finetune import AnyRunConfig
from bert_jax.config.prediction import PAIR_QUESTIONS, REPLACED_TOKENS, TAGS, Question
from bert_jax.config.run import RunConfig
from bert_jax.config.settings import leaves
from bert_jax.finetuning.metrics import metric_of
from bert_jax.instances.prepared_data import PreparedData
from bert_jax.model.bert import parameter_shapes
from bert_jax.model.size import ModelPart, model_parts
from bert_jax.model.task import HeadShape, task_parameter_shapes
from bert_jax.pretraining.mixture import SourceShare, source_shares
from bert_jax.pretraining.objective import OBJECTIVES
from bert_jax.run.curves import Curves
from bert_jax.run.remarks import name_in_words
from bert_jax.run.results import Results, read_results
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.run_files import RunFiles, is_checkpoint, no_run
from bert_jax.system.bucket import Place
from bert_jax.system.errors import BertJaxError, first_line
from bert_jax.system.journal import JOURNAL_FILE, Noted, read_journal

_METRIC = re.compile(r"([0-9]+/)?[a-z][a-z0-9_@]{0,40}")
"""Names of metrics in results.json, as in ndcg@10 and, of vectors of a smaller width, 64/ndcg@10; without those by
language or set."""
_MOST_METRICS = 200
_MOST_BASELINES, _MOST_NAME = 4, 40
"""Limits on the comparisons of words that are read from results.json, and on the characters of their names."""


class RunSummary:
    """What the directory of a run tells: settings, measurements, results, data and events.

    Its files are data of unknown origin: no value is trusted to have the type that this release writes. What can't be
    read is left out, with a sentence in `problems`.
    """

    def __init__(self, run: Place | RunFiles):
        """`run`: its path, or its files if some of them were read already. Raises UsageError if it is no run, RunError
        if its settings are damaged."""
        self.run = RunDirectory(run)
        path, self.name = self.run.path, self.run.path.name
        if is_checkpoint(path):
            raise no_run(path, "is a checkpoint")
        self.config: AnyRunConfig = self.run.files.config
        self.origin = self.run.files.origin
        """The source of an imported model; None for a run that was trained here."""
        self.problems: list[str] = []
        self.curves = Curves(self.run.metrics_file)
        if self.curves.damage:
            self.problems.append(f"Lines of metrics.jsonl that can't be read are left out: {self.curves.damage}.")
        results = self._read_results(self.run.results_file)
        self.results = (
            Results() if results.steps is not None and results.steps < self.curves.last_evaluation else results
        )
        """The contents of results.json; empty if it is of an earlier step than the newest evaluation."""
        self.pairs = self._read_results(self.run.pairs_file)
        """The contents of pairs.json: accuracies on minimal pairs; empty if none were kept."""
        self.events: list[Noted] = read_journal(path / JOURNAL_FILE)
        self.readings = self.run.readings()
        """What the run's foreign input was taken for."""
        self.step = max(self.curves.last_step, self.run.newest_step or 0)
        """The newest step of which anything is known."""

    @property
    def is_task(self) -> bool:
        return self.config.task is not None

    @property
    def steps(self) -> int:
        """The planned steps; 0 for an imported model."""
        return 0 if self.origin else self.config.steps

    @property
    def is_finished(self) -> bool:
        """Whether results.json is of the newest step and says that training is over."""
        return self.results.steps == self.step and (self.step >= self.steps or self.results.stopped_early)

    @cached_property
    def questions(self) -> list[Question]:
        """The questions of pretraining that the run asks, the one that it is judged by first."""
        if self.config.objective is None or self.origin:
            return []
        method, pair = OBJECTIVES[self.config.objective.predict], PAIR_QUESTIONS[self.config.objective.pair]
        tags = TAGS if self.config.objective.tags else None
        return list(filter(None, dict.fromkeys((method.main_question, method.token_question, pair, tags))))

    @property
    def metric(self) -> str:
        """Name of the held-out measurement that the run is judged by."""
        if self.config.task:
            names = [
                metric_of(self.config.task),
                *self.config.task.task_kind.metrics,
            ]  # of vectors, dev rows tell which
            return next((name for name in names if self.curves.of("eval", name)), names[0])
        return self.questions[0].accuracy if self.questions else "loss"

    @property
    def label(self) -> str:
        return name_in_words(self.metric)

    @cached_property
    def baseline(self) -> dict[str, float]:
        """The measurements of the frequency baseline or, of a task, of the most frequent answer, by name."""
        return self.results.baseline or self._estimated

    @property
    def word_baselines(self) -> dict[str, dict[str, float]]:
        """Of vectors of texts: the measurements of comparisons of words alone, such as BM25, by their names."""
        some = itertools.islice(self.results.baselines.items(), _MOST_BASELINES)
        return {name[:_MOST_NAME]: measured for name, measured in some if measured}

    def best_baseline(self, name: str) -> tuple[str, float] | None:
        """The name and the value of the baseline whose measurement `name` is highest; None if no baseline has this
        measurement."""
        named = self.word_baselines or {"baseline": self.baseline}
        known = [(each, measured[name]) for each, measured in named.items() if name in measured]
        return max(known, key=operator.itemgetter(1), default=None)

    @property
    def baseline_is_estimated(self) -> bool:
        """Whether `baseline` comes from the training text, as the run isn't measured against it before its end."""
        return bool(self.baseline) and not self.results.baseline

    @cached_property
    def _estimated(self) -> dict[str, float]:
        """Accuracy of the most frequent piece of the training text, and the entropy of its pieces."""
        if not self.questions or not self.prepared or self.questions[0] == REPLACED_TOKENS:
            return {}
        try:
            counts = self.prepared[max(self.prepared)].piece_counts + 1
        except BertJaxError:
            return {}
        shares = counts / counts.sum()
        asked = self.questions[0]
        return {asked.accuracy: float(shares.max()), asked.loss: float(-np.sum(shares * np.log(shares)))}

    @property
    def metrics(self) -> dict[str, float]:
        metrics = self.results.metrics.items()
        named = (pair for pair in metrics if _METRIC.fullmatch(pair[0]) and math.isfinite(pair[1]))
        return dict(itertools.islice(named, _MOST_METRICS))

    @cached_property
    def prepared(self) -> dict[int, PreparedData]:
        """The prepared data sets by length; none for a fine-tuned run or an imported model."""
        found = {}
        if not self.is_task and not self.origin:
            for length in self.config.lengths:
                try:
                    if data := PreparedData.unchecked(self.run.data(length)):
                        found[length] = data
                except BertJaxError as error:
                    self.problems.append(f"The data of length {length:,} can't be shown: {error}.")
        return found

    @cached_property
    def shares(self) -> list[SourceShare]:
        """The sources of the training text with their shares; none without prepared data."""
        if self.config.data is None or not self.prepared:
            return []
        try:
            return list(source_shares(self.config, self.prepared))
        except (ValueError, IndexError, ZeroDivisionError):  # the settings have another number of sources
            self.problems.append("The sources of the prepared data are not those in the settings.")
            return []

    @cached_property
    def parts(self) -> list[ModelPart]:
        """The parts of the model with their parameters; none if the size of the vocabulary isn't known yet."""
        model = self.config.model
        if model.vocabulary_size is None and self.prepared:
            first = next(iter(self.prepared.values()))
            try:
                model = model.replace(vocabulary_size=len(first.piece_counts))
            except BertJaxError:
                return []
        if model.vocabulary_size is None:
            return []
        if self.config.task:
            return model_parts(model, task_parameter_shapes(model, HeadShape.of(self.config.task)))
        return model_parts(model, parameter_shapes(model))

    @property
    def seconds(self) -> float:
        """Time from each start of the training to its end or, if it was killed, to its last event; 0 without any."""
        total, began, last = 0.0, None, 0.0
        for event in self.events:
            try:
                now = datetime.datetime.fromisoformat(event.time).timestamp()
            except (ValueError, OverflowError):
                continue
            if event.event in ("begun", "resumed"):
                total += max(last - began, 0.0) if began is not None else 0.0  # it was killed
                began = now
            elif event.event in ("stopped", "failed", "finished") and began is not None:
                total, began = total + max(now - began, 0.0), None
            last = now
        return total

    def held_out(self, name: str) -> float | None:
        """`name` in results.json; without it, that of the newest evaluation. None if that isn't finite."""
        if (value := self.results.logged.get(name)) is not None:
            return value if math.isfinite(value) else None
        curve = self.curves.of("eval", name)
        return curve.last if curve and not self.curves.lost_evaluations else None

    def changed_settings(self) -> Iterator[tuple[str, Any, Any]]:
        """Yields dotted name, value and default of each setting that differs from its default."""
        before = {} if self.is_task else RunConfig().flat()
        for name, value in leaves(self.config.model_dump(mode="json", exclude_defaults=True)):
            yield name, value, before.get(name)

    def _read_results(self, path: Place) -> Results:
        try:
            results, wrong = read_results(path)
        except FileNotFoundError:
            return Results()
        except (OSError, ValueError) as error:
            self.problems.append(f"{path.name} can't be read: {first_line(error)}.")
            return Results()
        if wrong:
            self.problems.append(f"Values in {path.name} that can't be read are left out: {', '.join(wrong)}.")
        return results
