"""Runs of kind `vectors` that no training wrote: they have the encoder of another run or model."""

from typing import Any

import bert_jax
from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import TaskConfig
from bert_jax.config.training import Phase
from bert_jax.run.checkpoint import write_model
from bert_jax.run.recorded_config import write_config
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.bucket import Place


def write_vectors_run(model: Place, path: Place, **of_task: Any) -> RunDirectory:
    """Writes a run at `path` with the encoder of the model at `model`, trained for vectors of texts by its settings.

    `of_task` are settings of the task.
    """
    bert, run = bert_jax.load(model), RunDirectory(path)
    config = FinetuneConfig(task=TaskConfig(name="vectors", kind="vectors", **of_task))
    phase = Phase(
        steps=1, length=min(config.task.max_length, bert.config.max_positions), batch_size=config.task.batch_size
    )
    path.mkdir()
    write_config(run.config_file, config.run_config(bert.config, config.task, "0" * 16, phase))
    run.save_tokenizer(bert.tokenizer)
    encoder = {name: leaf for name, leaf in bert.params["bert"].items() if name != "pooler"}
    write_model(run.checkpoints, {"bert": encoder}, (run.config_file, run.tokenizer_directory))
    return run
