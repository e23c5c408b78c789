"""Predicts rows with a fine-tuned model, and measures it on labelled rows."""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Literal

import jax

from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import ExecutionConfig, MeshConfig
from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.contrast import make_objective
from bert_jax.finetuning.dataset import make_task, read_labelled, say_repairs, written_as
from bert_jax.finetuning.objective import Outputs
from bert_jax.finetuning.predicting import measure, predictions
from bert_jax.finetuning.row_reading import RowSet, reading_of_rows
from bert_jax.finetuning.task import Prediction
from bert_jax.model.bert import Parameters
from bert_jax.model.sharding import make_mesh
from bert_jax.records.record import Record, RowFormat
from bert_jax.run.recorded_config import is_elsewhere
from bert_jax.run.results import Results
from bert_jax.system.errors import Setting, UsageError
from bert_jax.system.progress import warn
from bert_jax.system.reading import show
from bert_jax.text.tokenizer import Tokenizer


class Predictor:
    """A fine-tuned model that predicts rows on one device."""

    def __init__(self, task: TaskConfig, config: ModelConfig, params: Parameters, tokenizer: Tokenizer):
        self.task, self._tokenizer = task, tokenizer
        self._task = make_task(task, tokenizer)
        mesh = make_mesh(MeshConfig(), jax.local_devices()[:1])
        self._run = partial(Outputs(make_objective(task, config, ExecutionConfig()), mesh), params)

    def predictions(self, records: Iterable[Record], repairs: Counter[str]) -> Iterator[tuple[Record, Prediction]]:
        """Yields each record with its prediction, in input order and bounded memory. `repairs` counts texts that were
        cut or are empty."""
        return predictions(self._task, records, self._run, repairs)

    def stream(self, records: Iterable[Record]) -> Iterator[Prediction]:
        """Yields the predictions alone; reports at the end how many texts were mended, cut or are empty."""
        repairs = Counter[str]()
        for _, prediction in self.predictions((record.mended(repairs) for record in records), repairs):
            yield prediction
        say_repairs("the rows", repairs)

    def measure(
        self,
        source: str | None = None,
        written: RowFormat | None = None,
        unlabelled: Literal["refuse", "skip"] | None = None,
        rows_hash: str = "",
    ) -> Results:
        """Every metric over the labelled rows of `source`; None means `task.dev`.

        `written` is the format of `source`; None means that `written_as` finds it. `unlabelled` says what happens to
        rows without a label; None means the setting in training, `task.unlabelled`. `rows_hash` is the run's hash of
        its rows, which ends with the hash of the dev rows; a warning says if the rows of `task.dev` have changed since
        training. Raises UsageError for a label that didn't occur in training.
        """
        config = self.task
        if not source and config.dev_source and is_elsewhere(config.dev_source):
            raise UsageError(
                f"{Setting('task.dev', config.dev_in_words)} isn't on this machine, and a run's file may not name a "
                "place elsewhere; give it as source if you trust it"
            )
        if source:
            written = written or written_as(config, source)
            config = config.replace(dev=source, **written.settings)
            if config.dev_share and source != self.task.dev:
                raise UsageError(
                    f"{source} is a share of rows that the model was trained on; give rows of a file or set"
                )
        if unlabelled:
            config = config.replace(unlabelled=unlabelled)
        task = make_task(config, self._tokenizer)
        rows = read_labelled(task)
        if source:
            show([reading_of_rows(task, {"dev": RowSet(source, rows.records)})])
        now = rows.content_hash  # earlier releases wrote only its first half, without the documents of judged texts
        if not source and rows_hash and not rows_hash.endswith((now, now[:16])):
            warn(f"{config.dev_in_words} has other rows now than when the model was trained")
        measured = measure(task, rows, self._run)
        return measured.updated({"task": self.task.name})
