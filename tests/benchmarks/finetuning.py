"""How fast a model is fine-tuned and used, beside transformers' Trainer: rows a second and their ratio.

    pip install torch transformers accelerate
    python tests/benchmarks/finetuning.py --init RUN --train sst2/train.tsv --dev sst2/dev.tsv

Both have the same model of 6 layers and width 384 with random parameters (of RUN only the tokenizer is taken), which
is exported from here; the same rows (columns `sentence` and `label`) of 64 pieces at most; batches of 32, dropout
0.1. Trainer is at its best: it groups rows by length (`--no-grouped`: its default, random batches), and its
DataCollatorWithPadding pads each batch to its longest row. Each works in a process of its own and they take turns, for
the ratio not to be that of what else the machine does. Compiling is counted apart, of an empty cache unless
JAX_COMPILATION_CACHE_DIR names another. Tokenizing is within our time of predicting and not within Trainer's.
"""

import itertools
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import jax
from turns import at_work, start, take_turns

from bert_jax.cli.arguments import Arguments
from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.contrast import objective_of
from bert_jax.finetuning.dataset import read_records
from bert_jax.finetuning.finetune import plan_finetuning
from bert_jax.inference.predictor import Predictor
from bert_jax.interchange.export import write_model_directory
from bert_jax.model.bert import init
from bert_jax.model.sharding import batch_sharding, on_first_device, placed
from bert_jax.run.opened_models import OpenedModels
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.bucket import place_of
from bert_jax.system.machine import keep_freed_memory
from bert_jax.training.batch import read_ahead
from bert_jax.training.compiled_programs import keep_compiled_programs
from bert_jax.training.trainer import Trainer

BATCH, LENGTH = 32, 64
MANUAL = __doc__
"""Text of --help; `__doc__` within a class is that of the class."""


class Options(Arguments):
    """What is measured."""

    LINE = "python tests/benchmarks/finetuning.py"
    TEXT = MANUAL

    init: str
    """A run whose tokenizer is taken; to the sides, the model that both read."""
    train: str
    """Rows to learn from."""
    dev: str
    """Rows to predict."""
    steps: int = 40
    """Training steps of each turn."""
    rounds: int = 5
    """Turns of each; three times as many of predicting, which is short."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the matrix products; of Trainer's by autocast."""
    grouped: bool = True
    """Whether Trainer's batches have rows of similar length."""


class Steps:
    """Fine-tuning's own steps and batches."""

    def __init__(self, config: FinetuneConfig, steps: int):
        keep_compiled_programs()
        keep_freed_memory()  # as the command bert-jax does for itself
        self._steps = steps
        self.plan = plan_finetuning(config, RunDirectory(place_of(config.init) / "run"))
        trainer = Trainer(self.plan.config, self.plan.mesh, objective_of(self.plan.config))
        params = self.plan.started.read(on_first_device(self.plan.started.shapes))["bert"]
        if config.task.makes_vectors:
            params.pop("pooler", None)
        self.state = trainer.initial_state({"bert": params})
        self._train_step, self._rows = trainer.train_step(0), batch_sharding(self.plan.mesh)

    def warm_up(self) -> dict[str, Any]:
        """Compiles all shapes; tells how many there are, the seconds, and the share of padding in an epoch."""
        source, by_shape, tokens, all_tokens = self.plan.batches, {}, 0, 0
        for number in range(max(len(source) // round(self.plan.config.task.epochs), 1)):
            batch = source[number]
            by_shape.setdefault(batch.tokens.ids.shape, batch)
            tokens, all_tokens = tokens + int(batch.tokens.length.sum()), all_tokens + batch.tokens.ids.size
        seconds = self._seconds_of(by_shape.values())
        self._batches = read_ahead(source)
        self._seconds_of(itertools.islice(self._batches, 3))
        return {
            "shapes": sorted(by_shape),
            "padding": 1 - tokens / all_tokens,
            "seconds to compile training": seconds,
        }

    def train(self) -> float:
        """Seconds of a turn's steps."""
        return self._seconds_of(itertools.islice(self._batches, self._steps))

    def _seconds_of(self, batches: Iterable[Any]) -> float:
        begin = time.perf_counter()
        for batch in batches:
            self.state, _ = self._train_step(self.state, placed(batch, self._rows, len(batch.weight)))
        jax.block_until_ready(self.state.step)
        return time.perf_counter() - begin


class Ours(Steps):
    """Fine-tuning's own loop and predictor."""

    def __init__(self, options: Options):
        task = TaskConfig(name="rows", kind="class", train=options.train, dev=options.dev, max_length=LENGTH)
        super().__init__(FinetuneConfig(task=task, init=options.init, compute_dtype=options.dtype), options.steps)
        self._records = read_records(task, options.dev, "dev", Counter())
        params, planned = jax.tree.map(jax.numpy.copy, self.state.params), self.plan.config
        self._predictor = Predictor(planned.task, planned.model, params, self.plan.started.tokenizer)

    def warm_up(self) -> dict[str, Any]:
        """Compiles all shapes of training, and those of prediction."""
        told = super().warm_up()
        return told | {"seconds to compile prediction": self.predict()}

    def predict(self) -> float:
        """Seconds for all dev rows."""
        begin = time.perf_counter()
        said = list(self._predictor.predictions(self._records, Counter()))
        assert len(said) == len(self._records)
        return time.perf_counter() - begin


class Theirs:
    """transformers' Trainer."""

    def __init__(self, options: Options):
        import transformers

        self._transformers, self._options = transformers, options
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(options.init)
        self._model = transformers.AutoModelForSequenceClassification.from_pretrained(options.init, num_labels=2)
        self._train, self._dev = self._encoded(options.train), self._encoded(options.dev)
        self._turn = 0

    def _encoded(self, path: str) -> list[dict[str, Any]]:
        task = TaskConfig(name="rows", kind="class", train=path)
        records = [record.values for record in read_records(task, path, "train", Counter())]
        read = self._tokenizer([row["sentence"] for row in records], truncation=True, max_length=LENGTH)
        return [
            {name: read[name][number] for name in read} | {"label": int(row["label"])}
            for number, row in enumerate(records)
        ]

    def warm_up(self) -> dict[str, Any]:
        """The first steps; nothing to tell."""
        self._trainer(3).train(), self.predict()
        return {}

    def train(self) -> float:
        """Seconds of a turn's steps, by its own clock."""
        self._turn += 1
        return self._trainer(self._options.steps).train().metrics["train_runtime"]

    def train_an_epoch(self) -> None:
        """Trains on each row once."""
        self._trainer(-(-len(self._train) // BATCH)).train()

    def predict(self) -> float:
        """Seconds for all dev rows, by its own clock."""
        return self._trainer(1).predict(self._dev).metrics["test_runtime"]

    def _trainer(self, steps: int) -> Any:
        settings = self._transformers.TrainingArguments(
            output_dir=os.path.join(tempfile.gettempdir(), "trainer"),
            max_steps=steps,
            per_device_train_batch_size=BATCH,
            per_device_eval_batch_size=BATCH,
            learning_rate=5e-5,
            seed=self._turn,
            use_cpu=True,
            bf16=self._options.dtype == "bfloat16",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            train_sampling_strategy="group_by_length" if self._options.grouped else "random",
        )
        return self._transformers.Trainer(
            self._model,
            settings,
            data_collator=self._transformers.DataCollatorWithPadding(self._tokenizer),
            train_dataset=self._train,
        )


SIDES = {"ours": Ours, "theirs": Theirs}


def write_model(options: Options, directory: Path) -> None:
    """A model of random parameters, as both read it."""
    tokenizer = OpenedModels().tokenizer(options.init)
    config = ModelConfig(
        num_layers=6, hidden_size=384, num_heads=6, max_positions=128, vocabulary_size=len(tokenizer.vocabulary)
    )
    write_model_directory(directory, config, jax.device_get(init(config, jax.random.key(0))), tokenizer)


def compare(options: Options) -> None:
    """Takes turns and prints what came out."""
    dev = len(read_records(TaskConfig(name="rows", kind="class"), options.dev, "dev", Counter()))
    with tempfile.TemporaryDirectory() as folder:
        write_model(options, model := Path(folder) / "model")
        compiled = {"JAX_COMPILATION_CACHE_DIR": str(model.parent / "compiled")}
        with at_work(__file__, SIDES, options.model_copy(update={"init": str(model)}), compiled) as sides:
            take_turns(sides, "train", options.steps * BATCH, options.rounds)
            take_turns(sides, "predict", dev, 3 * options.rounds)


if __name__ == "__main__":
    start(SIDES, Options, compare)
