"""A phase of training, ready to run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from bert_jax.model.bert import Parameters
from bert_jax.run.measurement import Means
from bert_jax.run.state import TrainState
from bert_jax.training.batch import AnyBatch


class PhaseWork(NamedTuple):
    """One phase, ready to run."""

    name: str
    first: int
    """Steps of the phases before it."""
    steps: int
    batches: Callable[[int], Iterator[AnyBatch]]
    """Batches from the given step of the phase on, on the devices."""
    records: Callable[[int], Sequence[int]]
    """The numbers, in the data set, of the training records in the batch of the given step."""
    told: str
    """A sentence that tells a user how to look at the records of a step; `{step}` stands for it."""
    skips_records: bool
    """Whether a batch leaves out damaged ones, as rows of weight 0."""
    train_step: Callable[[TrainState, AnyBatch], tuple[TrainState, Means]]
    """The jitted step; the state is donated."""
    evaluate: Callable[[Parameters, Callable[[], bool]], dict[str, float] | None] | None
    """Evaluates on held-out documents. Asks after each batch whether to stop, and then returns None."""
    batch_size: int
    flops: Callable[[tuple[int, ...]], float]
    """FLOPs of one step on a batch whose ids have this shape, over all devices."""
    shown: Mapping[str, str]
    """What measurements beside the loss are called in the progress line."""
    score: str = "score"
    """What the score of an evaluation is called."""
    patience: int | None = None
    """The phase ends after this many evaluations in a row without a better score; None: with its last step."""

    def note(self, values: dict[str, float], sequences_per_second: float | None = None) -> str:
        """Formats measurements for the progress line. The score is shown once, under its own name."""
        labels = [("loss", "loss", ".3f"), ("score", self.score, ".4f")]
        for name, label in self.shown.items():
            if not (name == self.score and "score" in values):
                labels.append((name, label, ".3f"))
        labels.append(("learning_rate", "rate", ".2e"))
        parts = [f"{label} {values[name]:{form}}" for name, label, form in labels if name in values]
        if values.get("skipped"):
            parts.append(f"{values['skipped']:.0f} steps skipped")
        if sequences_per_second:
            parts.append(f"{sequences_per_second:,.0f} sequences/s")
        return ", ".join(parts)
