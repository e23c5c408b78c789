"""Models of every kind of task, with random parameters and no training."""

from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pytest

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.task import SpanConfig, TaskConfig
from bert_jax.config.training import Phase
from bert_jax.model.bert import Parameters
from bert_jax.model.task import HeadShape, task_parameter_shapes
from bert_jax.run.checkpoint import write_model
from bert_jax.run.recorded_config import write_config
from bert_jax.run.run_directory import RunDirectory
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.vocabulary import SPECIAL_PIECES, Vocabulary
from bert_jax.text.wordpiece import WordPieceTokenizer

CLASS = TaskConfig(name="film", kind="class", labels=("bad", "so so", "good"), max_length=16)
ANSWERS = SpanConfig(stride=4, question_length=4)
TASKS = {
    "class": CLASS,
    "labels": CLASS.replace(kind="labels"),
    "number": CLASS.replace(kind="number", labels=None),
    "tags": CLASS.replace(kind="tags", labels=("B-X", "I-X", "O", "B-Y")),
    "choice": CLASS.replace(kind="choice", labels=None, choices=("one", "two", "three")),
    "span": CLASS.replace(kind="span", labels=None, texts=("question", "context"), span=ANSWERS),
    "marked": CLASS.replace(kind="marked", marks=("begin", "end")),
    "vectors": CLASS.replace(kind="vectors", labels=None, texts=("a", "b"), pool="max"),
}


class FineTuned(NamedTuple):
    """A model with the head of a task."""

    task: TaskConfig
    config: ModelConfig
    params: Parameters
    tokenizer: Tokenizer


@pytest.fixture
def transformers(monkeypatch):
    """The library, which asks no hub."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return pytest.importorskip("transformers")


@pytest.fixture
def fine_tuned():
    """A model of a kind of task, all its parameters random: biases, and LayerNorm's scales round 1."""

    def make(kind: str, tokenizer: Tokenizer | None = None, **settings) -> FineTuned:
        pieces = [*SPECIAL_PIECES, *"abcdefghij"]
        if settings.get("model_type") == "mpnet":  # whose padding is piece 1 in all its vocabularies
            pieces[:2] = pieces[1::-1]
        tokenizer = tokenizer or WordPieceTokenizer(Vocabulary(pieces))
        sizes = {"num_layers": 2, "hidden_size": 16, "num_heads": 2, "max_positions": 24}
        config = ModelConfig(**sizes | settings, vocabulary_size=len(tokenizer.vocabulary))
        shapes, rng = task_parameter_shapes(config, HeadShape.of(TASKS[kind])), np.random.default_rng(3)
        params = jax.tree_util.tree_map_with_path(
            lambda path, leaf: rng.normal(path[-1].key == "scale", 0.2, leaf.shape).astype(np.float32), shapes
        )
        return FineTuned(TASKS[kind], config, params, tokenizer.with_class_token(config.class_token))

    return make


@pytest.fixture
def write_run():
    """Writes a FineTuned model as a run of one checkpoint, at step 0."""

    def write(model: FineTuned, path: Path) -> None:
        place = RunDirectory(path)
        place.path.mkdir()
        phase = Phase(steps=1, length=model.task.max_length, batch_size=2)
        write_config(place.config_file, FinetuneConfig(task=model.task).run_config(model.config, model.task, "", phase))
        model.tokenizer.save(place.tokenizer_directory)
        write_model(place.checkpoints, model.params, (place.config_file, place.tokenizer_directory))

    return write
