"""A fine-tuned model used: rows to predictions."""

from collections.abc import Iterable, Iterator

import jax

from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import ExecutionConfig, MeshConfig
from bert_jax.config.task import TaskConfig
from bert_jax.data.task_record import Record
from bert_jax.finetuning.batches import TaskBatch
from bert_jax.finetuning.dataset import make_task
from bert_jax.finetuning.objective import Outputs, TaskObjective
from bert_jax.finetuning.predicting import predictions
from bert_jax.finetuning.task import Prediction
from bert_jax.model.bert import Parameters
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.training.devices import tokens_at_once
from bert_jax.training.sharding import make_mesh


class Predictor:
    """What a task's model says of rows, on one device."""

    def __init__(self, task: TaskConfig, config: ModelConfig, params: Parameters, tokenizer: Tokenizer):
        self.task = task
        self._params, self._pad_id = params, tokenizer.vocabulary.pad_id
        self._task = make_task(task, tokenizer)
        mesh = make_mesh(MeshConfig(), jax.local_devices()[:1])
        self._outputs = Outputs(TaskObjective(task, config, ExecutionConfig()), mesh)

    def predictions(self, records: Iterable[Record]) -> Iterator[tuple[Record, Prediction]]:
        """Each record with what is said of it, in their order; memory doesn't grow with their number."""

        def run(batch: TaskBatch) -> jax.Array:
            return self._outputs(self._params, batch)

        return predictions(self._task, records, run, pad_id=self._pad_id, tokens=tokens_at_once())
