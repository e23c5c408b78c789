"""The sequences of a training step as the model sees them, with the pieces to predict."""

from typing import Any, NamedTuple

import jax
import numpy as np

from bert_jax.config.objective import UnitKind, unit_shares
from bert_jax.config.operation import MeshConfig
from bert_jax.config.prediction import PAIR_QUESTIONS, UNIVERSAL_TAGS
from bert_jax.config.run import RunConfig
from bert_jax.instances.instances import UNTAGGED
from bert_jax.layout import MASKABLE, WORD_START
from bert_jax.model.sharding import make_mesh
from bert_jax.pretraining.masking import Masked, divide_sequences
from bert_jax.pretraining.objective import PretrainingTargets
from bert_jax.pretraining.pretrain import prepared_phase
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.errors import UsageError
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.training.batch import Batch
from bert_jax.training.step import Moment, example_keys


class SeenPiece(NamedTuple):
    """One token of a sequence."""

    piece: str
    """The original piece, as spelled in the vocabulary."""
    input: str
    """The piece in the model's input, as spelled in the vocabulary."""
    text: str
    """The piece in the model's input, without marks of words."""
    answer: str | None
    """The piece to predict, without marks of words; None if the token isn't predicted. If both neighbours are
    predicted, the next piece, a bar and the previous piece. In a sentence of a treebank, the tag of the word."""
    segment: int
    position: int
    """Position in the sequence, from 0."""
    begins_word: bool
    """Whether it is a special piece or the first piece of a word."""


class SeenUnit(NamedTuple):
    """Tokens that are masked together."""

    begin: int
    """Position of the first token in the sequence, from 0."""
    end: int
    """Position after the last token."""
    kind: UnitKind


class SeenSequence(NamedTuple):
    """One sequence of a training batch."""

    record: int
    """Number of the training record; a record is one row."""
    number: int
    """Number of the sequence in its row, from 1."""
    pieces: list[SeenPiece]
    """The tokens without padding."""
    row_length: int
    """Number of tokens of the row, including padding."""
    units: list[SeenUnit]
    """The units from which masking chose, in order; empty if every token is predicted."""
    pair_label: int | None
    """The correct answer about the second segment; None without a question about pairs."""
    second_segment: str | None
    """The correct answer about the second segment in words; None without a question about pairs."""

    @property
    def predicted(self) -> list[int]:
        """Positions of the pieces to predict."""
        return [piece.position for piece in self.pieces if piece.answer is not None]

    def as_json(self) -> dict[str, Any]:
        """The sequence as a JSON object. Lists have an item for each token, except `predicted` and `units`."""
        return {
            "record": self.record,
            "sequence": self.number,
            "pieces": [piece.piece for piece in self.pieces],
            "input": [piece.input for piece in self.pieces],
            "predicted": self.predicted,
            "segments": [piece.segment for piece in self.pieces],
            "positions": [piece.position for piece in self.pieces],
            "units": [list(unit) for unit in self.units],
            "pair_label": self.pair_label,
        }


class TrainingStep(NamedTuple):
    """The batch and targets of one training step, as numpy arrays."""

    config: RunConfig
    tokenizer: Tokenizer
    batch: Batch
    targets: PretrainingTargets
    starts: np.ndarray
    """[B, T]: where the units begin that masking chose from."""
    kinds: list[list[UnitKind]]
    """The kind of unit of each sequence, by row; empty if every token is predicted."""
    records: list[int]
    """The number of each row's training record."""


def seen_sequences(run: RunDirectory, step: int, rows: int) -> list[SeenSequence]:
    """The sequences of the first `rows` rows of training step `step` (from 1). Raises what `training_step` does."""
    seen = training_step(run, step)
    return [
        _sequence(seen, row, number)
        for row in range(min(rows, len(seen.records)))
        for number in range(seen.batch.weight.shape[1])
        if seen.batch.weight[row, number]
    ]


def _sequence(seen: TrainingStep, row: int, number: int) -> SeenSequence:
    """Sequence `number`, from 0, of a row."""
    tokens = jax.tree.map(lambda array: array[row], seen.batch.tokens)
    begin, length = int(tokens.begin[number]), int(tokens.length[number])
    here = slice(begin, begin + length)
    masked: Masked = jax.tree.map(lambda array: array[row], seen.targets.masked)
    used = masked.weights > 0
    vocabulary, text_of = seen.tokenizer.vocabulary.pieces, seen.tokenizer.piece_text
    answers: dict[int, str] = {}
    for place, label in zip((masked.places[used] - begin).tolist(), masked.labels[used].tolist(), strict=True):
        answers[place] = f"{answers[place]}|{text_of(label)}" if place in answers else text_of(label)
    tags = [UNTAGGED] * length if seen.batch.tags is None else seen.batch.tags[row, here].tolist()
    answers |= {place: UNIVERSAL_TAGS[tag] for place, tag in enumerate(tags) if tag != UNTAGGED}
    is_tagged, special = max(tags) != UNTAGGED, (seen.tokenizer.vocabulary.cls_id, seen.tokenizer.vocabulary.sep_id)
    pieces = [
        SeenPiece(
            vocabulary[true_id],
            vocabulary[input_id],
            text_of(input_id),
            answers.get(position),
            segment,
            position,
            tags[position] != UNTAGGED or true_id in special if is_tagged else bool(not unit or unit & WORD_START),
        )
        for position, (true_id, input_id, segment, unit) in enumerate(
            zip(
                *(array[here].tolist() for array in (tokens.ids, masked.tokens.ids, tokens.segment, tokens.units)),
                strict=True,
            )
        )
    ]
    maskable = tokens.units[here] & MASKABLE > 0
    about = PAIR_QUESTIONS[seen.config.objective.pair]
    label = int(seen.batch.pair_label[row, number])
    return SeenSequence(
        record=seen.records[row],
        number=number + 1,
        pieces=pieces,
        row_length=len(tokens.ids),
        units=_units(seen.starts[row, here], maskable, seen.kinds[row][number]) if seen.kinds else [],
        pair_label=label if about else None,
        second_segment=about.second_segment[label] if about and about.second_segment else None,
    )


def _units(starts: np.ndarray, maskable: np.ndarray, kind: UnitKind) -> list[SeenUnit]:
    begins = np.flatnonzero(starts & maskable)
    # A unit ends before the next token that begins another or isn't maskable.
    ends = np.flatnonzero(starts | ~maskable)
    following = np.append(ends, len(starts))[np.searchsorted(ends, begins, side="right")]
    return [SeenUnit(begin, end, kind) for begin, end in zip(begins.tolist(), following.tolist(), strict=True)]


def training_step(run: RunDirectory, step: int) -> TrainingStep:
    """The batch and targets of step `step` (from 1). Raises UsageError if `run` has no data or no such step."""
    config = run.files.pretraining_config
    if not 1 <= step <= config.steps:
        raise UsageError(f"step {step} is none of the run's {config.steps:,}; choose one from 1 to there")
    number = config.phase_of(step)
    phase, steps = config.phases[number], config.steps_of(number)
    mesh = make_mesh(MeshConfig(), jax.local_devices()[:1])  # one device, so that any batch can be divided
    trainer, source, tokenizer = prepared_phase(config, run, number, mesh)
    batch = jax.device_put(source[step - 1 - steps.start])
    keys = example_keys(config.seed, "targets", number, batch.ordinal)
    targets = trainer.objective.targets(batch, keys, Moment.of(number, steps, step - 1))
    units = phase.units or config.objective.units
    starts, kinds = jax.device_get(divide_sequences(batch.tokens, keys, units))
    names = list(unit_shares(units))
    batch, targets = jax.device_get((batch, targets))
    return TrainingStep(
        config,
        tokenizer,
        batch,
        targets,
        starts,
        [[names[kind] for kind in row] for row in kinds.tolist()] if config.objective.chooses_units else [],
        source.record_numbers(step - 1 - steps.start),
    )
