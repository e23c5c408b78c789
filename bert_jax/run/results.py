"""The results of a run in results.json: trainings and evaluations write them, reports, cards and commands read them."""

import math
from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, JsonValue, ValidationError

from bert_jax.system.bucket import Place
from bert_jax.system.json_file import JsonObject, read_object


def _finite(value: object) -> object:
    """The finite numbers of an object. Any other value is returned unchanged, and validation then refuses it."""
    if not isinstance(value, Mapping):
        return value
    return {name: each for name, each in value.items() if isinstance(each, float) and math.isfinite(each)}


Scores = Annotated[dict[str, float], BeforeValidator(_finite)]
"""Finite measurements by name."""
Confusion = dict[str, dict[str, int]]
"""For each true class, how often each class is predicted. The class with the most errors comes first; pairs that don't
occur are left out."""


_MOST_LINES = 12
"""Maximum measurements that `repr` writes."""


class Mistake(BaseModel):
    """One of the worst errors of a task."""

    text: str | None = None
    right: str | None = None
    predicted: str | None = None
    probability: float | None = None
    """The probability that the model gives its prediction; None if the model gives none."""


class ClassFigures(BaseModel):
    """How well one class, label or type of entity was predicted. Ratios of 0 to 0 are 0."""

    label: str
    rows: int
    """Number of times that it is the right answer."""
    predicted: int
    precision: float
    recall: float
    f1: float


class Results(BaseModel):
    """The results of a training or an evaluation, as in results.json.

    Besides the fields there is a number for each measurement: `accuracy`, `mlm_loss`, `64/ndcg@10` of vectors cut to a
    width, `hi/mlm_loss` of a language. Only what was set is written.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    task: str | None = None
    """Name of the task; "pretraining" for a pretraining."""
    steps: int | None = None
    planned_steps: int | None = None
    stopped_early: bool = False
    """Whether the training ended before its last step: the score got no better, or `on_measured` ended it."""
    best_step: int | None = None
    """Step of the measured checkpoint; None: the last one."""
    averaged_steps: list[int] = []
    """The saved steps whose mean was measured; empty for one checkpoint."""
    seeds: list[int] = []
    skipped_steps: int = 0
    """Number of steps whose gradient was not finite."""
    skipped_records: int = 0
    """How many draws of damaged training records were left out; a record counts each time that it is drawn."""
    training_rows: int | None = None
    dev_rows: int | None = None
    held_out_sequences: int | None = None
    metric: str | None = None
    """Name of the measurement that the run is judged by; None if nothing was measured."""
    score: float | None = None
    """The value of `metric`."""
    loss: float | None = None
    baseline: Scores | None = None
    """The measurements of a prediction without a model: by frequencies, the most frequent answer, the mean, or BM25."""
    baselines: dict[str, Scores] = {}
    """For vectors of texts: the measurements of methods that compare words alone, by the method's name."""
    beats_baseline: bool = True
    """Whether a pretraining's loss is lower than the baseline's."""
    errors: list[Mistake] | None = None
    """The worst errors of a task, the worst first."""
    constant_prediction: JsonValue = None
    """The answer that the model gives for every row; None if its answers differ."""
    classes: list[ClassFigures] = []
    """The figures of each class, the worst first."""
    unlearned: str = ""
    """Text about the classes that are never predicted or never right."""
    confusion: Confusion = {}
    layer_weights: list[float] = []
    """With task.mix_layers: the measured checkpoint's weights of the embeddings and of each layer, whose sum is 1."""
    gamma: float | None = None
    """With task.mix_layers: the learned factor of the weighted mean."""
    cut_texts: Scores = {}
    """For vectors of texts: the number of `texts` measured, how many of them were `cut`, and to how many `pieces`."""
    files: Scores = {}
    """For minimal pairs: the accuracy on each file."""
    file_figures: dict[str, dict[str, float]] = {}
    """For minimal pairs, by file: accuracies, the standard error of the first, and how many pairs have a score."""
    method: str | None = None
    """For minimal pairs: how a sentence is scored: token, word or log-likelihood."""
    normalized: bool | None = None
    """For minimal pairs: whether a score is divided by the sentence's number of tokens."""
    remarks: list[str] = []
    """For minimal pairs: remarks on the measurement."""
    groups: dict[str, Scores] = {}
    """For minimal pairs: the accuracy on each group, by the column that has the groups and by its value."""
    started_from: Scores = {}
    """The measurements before the first step, of a run that began with a trained model."""
    measured_on: dict[str, JsonValue] | None = None
    """What the measurements depend on besides the model: measurements with equal values here can be compared."""
    unknown_share: float | None = None
    """The share of pieces of the measured text that are unknown to the vocabulary."""
    run: str | None = None
    """Of several seeds: the run with the best score."""

    def __repr__(self) -> str:
        """The measurements, a line for each, with its baselines. `content` has everything."""
        methods = {"baseline": self.baseline or {}} | self.baselines
        lines = [f"Results: {self.task}" + (f", {self.steps:,} steps" if self.steps else "")]
        for name, value in [*self.metrics.items()][:_MOST_LINES]:
            others = [f"{method} {measured[name]:.4f}" for method, measured in methods.items() if name in measured]
            lines.append(f"{name:<16} {value:8.4f}" + f" ({', '.join(others)})" * bool(others))
        return "\n  ".join(lines)

    __str__ = __repr__

    @property
    def measurements(self) -> dict[str, float | int]:
        """Every measurement and count by name, without the score and the loss."""
        return {name: value for name, value in (self.model_extra or {}).items() if type(value) in (float, int)}

    @property
    def metrics(self) -> dict[str, float]:
        """Every measurement by name, without the score and the loss."""
        return {name: value for name, value in self.measurements.items() if isinstance(value, float)}

    @property
    def logged(self) -> dict[str, float]:
        """The score, the loss and every measurement by name, as the log of an evaluation has them."""
        judged = {"score": self.score, "loss": self.loss}
        return {name: value for name, value in judged.items() if value is not None} | self.metrics

    @property
    def content(self) -> JsonObject:
        """What results.json holds; a number that is not finite is null there."""
        return self.model_dump(exclude_unset=True)

    def updated(self, values: Mapping[str, object]) -> "Results":
        """A validated copy with added or replaced values."""
        return Results.model_validate({**self.content, **values})


def read_results(path: Place) -> tuple[Results, list[str]]:
    """The results in a file, and the names of the values that are left out because this release writes another type.

    Raises OSError if the file can't be read, ValueError if it holds no JSON object.
    """
    content = read_object(path)
    try:
        return Results.model_validate(content), []
    except ValidationError as error:
        wrong = sorted({str(each["loc"][0]) for each in error.errors()})
        return Results.model_validate({name: content[name] for name in content if name not in wrong}), wrong
