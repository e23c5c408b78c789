"""How fast BERT-base's pretraining step is beside that of transformers' BertForPreTraining: sequences a second.

    pip install torch transformers
    python tests/benchmarks/pretraining.py --batch-size 8 --length 128

Each side has a model of random parameters, one batch of random ids without padding, a seventh of them predicted,
dropout 0.1 everywhere and AdamW; PyTorch's in float32 and under bfloat16 autocast, ours in float32 and bfloat16. Each
works in a process of its own and they take turns, for the ratios not to be those of what else the machine does.
PyTorch's head is computed at all positions, as transformers does; ours at the predicted ones.
"""

import time
from functools import partial
from typing import Any

import jax
import numpy as np
from turns import at_work, start, take_turns

from bert_jax.cli.arguments import Arguments
from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import MeshConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import Phase
from bert_jax.model.sharding import make_mesh
from bert_jax.pretraining.objective import pretraining_trainer
from bert_jax.system.machine import keep_freed_memory
from bert_jax.training.batch import synthetic_batch
from bert_jax.training.compiled_programs import keep_compiled_programs

VOCABULARY = 30_522
_STEPS = 2
"""Steps of a turn."""
MANUAL = __doc__
"""Text of --help; `__doc__` within a class is that of the class."""


class Options(Arguments):
    """What is measured."""

    LINE = "python tests/benchmarks/pretraining.py"
    TEXT = MANUAL

    batch_size: int = 8
    length: int = 128
    rounds: int = 5
    """Turns of each."""


class Ours:
    """The train step of configs/base.py."""

    def __init__(self, options: Options, dtype: str):
        keep_compiled_programs()
        keep_freed_memory()  # as the command bert-jax does for itself
        phase = Phase(steps=1 << 20, length=options.length, batch_size=options.batch_size)
        config = RunConfig(model=ModelConfig.base(compute_dtype=dtype), phases=(phase,))
        trainer = pretraining_trainer(config, make_mesh(MeshConfig()), VOCABULARY)
        self._batch = jax.device_put(synthetic_batch(options.batch_size, options.length, VOCABULARY))
        self._state, self._step = trainer.initial_state(), trainer.train_step(0)

    def warm_up(self) -> dict[str, Any]:
        """The first steps; tells how long compiling took."""
        begin = time.perf_counter()
        self.train()
        return {"seconds of the first steps, compiling counted": time.perf_counter() - begin}

    def train(self) -> float:
        """Seconds of a turn's steps."""
        begin = time.perf_counter()
        for _ in range(_STEPS):
            self._state, _ = self._step(self._state, self._batch)
        jax.block_until_ready(self._state)
        return time.perf_counter() - begin


class Theirs:
    """transformers' model with PyTorch's AdamW."""

    def __init__(self, options: Options, dtype: str):
        import torch
        from transformers import BertConfig, BertForPreTraining

        torch.manual_seed(0)
        self._torch, self._dtype = torch, dtype
        self._model = BertForPreTraining(BertConfig(vocab_size=VOCABULARY)).train()
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-4, weight_decay=0.01)
        shape = options.batch_size, options.length
        random = np.random.default_rng(0)
        ids = torch.tensor(random.integers(1000, VOCABULARY, shape))
        labels = torch.tensor(np.where(random.random(shape) < 0.15, ids, -100))
        self._batch = {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "labels": labels,
            "next_sentence_label": torch.zeros(options.batch_size, dtype=torch.long),
        }

    def warm_up(self) -> dict[str, Any]:
        """The first steps; nothing to tell."""
        self.train()
        return {}

    def train(self) -> float:
        """Seconds of a turn's steps."""
        begin = time.perf_counter()
        for _ in range(_STEPS):
            with self._torch.autocast("cpu", self._torch.bfloat16, enabled=self._dtype == "bfloat16"):
                loss = self._model(**self._batch).loss
            loss.backward()
            self._torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)
        return time.perf_counter() - begin


SIDES = {
    "bert_jax bfloat16": partial(Ours, dtype="bfloat16"),
    "bert_jax float32": partial(Ours, dtype="float32"),
    "transformers float32": partial(Theirs, dtype="float32"),
    "transformers autocast": partial(Theirs, dtype="bfloat16"),
}


def compare(options: Options) -> None:
    """Takes turns and prints what came out."""
    with at_work(__file__, SIDES, options) as sides:
        take_turns(sides, "train", _STEPS * options.batch_size, options.rounds, "sequences/s")


if __name__ == "__main__":
    start(SIDES, Options, compare)
