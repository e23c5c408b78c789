"""How fast vectors of texts are trained, beside sentence-transformers: texts a second and their ratio.

    pip install sentence-transformers datasets accelerate
    python tests/benchmarks/vectors.py --init RUN --train pairs.jsonl

Both start from the encoder of RUN, which is exported from here, and learn from the same pairs (columns `query` and
`positive`) in batches of the same size, each query against all positives of its batch with temperature 0.05:
MultipleNegativesRankingLoss there. Each works in a process of its own and they take turns, so that the ratio holds
beside whatever else the machine does. Compiling is not counted.
"""

import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import jax
from turns import WORK, at_work, take_turns, work

from bert_jax.cli.arguments import Arguments
from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.contrast import objective_of
from bert_jax.finetuning.dataset import read_records
from bert_jax.finetuning.finetune import plan_finetuning
from bert_jax.interchange.export import write_model_directory
from bert_jax.model.sharding import batch_sharding, on_first_device, placed
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.trained_model import TrainedModel
from bert_jax.system.bucket import place_of
from bert_jax.system.machine import keep_freed_memory
from bert_jax.training.batch import read_ahead
from bert_jax.training.compiled_programs import keep_compiled_programs
from bert_jax.training.trainer import Trainer

MANUAL = __doc__
"""Text of --help; `__doc__` within a class is that of the class."""


class Options(Arguments):
    """What is measured."""

    LINE = "python tests/benchmarks/vectors.py"
    TEXT = MANUAL

    init: str
    """A run; to the sides, its export, which both read."""
    train: str
    """Pairs to learn from."""
    batch_size: int = 64
    """Pairs a step."""
    max_length: int = 128
    """Most pieces of a text."""
    steps: int = 10
    """Training steps of each turn."""
    rounds: int = 3
    """Turns of each."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the matrix products; of theirs by autocast."""

    @property
    def task(self) -> TaskConfig:
        """The pairs and the loss."""
        return TaskConfig(
            **{"name": "pairs", "kind": "vectors", "texts": ("query", "positive"), "label": "score"},
            **{"train": self.train, "batch_size": self.batch_size, "max_length": self.max_length},
            **{"directions": "query", "epochs": 100.0},
        )


class Ours:
    """Fine-tuning's own step and batches."""

    def __init__(self, options: Options):
        keep_compiled_programs()
        keep_freed_memory()  # as the command bert-jax does for itself
        self._steps = options.steps
        config = FinetuneConfig(task=options.task, init=options.init, compute_dtype=options.dtype)
        plan = plan_finetuning(config, RunDirectory(place_of(options.init) / "run"))
        objective = objective_of(plan.config)
        trainer = Trainer(plan.config, plan.mesh, objective)
        params = plan.started.read(on_first_device(plan.started.shapes))
        params["bert"].pop("pooler", None)
        self._state = trainer.initial_state({"bert": params["bert"]})
        self._train_step, self._rows, self._source = trainer.train_step(0), batch_sharding(plan.mesh), plan.batches

    def warm_up(self) -> dict[str, Any]:
        """Compiles every number of rows; returns how many there are and the share of padding in an epoch."""
        by_rows, tokens, all_tokens = {}, 0, 0
        for number in range(max(len(self._source) // 100, 1)):
            batch = self._source[number]
            by_rows.setdefault(len(batch.weight), batch)
            tokens, all_tokens = tokens + int(batch.tokens.length.sum()), all_tokens + batch.tokens.ids.size
        for batch in by_rows.values():
            self._step(batch)
        self._batches = read_ahead(self._source)
        self.train()
        return {"rows": sorted(by_rows), "padding": 1 - tokens / all_tokens}

    def train(self) -> float:
        """Seconds of a turn's steps."""
        begin = time.perf_counter()
        for _ in range(self._steps):
            self._step(next(self._batches))
        jax.block_until_ready(self._state.step)
        return time.perf_counter() - begin

    def _step(self, batch: Any) -> None:
        self._state, _ = self._train_step(self._state, placed(batch, self._rows, len(batch.weight)))


class Theirs:
    """sentence-transformers' trainer."""

    def __init__(self, options: Options):
        import datasets
        import sentence_transformers
        import sentence_transformers.losses

        self._library, self._options, self._turn = sentence_transformers, options, 0
        self._model = sentence_transformers.SentenceTransformer(options.init, device="cpu")
        self._model.max_seq_length = options.max_length
        records = read_records(options.task, options.train, "train", Counter())
        columns = {name: [record.values[name] for record in records] for name in options.task.texts}
        self._rows = datasets.Dataset.from_dict(columns)

    def warm_up(self) -> dict[str, Any]:
        """The first steps; there is nothing to report."""
        self.train()
        return {}

    def train(self) -> float:
        """Seconds of a turn's steps, by the library's own clock."""
        self._turn += 1
        options, library = self._options, self._library
        settings = library.SentenceTransformerTrainingArguments(
            output_dir=os.path.join(tempfile.gettempdir(), "trainer"),
            **{"max_steps": options.steps, "per_device_train_batch_size": options.batch_size, "learning_rate": 2e-5},
            **{"seed": self._turn, "data_seed": self._turn, "use_cpu": True, "bf16": options.dtype == "bfloat16"},
            **{"save_strategy": "no", "report_to": "none", "disable_tqdm": True, "dataloader_drop_last": True},
        )
        loss = library.losses.MultipleNegativesRankingLoss(self._model, scale=20.0)
        trainer = library.SentenceTransformerTrainer(self._model, settings, train_dataset=self._rows, loss=loss)
        return trainer.train().metrics["train_runtime"]


SIDES = {"ours": Ours, "theirs": Theirs}


def compare(options: Options) -> None:
    """Takes turns and prints the rates."""
    with tempfile.TemporaryDirectory() as folder:
        trained, params = TrainedModel.load(place_of(options.init), on_first_device)
        write_model_directory(Path(folder) / "model", trained.config, jax.device_get(params), trained.tokenizer)
        exported = options.model_copy(update={"init": str(Path(folder) / "model")})
        with at_work(__file__, SIDES, exported) as sides:
            take_turns(sides, "train", 2 * options.steps * options.batch_size, options.rounds, "texts/s")


if __name__ == "__main__":
    if sys.argv[1:2] == [WORK]:
        work(SIDES, Options)
    else:
        compare(Options.parse(sys.argv[1:]))
