"""A training from its settings to its results: the common base of pretraining and fine-tuning."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from bert_jax.config.training import OperationConfig, TrainingConfig
from bert_jax.model.bert import Parameters
from bert_jax.model.sharding import make_mesh
from bert_jax.run.hosts import first_alone
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.progress import say
from bert_jax.training.devices import keep_compiled_programs
from bert_jax.training.loop import Trained, train
from bert_jax.training.trainer import PhaseWork, Trainer

Config = TypeVar("Config", bound=OperationConfig)


class Job(ABC, Generic[Config]):
    """The training of one run with the settings `config`. `carry_out` calls the methods in the order of definition."""

    def __init__(self, config: Config, run: RunDirectory):
        keep_compiled_programs()
        self.config, self.run, self.mesh = config, run, make_mesh(config.mesh)

    @abstractmethod
    def check(self) -> TrainingConfig:
        """Checks settings and inputs and writes nothing; returns the settings of the run. Raises UsageError."""

    @abstractmethod
    def prepare(self) -> None:
        """Writes tokenizer and data into the open run, unless they are there."""

    @abstractmethod
    def work(self) -> tuple[Trainer, Sequence[PhaseWork]]:
        """The trainer and its phases."""

    @abstractmethod
    def initial(self) -> Parameters | None:
        """The initial parameters of a run without checkpoint; None for random ones."""

    @abstractmethod
    def results(self, trained: Trained) -> dict[str, Any]:
        """The content of results.json."""

    def carry_out(self) -> dict[str, Any]:
        """Runs or resumes the training to its end; returns the results, which are also written to results.json.

        Raises UsageError, RunError or Interrupted; the same call then continues where it stopped.
        """
        config = self.check()
        with first_alone("prepare"):
            self.run.open(config)
            if results := self.run.results(config.steps):
                say(f"{self.run.path} is finished: {results['steps']:,} steps")
                return results
            self.prepare()
        trainer, phases = self.work()
        results = self.results(train(trainer, self.run, phases, self.initial))
        self.run.write_results(results)
        return results
