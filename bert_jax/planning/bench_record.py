"""The JSON of a bench: what was measured, where and with which settings."""

import statistics
from typing import Annotated, Final, Literal

from pydantic import computed_field

from bert_jax.config.run import RunConfig
from bert_jax.model.attention import training_forms
from bert_jax.model.encoder import blocks_at_once
from bert_jax.model.linear import compute_dtype
from bert_jax.planning.rates import Limit, Rates
from bert_jax.planning.work import AnyRunConfig, AnyTrainer, rows_of
from bert_jax.run.environment import Scalar
from bert_jax.system import facts
from bert_jax.system.facts import Facts

KIND: Final = "bert-jax bench"
FORMAT = 1


class Timing(Facts):
    """Seconds of repeated measurements of one thing."""

    median: Annotated[facts.BareMilliseconds, "time\nms"]
    low: float
    """The 10th percentile."""
    high: float
    """The 90th percentile."""
    rounds: int
    """How often it was measured."""

    @classmethod
    def of(cls, seconds: list[float]) -> "Timing":
        """Median and deciles of at least two measurements."""
        deciles = statistics.quantiles(seconds, n=10, method="inclusive")
        return cls(median=statistics.median(seconds), low=deciles[0], high=deciles[-1], rounds=len(seconds))

    def __str__(self) -> str:
        spread = f"80% in {self.low * 1e3:,.1f} to {facts.milliseconds(self.high, 1)}"
        return f"{facts.milliseconds(self.median, 1)}; median of {self.rounds}; {spread}"


class Part(Facts):
    """The work, limit and time of a part of a step."""

    name: Annotated[str, "part"]
    flops: Annotated[facts.Gigaflops, "GFLOP"]
    """FLOPs of its matrix products by formula, without recomputation."""
    bytes: Annotated[facts.Megabytes, "MB"]
    """What its compiled program reads from and writes to memory (see `traffic`)."""
    limit: Limit
    time: Timing
    step_share: Annotated[float | None, facts.Unit(facts.percent), "of\nstep"] = None
    """Share of the step's time."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def limit_share(self) -> Annotated[float | None, facts.Unit(facts.percent, unknown="~"), "limit/\ntime"]:
        """The limit over the median time; None for a difference of times that is lost in their noise."""
        return self.limit.seconds / self.time.median if self.time.low > 0 else None


class Bench(Facts):
    """The JSON object of a bench. Figures are over all devices."""

    kind: Literal["bert-jax bench"]
    format: int
    versions: dict[str, str]
    machine: dict[str, Scalar]
    settings: dict[str, Scalar]
    compile_seconds: Annotated[facts.Seconds, "compilation"]
    """Tracing, lowering and compiling the step; short if the program was cached."""
    parts: list[Part]
    """Forward, backward, optimizer and step. Forward and step are measured by themselves; backward and optimizer are
    the differences between forward, forward with backward, and step, round by round."""
    rates: Rates
    transfer: Timing
    """Time to copy a batch to the device; the step doesn't include it."""
    sequences_per_second: Annotated[float, facts.Unit("{:,.4g} /s".format), "sequences"]
    tokens_per_second: Annotated[float, facts.Unit("{:,.0f} /s".format), "tokens"]
    """Without padding."""
    fill: Annotated[facts.Share, "positions filled"]
    """Share of the batch's positions that hold tokens."""
    model_flops_per_step: Annotated[float, facts.Unit(lambda flops: f"{flops / 1e9:,.1f} GFLOP"), "model"]
    """FLOPs of the model in a step, by formula."""
    model_flops_per_second: Annotated[facts.FlopRate, "model rate"]
    """The model's FLOPs over the median time of a step."""
    share_of_matrix_rate: Annotated[facts.Share, "share of that"]
    """Model FLOPs a second over the rate of square products that was measured in this process."""
    mfu: Annotated[facts.Share | None, "MFU"]
    """Model FLOPs utilisation: share of the bfloat16 peak in the data sheet."""
    peak_memory_bytes: Annotated[facts.Memory, "memory"]
    """Peak memory of the fullest device; on a CPU, of this process."""
    input_sequences_per_second: Annotated[facts.PerSecond | None, "input alone"]
    """Rate of reading and batching the run's data; None for random sequences."""

    @property
    def step(self) -> Timing:
        """Time of the whole step."""
        return self.parts[-1].time

    @property
    def matrix_rate(self) -> Annotated[facts.FlopRate, "matrix products"]:
        """Large square matrices, best of several."""
        return self.rates.matrix.measured


def settings(trainer: AnyTrainer) -> dict[str, Scalar]:
    """Settings that the time of a step depends on, by name; those that are chosen by themselves as they were chosen."""
    model, config = trainer.objective.model, trainer.config
    phase, execution = config.phases[0], config.execution
    _, sequences = rows_of(config)[0]
    whole, local = training_forms(execution.attention, model, phase.length, sequences, trainer.mesh)
    attention = whole.name if local is whole else f"{whole.name}, local {local.name}"
    of_model = model.model_dump(exclude={"compute_dtype"}) | {"feedforward_size": model.inner_size}
    return {
        "batch_size": phase.batch_size,
        "length": phase.length,
        **_of_objective(config),
        "compute_dtype": compute_dtype(model).name,
        **{f"model.{name}": value for name, value in of_model.items()},
        "optimizer.name": config.optimizer.name,
        **{f"mesh.{name}": size for name, size in trainer.mesh.shape.items()},
        "execution.accumulation": execution.accumulation,
        "execution.remat": execution.remat,
        "execution.unroll": blocks_at_once(execution, model.num_layers),
        "execution.attention": attention,
    }


def _of_objective(config: AnyRunConfig) -> dict[str, Scalar]:
    """Settings of the objective that a step's time depends on."""
    if isinstance(config, RunConfig):
        return {
            "predictions": config.slots(config.phases[0].length),
            "objective.predict": config.objective.predict,
            "objective.pair": config.objective.pair,
        }
    task = config.task
    return {
        "predictions": 0,
        "task.kind": task.kind,
        "task.batch_size": task.batch_size,
        "task.most_negatives": task.most_negatives,
        "layers_frozen": config.layers_frozen,
        "probe": config.probe,
    }
