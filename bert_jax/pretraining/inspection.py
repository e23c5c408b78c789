"""The sequences of a training step as the model sees them, with the pieces that it is to predict."""

import bisect
import itertools
from typing import Literal, NamedTuple

import jax
import numpy as np

from bert_jax.config.operation import MeshConfig
from bert_jax.layout import WORD_START
from bert_jax.model.sharding import make_mesh
from bert_jax.pretraining.dataset import prepared_for
from bert_jax.pretraining.objective import PretrainingTargets, pretraining_trainer
from bert_jax.pretraining.pretrain import training_source
from bert_jax.run.run_directory import RunDirectory, read_pretraining_config
from bert_jax.system.errors import UsageError
from bert_jax.text.tokenizer import Tokenizer, load_tokenizer
from bert_jax.training.batch import Batch
from bert_jax.training.step import example_keys


class SeenPiece(NamedTuple):
    """One piece of the model's input."""

    text: str
    begins_word: bool
    """Whether it is a special piece or the first piece of a word."""
    truth: str | None
    """The piece to predict at this position; None if nothing is predicted there."""


class SeenSequence(NamedTuple):
    """One row of a training batch."""

    record: int
    """Number of the training record."""
    pieces: list[SeenPiece]
    """Without padding."""
    row_length: int
    """Tokens of the row, with padding."""
    second_segment: Literal["random", "following"] | None
    """Whether the second segment was drawn at random or follows the first; None if there is one segment."""

    @property
    def predicted(self) -> int:
        """The number of pieces to predict."""
        return sum(piece.truth is not None for piece in self.pieces)


def seen_sequences(run: RunDirectory, step: int, rows: int) -> list[SeenSequence]:
    """The first `rows` sequences of training step `step` (from 1).

    Raises UsageError where `run` has no data or no such step.
    """
    tokenizer, batch, targets, records = training_batch(run, step)
    sequences = []
    for row in range(min(rows, len(batch.weight))):
        masked = jax.tree.map(lambda array, row=row: array[row], targets.masked)
        tokens, length = masked.tokens, int(masked.tokens.length.sum())
        used = masked.weights > 0
        truth = dict(zip(masked.places[used].tolist(), masked.labels[used].tolist(), strict=True))
        second: Literal["random", "following"] | None = None
        if tokens.segment.any():
            second = "random" if batch.pair_label[row, 0] else "following"
        pieces = _pieces(tokens.ids[:length], tokens.units, truth, tokenizer)
        sequences.append(SeenSequence(records[row], pieces, len(tokens.ids), second))
    return sequences


def _pieces(ids: np.ndarray, units: np.ndarray, truth: dict[int, int], tokenizer: Tokenizer) -> list[SeenPiece]:
    """`truth`: ids of the pieces to predict by their places."""
    pieces = []
    for at, number in enumerate(ids.tolist()):
        special = not units[at]
        begins = bool(special or units[at] & WORD_START)
        wanted = tokenizer.piece_text(truth[at]) if at in truth else None
        pieces.append(SeenPiece(tokenizer.piece_text(number), begins, wanted))
    return pieces


def training_batch(run: RunDirectory, step: int) -> tuple[Tokenizer, Batch, PretrainingTargets, list[int]]:
    """The batch of training step `step` (from 1) and what the model is asked about it, as numpy arrays, and the number
    of each training record.

    Raises UsageError where `run` has no data or no such step.
    """
    config = read_pretraining_config(run.path)
    ends = list(itertools.accumulate(phase.steps for phase in config.phases))
    if not 1 <= step <= ends[-1]:
        raise UsageError(f"step {step} is none of the run's {ends[-1]:,}; choose one from 1 to there")
    number = bisect.bisect_left(ends, step)
    prepared = prepared_for(config, run, config.phases[number].length)
    tokenizer = load_tokenizer(run.tokenizer)
    trainer = pretraining_trainer(
        config, make_mesh(MeshConfig()), len(tokenizer.vocabulary), tokenizer.vocabulary.mask_id
    )
    source = training_source(trainer, number, prepared)
    of_phase = step - 1 - (ends[number] - config.phases[number].steps)
    batch = jax.device_put(source[of_phase])
    keys = example_keys(config.seed, "targets", number, batch.ordinal)
    return tokenizer, *jax.device_get((batch, trainer.objective.targets(batch, keys))), source.records(of_phase)
