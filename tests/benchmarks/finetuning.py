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
from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import MeshConfig
from bert_jax.config.task import TaskConfig
from bert_jax.config.training import Phase
from bert_jax.finetuning.batches import TaskBatches
from bert_jax.finetuning.dataset import read_records, read_training
from bert_jax.finetuning.objective import TaskObjective
from bert_jax.inference.predictor import Predictor
from bert_jax.interchange.export import write_model_directory
from bert_jax.model.bert import init
from bert_jax.model.sharding import batch_sharding, make_mesh, on_first_device, placed
from bert_jax.run.opened_models import OpenedModels
from bert_jax.run.trained_model import TrainedModel
from bert_jax.system.bucket import place_of
from bert_jax.system.machine import keep_freed_memory
from bert_jax.training.batch import read_ahead
from bert_jax.training.compiled_programs import keep_compiled_programs
from bert_jax.training.devices import compiling_tokens
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


class Ours:
    """Fine-tuning's own loop and predictor."""

    def __init__(self, options: Options):
        keep_compiled_programs()
        keep_freed_memory()  # as the command bert-jax does for itself
        self._steps = options.steps
        task = TaskConfig(name="rows", kind="class", train=options.train, dev=options.dev, max_length=LENGTH)
        config = FinetuneConfig(task=task, init=options.init, compute_dtype=options.dtype)
        started = TrainedModel.open(place_of(options.init))
        tokenizer = started.tokenizer
        learned = read_training(task, tokenizer)
        self._records = read_records(task, options.dev, "dev", Counter())
        compiling, pad_id = compiling_tokens(started.config), tokenizer.vocabulary.pad_id
        self._source = TaskBatches(learned.examples, learned.task.config, 0, pad_id, compiling=compiling)
        rows, length, _ = self._source.shape
        phase = Phase(steps=len(self._source), length=length, batch_size=rows)
        planned = config.run_config(started.config, learned.task.config, "", phase)
        mesh = make_mesh(MeshConfig())
        trainer = Trainer(planned, mesh, TaskObjective(planned.task, planned.model, planned.execution))
        params = started.read(on_first_device(started.shapes))
        self._state = trainer.initial_state({"bert": params["bert"]})
        params = jax.tree.map(jax.numpy.copy, self._state.params)
        self._predictor = Predictor(planned.task, planned.model, params, tokenizer)
        self._train_step, self._rows = trainer.train_step(0), batch_sharding(mesh)

    def warm_up(self) -> dict[str, Any]:
        """Compiles all shapes; tells how many there are, the seconds, and the share of padding in an epoch."""
        by_length, tokens, all_tokens = {}, 0, 0
        for number in range(len(self._source) // 3):
            batch = self._source[number]
            by_length.setdefault(batch.tokens.ids.shape, batch)
            tokens, all_tokens = tokens + int(batch.tokens.length.sum()), all_tokens + batch.tokens.ids.size
        begin = time.perf_counter()
        for batch in by_length.values():
            self._step(batch)
        jax.block_until_ready(self._state.step)
        compiled = time.perf_counter()
        self.predict()
        self._batches = read_ahead(self._source)
        self._train(3)
        return {
            "shapes": sorted(by_length),
            "padding": 1 - tokens / all_tokens,
            "seconds to compile training": compiled - begin,
            "seconds to compile prediction": time.perf_counter() - compiled,
        }

    def train(self) -> float:
        """Seconds of a turn's steps."""
        return self._train(self._steps)

    def _train(self, steps: int) -> float:
        begin = time.perf_counter()
        for _ in range(steps):
            self._step(next(self._batches))
        jax.block_until_ready(self._state.step)
        return time.perf_counter() - begin

    def predict(self) -> float:
        """Seconds for all dev rows."""
        begin = time.perf_counter()
        said = list(self._predictor.predictions(self._records, Counter()))
        assert len(said) == len(self._records)
        return time.perf_counter() - begin

    def _step(self, batch: Any) -> None:
        self._state, _ = self._train_step(self._state, placed(batch, self._rows, len(batch.weight)))


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
    if sys.argv[1:2] == [WORK]:
        work(SIDES, Options)
    else:
        compare(Options.parse(sys.argv[1:]))
