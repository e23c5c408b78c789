"""How fast vectors of texts are trained, beside sentence-transformers: texts a second and their ratio.

    pip install sentence-transformers datasets accelerate
    python tests/benchmarks/vectors.py --init RUN --train pairs.jsonl

Both start from the encoder of RUN, which is exported from here, and learn from the same pairs (columns `query` and
`positive`) in batches of the same size, each query against all positives of its batch with temperature 0.05:
MultipleNegativesRankingLoss there. Each works in a process of its own and they take turns, so that the ratio holds
beside whatever else the machine does. Compiling is not counted.
"""

import os
import tempfile
from collections import Counter
from typing import Any, Literal

from finetuning import Steps
from turns import at_work, exported, start, take_turns

from bert_jax.cli.arguments import Arguments
from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.dataset import read_records

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


class Ours(Steps):
    """Fine-tuning's own step and batches."""

    def __init__(self, options: Options):
        config = FinetuneConfig(task=options.task, init=options.init, compute_dtype=options.dtype)
        super().__init__(config, options.steps)


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
    with exported(options.init) as model, at_work(__file__, SIDES, options.model_copy(update={"init": model})) as sides:
        take_turns(sides, "train", 2 * options.steps * options.batch_size, options.rounds, "texts/s")


if __name__ == "__main__":
    start(SIDES, Options, compare)
