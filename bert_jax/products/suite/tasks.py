"""The kinds of tasks of a suite, a class for each: its settings, the files behind its score, and its measurement.

Methods that measure import what they need themselves, so a suite is read and checked without JAX.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from jaxtyping import Float, Int
from pydantic import ConfigDict, Field

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.objective import Predicted, UnitKind
from bert_jax.config.run import RunConfig
from bert_jax.config.settings import OneOrSeveral, Settings
from bert_jax.inference.pair_files import pair_files, read_pairs
from bert_jax.products.suite.rows import RowSearch, find_rows
from bert_jax.products.suite.suite_tables import SuiteTables, Values, check_known, check_settable, with_settings
from bert_jax.run.config_files import load_config
from bert_jax.system.bucket import Place, place_of
from bert_jax.system.errors import RunError, UsageError
from bert_jax.system.json_file import JsonObject

AND = " and "
"""Between the names of metrics whose mean is a score."""


class RowOutcomes(NamedTuple):
    """What a model answered to each row, by seed, for the comparison of two models."""

    sums: tuple[Float[np.ndarray, "N K"], ...] = ()
    """The `row_sums` of each seed's answers, or the outcomes of minimal pairs; empty if rows aren't compared."""
    files: Int[np.ndarray, " N"] = np.zeros(0, int)
    """The number of each minimal pair's file."""


class SuiteTask(Settings):
    """A task of a suite. A subclass is a kind of task; its fields are the values of a [[tasks]] table of that kind.

    A new kind needs its class, which defines `measure`, `sources` and `texts`, and its place in SUITE_TASKS.
    """

    KEY: ClassVar[str]
    """Name of the value that only tables of this kind have."""
    SCORE: ClassVar[str]
    """The metric that is the score."""
    ROWS: ClassVar[str] = "rows"
    """What a verdict calls the items that a model answers, in the plural."""

    name: str
    """Name in tables."""
    publisher: str | None = None
    """Where the publisher offers the rows."""

    @classmethod
    def usual_name(cls, value: str) -> str:
        """The default name of a task, from the `value` that its table has for KEY."""
        return Path(value).name.partition(".")[0].strip("*_-") or cls.KEY

    @classmethod
    def read(cls, table: Values, search: RowSearch, suite: SuiteTables) -> Self:
        """The task of a table of `suite`, with absolute paths of files. Raises UsageError for wrong values; what isn't
        found is noted in `search`."""
        if other := next((name for name in table if name not in cls.model_fields), None):
            raise UsageError(f"it has {cls.KEY}, and {other} doesn't go with that; leave it out")
        return cls(**table)

    @property
    def sources(self) -> tuple[str, ...]:
        """The files and sets of rows that the score rests on."""
        raise NotImplementedError

    def hashes(self, source_hash: Callable[..., str]) -> list[str]:
        """Content hashes of all that the score rests on."""
        return list(map(source_hash, self.sources))

    @property
    def obstacle(self) -> str:
        """Why the scores of two models can't be compared; empty if they can."""
        return ""

    @property
    def identity(self) -> JsonObject:
        """The values that change what is measured."""
        return self.model_dump(mode="json", exclude={"name", "publisher", "scores"})

    def check(self) -> None:
        """Raises UsageError for rows that can't be read."""

    def lacks(self, heads: Set[str]) -> str:
        """What a model with these heads lacks for this task, as a verb and its object; empty if nothing."""
        return ""

    def seeds(self, recipe: RunConfig | None, seeds: tuple[int, ...]) -> tuple[int, ...]:
        """Which of the suite's `seeds` a model is measured with. `recipe` has the settings of its pretraining; None for
        a trained model, which has the same score for all seeds and is measured with the first."""
        return seeds if recipe else seeds[:1]

    def texts(self) -> Iterator[Sequence[str]]:
        """Yields the texts of each row. They are searched for in the text that the models were pretrained on."""
        raise NotImplementedError

    def measure(self, run: Path) -> JsonObject:
        """A model's measurements by name, and those of the `baseline`. Called in a separate process."""
        raise NotImplementedError

    def tokens(self, causal: bool) -> float | None:
        """Tokens of forward passes that `measure` computes, for a causal model or another; None if not known."""
        return None

    def score_names(self, metrics: JsonObject) -> Sequence[str]:
        """The metrics whose mean is the score."""
        return (self.SCORE,)

    def score(self, metrics: JsonObject) -> tuple[str, float]:
        """Name and value of the score among measurements. Raises UsageError if they lack it."""
        names = self.score_names(metrics)
        if absent := [name for name in names if not isinstance(metrics.get(name), float | int)]:
            there = ", ".join(name for name, value in metrics.items() if isinstance(value, float))
            raise UsageError(f"{self.name} has no {absent[0]}; scores can be {there}")
        return AND.join(names), sum(metrics[name] for name in names) / len(names)

    def scored(self, figures: JsonObject) -> JsonObject:
        """`figures`, which are a measurement on the task or {}. Raises RunError if they have no score, such as one that
        isn't finite: the other measurements go on."""
        try:
            if figures:
                self.score(figures)
        except UsageError as error:
            raise RunError(str(error)) from None
        return figures

    def outcomes(self, measured: Sequence[JsonObject]) -> RowOutcomes:
        """The answers to each row by the model of each seed; `measured` has the measurements of these models."""
        return RowOutcomes()


class MinimalPairs(SuiteTask):
    """Pairs of sentences of which one is acceptable, as in `bert-jax score --pairs`."""

    KEY, SCORE, ROWS = "pairs", "accuracy", "pairs"

    pairs: OneOrSeveral
    """The files, or patterns of them."""

    @classmethod
    def read(cls, table: Values, search: RowSearch, suite: SuiteTables) -> Self:
        task = super().read(table, search, suite)
        return task.replace(pairs=[file for pattern in task.pairs for file in search.files(pattern, several=True)])

    @property
    def sources(self) -> tuple[str, ...]:
        return self.pairs

    def check(self) -> None:
        for name, file in pair_files(self.pairs).items():
            next(read_pairs({name: file}, None, None, Counter()), None)

    def lacks(self, heads: Set[str]) -> str:
        return "" if "masked_lm" in heads else "has no head that predicts tokens"

    def texts(self) -> Iterator[Sequence[str]]:
        for pair in read_pairs(pair_files(self.pairs), None, None, Counter()):
            yield pair.good, pair.bad

    def measure(self, run: Path) -> JsonObject:
        from bert_jax.inference.bert import load
        from bert_jax.inference.minimal_pairs import pair_results

        return pair_results(load(run), pair_files(self.pairs)).content

    def tokens(self, causal: bool) -> float:
        """A model that masks computes a sentence once for each of its tokens."""
        from bert_jax.products.suite.texts import tokens_of_text

        lengths = [tokens_of_text(text) for pair in self.texts() for text in pair]
        return sum(length if causal else length * (length + 2) for length in lengths)

    def outcomes(self, measured: Sequence[JsonObject]) -> RowOutcomes:
        from bert_jax.inference.minimal_pairs import outcome_numbers

        by_file = [[*map(outcome_numbers, each["outcomes"].values())] for each in measured]
        files = np.repeat(np.arange(len(by_file[0])), [*map(len, by_file[0])])
        return RowOutcomes(tuple(np.concatenate(each)[:, None] for each in by_file), files)


class JudgedSearch(SuiteTask):
    """The search of judged texts in BEIR's layout, as in `bert-jax evaluate --data beir:FOLDER`."""

    KEY, SCORE = "beir", "ndcg@10"

    beir: str
    """The folder, and after a # the split; without it, the split test."""

    @classmethod
    def read(cls, table: Values, search: RowSearch, suite: SuiteTables) -> Self:
        task = super().read(table, search, suite)
        return task.replace(beir=search.judged(task.beir, "test"))

    @property
    def sources(self) -> tuple[str, ...]:
        return (f"beir:{self.beir}",)

    def _file(self, name: str) -> Place:
        return place_of(find_rows(name, self.beir.partition("#")[0])[0])

    def texts(self) -> Iterator[Sequence[str]]:
        from bert_jax.finetuning.judged_texts import JudgedTexts

        return ([query] for query in JudgedTexts(f"beir:{self.beir}", "test", Counter()).queries)

    def measure(self, run: Path) -> JsonObject:
        from bert_jax.finetuning.judged_texts import JudgedTexts
        from bert_jax.inference.bert import load
        from bert_jax.inference.search import judged_results

        return judged_results(load(run).embedder, JudgedTexts(f"beir:{self.beir}", "test", Counter())).content

    def tokens(self, causal: bool) -> float | None:
        from bert_jax.products.suite.texts import tokens_of_lines

        return tokens_of_lines(self._file("corpus.jsonl"))


class _FineTuningTable(Settings):
    """A [[tasks]] table with a config. Values without a field here are settings of TaskConfig, in `model_extra`."""

    model_config = ConfigDict(extra="allow")

    config: str
    """A config of `bert-jax finetune`."""
    test: str | None = None
    """Rows that are measured where the suite reports `test`."""
    scores: OneOrSeveral | None = None
    """Metrics whose mean is the task's score. None: the one that chooses the checkpoint."""
    files: Values = {}
    """Settings of TaskConfig, and `test`, for the publisher's files. Used only if the suite is given `data`."""
    changes: Values = Field({}, alias="set")
    """Further settings of the config to change."""


class FineTuning(SuiteTask):
    """Rows on which a config of `bert-jax finetune` trains and measures each model."""

    KEY = "config"

    config: FinetuneConfig
    """The settings of a training without those of the grid, the seed and the model."""
    test: str | None = None
    """The test rows, where the suite reports them."""
    scores: tuple[str, ...] = ()
    """Metrics whose mean is the score. Empty: the one that chooses the checkpoint."""

    @classmethod
    def usual_name(cls, value: str) -> str:
        return value.removesuffix(".py").rpartition("/")[2]

    @classmethod
    def read(cls, table: Values, search: RowSearch, suite: SuiteTables) -> Self:
        name, publisher = table["name"], table.get("publisher")
        given = _FineTuningTable(**{key: value for key, value in table.items() if key not in ("name", "publisher")})
        values = {"name": name, "test": given.test} | (given.model_extra or {}) | (given.files if suite.data else {})
        reported = {"test": values.pop("test")} if suite.report == "test" else {}
        values.pop("test", None)
        check_settable(given.changes, "set")
        changes = {f"task.{key}": value for key, value in values.items()} | given.changes
        config = with_settings(load_config(given.config, FinetuneConfig), changes)
        rows = {"train": config.task.train, "dev": config.task.dev}
        for each, source in (rows | reported).items():
            if source is None:
                raise UsageError(f"it has no {each} rows; give {each} = FILE")
            if each != "dev" or not config.task.dev_share:
                rows[each] = search.rows(source, each)
        for score in given.scores or ():
            check_known(score, config.task.task_kind.metrics, "scores", "metric of its kind")
        test = rows.pop("test", None)
        task = config.change(task=rows)
        return cls(name=name, publisher=publisher, config=task, test=test, scores=given.scores or ())

    def trained(self, setting: Mapping[str, Any]) -> FinetuneConfig:
        """The settings of a training with a combination of the grid. Raises UsageError for settings that don't fit."""
        return with_settings(self.config, setting)

    def measured_rows(self, report: str) -> str | None:
        """The rows whose score is reported; None for pairs of texts that are held out of a corpus."""
        return self.test if report == "test" else self.config.task.dev

    @property
    def sources(self) -> tuple[str, ...]:
        rows = self.config.task
        return tuple(filter(None, (rows.train, rows.dev_source, self.test, *rows.other_sets.values())))

    def hashes(self, source_hash: Callable[..., str]) -> list[str]:
        text = self.config.task.source
        return [*super().hashes(source_hash), *([source_hash(text, is_text=True)] if text else ())]

    def check(self) -> None:
        from bert_jax.finetuning.dataset import check_rows

        check_rows(self.config.task, self.test)

    def seeds(self, recipe: RunConfig | None, seeds: tuple[int, ...]) -> tuple[int, ...]:
        return seeds

    def texts(self) -> Iterator[Sequence[str]]:
        from bert_jax.products.suite.texts import row_texts

        for source in filter(None, (self.config.task.dev, self.test)):
            yield from row_texts(self.config.task, source)

    def score_names(self, metrics: JsonObject) -> Sequence[str]:
        return self.scores or (str(metrics.get("metric")),)

    def outcomes(self, measured: Sequence[JsonObject]) -> RowOutcomes:
        from bert_jax.products.suite.significance import SUMMED_METRICS, row_sums  # imports SciPy

        (name, *others) = names = self.score_names(measured[0])
        if counted := [each["tag_counts"] for each in measured if "tag_counts" in each]:
            is_counted = not others and len(counted) == len(measured) and all(name in each for each in counted)
            return RowOutcomes(tuple(np.array(each[name], float) for each in counted) if is_counted else ())
        if any("golds" not in each for each in measured) or not SUMMED_METRICS.issuperset(names):
            return RowOutcomes()
        pairs = ((np.array(each["golds"]), np.array(each["predicted"])) for each in measured)
        classes = self.config.task.task_kind.loss != "squares"
        return RowOutcomes(tuple(row_sums(*pair, classes) for pair in pairs))


class HeldOutTokens(SuiteTask):
    """Prediction of tokens on the first recipe's held-out sequences, as the recipes learned it. It needs no table."""

    scores: tuple[str, ...]
    """The accuracy of the question."""
    units: UnitKind
    """What is masked."""
    predict: Predicted
    """What the measured recipes learned to predict."""

    def seeds(self, recipe: RunConfig | None, seeds: tuple[int, ...]) -> tuple[int, ...]:
        return seeds if recipe and recipe.objective.predict == self.predict else ()

    def score_names(self, metrics: JsonObject) -> Sequence[str]:
        return self.scores

    @property
    def obstacle(self) -> str:
        # The fewer tokens a generator replaces, the more often the answer "not replaced" is right.
        return "each is measured on what its own generator replaced" if self.predict == "replaced" else ""


class HeldOutText(SuiteTask):
    """Prediction of the held-out text by recipes of different vocabularies, each with its own pieces; without a table.

    The score is negative, because larger scores are better.
    """

    SCORE = "bits per character, negative"

    def seeds(self, recipe: RunConfig | None, seeds: tuple[int, ...]) -> tuple[int, ...]:
        return seeds if recipe else ()

    @staticmethod
    def figures(measured: JsonObject) -> JsonObject:
        """The measurements, from those of `held_out_figures`; {} if nothing was held out, or if more than MOST_UNKNOWN
        of the pieces are unknown to the vocabulary. These cost hardly any bits, whatever they stand for."""
        from bert_jax.instances.preparation import MOST_UNKNOWN  # imports the libraries that prepare text

        bits = measured.get("bits_per_character")
        return {} if bits is None or measured["unknown_share"] > MOST_UNKNOWN else {HeldOutText.SCORE: -bits}


SUITE_TASKS: tuple[type[SuiteTask], ...] = (FineTuning, MinimalPairs, JudgedSearch)
"""The kinds of tasks that a [[tasks]] table may be of."""


def rows_in_text(run: Path, tasks: Sequence[SuiteTask]) -> dict[str, dict[str, Any]]:
    """How much of each task's rows occurs in the text that a model was pretrained on: the fields of Contamination, and
    the `share`. Called in a separate process."""
    from bert_jax.products.suite.contamination import contaminations

    found = contaminations(run, {task.name: list(task.texts()) for task in tasks})
    return {name: each._asdict() | {"share": each.share} for name, each in found.items()}
