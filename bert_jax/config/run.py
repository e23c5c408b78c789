"""Settings of a pretraining run."""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field

from bert_jax.config.data import DataConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.operation import InputConfig, PreparationConfig
from bert_jax.config.phase import Phase
from bert_jax.config.training import TrainingConfig
from bert_jax.config.units import unit_shares
from bert_jax.config.vocabulary import VocabularyConfig


class RunConfig(TrainingConfig):
    """All settings of a pretraining run."""

    IDENTITY: ClassVar[tuple[str, ...]] = (*TrainingConfig.IDENTITY, "vocabulary", "data", "objective")

    vocabulary: VocabularyConfig = VocabularyConfig()
    data: DataConfig = DataConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    phases: Annotated[tuple[Phase, ...], Field(min_length=1)] = (
        Phase(steps=900_000, length=128, batch_size=256),
        Phase(steps=100_000, length=512, batch_size=256),
    )
    """Phases of training, one after the other. The defaults are those of the published run."""
    init: str | None = None
    """Model whose parameters this run starts from: a run, a checkpoint, a Hugging Face directory, or the name of a
    model on the Hugging Face hub. None: random parameters. Its vocabulary is used too, unless `vocabulary.file` names
    one that begins with the same pieces; the row of each added piece is the mean of the rows of the pieces that it
    replaces."""
    input: InputConfig = InputConfig()
    preparation: PreparationConfig = PreparationConfig()

    @property
    def rows(self) -> list[tuple[int, int]]:
        """The rows of each phase: their tokens, and the sequences that one may hold."""
        return [(phase.length, self.data.sequences_a_row(phase.length)) for phase in self.phases]

    def slots(self, length: int) -> int:
        """Prediction slots P of a row of `length` tokens."""
        return self.objective.slots(length, self.data.sequences_a_row(length))

    def conflicts(self) -> Iterator[str]:
        """Yields a message for settings that don't fit each other."""
        yield from super().conflicts()
        if self.objective.pair != "none" and self.model.num_segments < 2:
            yield (
                f"objective.pair={self.objective.pair} asks about two segments and model.num_segments="
                f"{self.model.num_segments}; raise it, or set objective.pair=none"
            )
        for name in ("across_documents", "whole_sentences"):
            if self.objective.pair != "none" and not getattr(self.data, name):
                yield (
                    f"data.{name}=False is about sequences without pairs and objective.pair={self.objective.pair} "
                    "makes pairs of segments; set objective.pair=none, or leave the first out"
                )
        asked = [self.objective.units, *(phase.units for phase in self.phases if phase.units)]
        for kind in (kind for units in asked for kind in unit_shares(units)):
            setting = {"phrase": "phrases", "entity": "entities"}.get(kind)
            if setting and setting not in self.data.lexicons and not self.data.spans:
                yield (
                    f"units={kind}: the data don't mark them; name a file of them with data.{setting}, or a field with "
                    "their places with data.spans"
                )
        for number, phase in enumerate(self.phases):
            if phase.rotary_base and self.model.positions != "rotary":
                yield (
                    f"phases.{number}.rotary_base={phase.rotary_base:g} with model.positions={self.model.positions}, "
                    "which rotates nothing; leave it out, or set model.positions=rotary"
                )
        if self.model.causal != (self.objective.predict == "next"):
            yield (
                f"objective.predict={self.objective.predict} with model.causal={self.model.causal}: next tokens are "
                "predicted by a causal model, masked ones by one that sees both sides; change one of the two"
            )
        if self.model.discriminator != (self.objective.predict == "replaced"):
            yield (
                f"objective.predict={self.objective.predict} with model.discriminator={self.model.discriminator}: "
                "replaced tokens are what a discriminator tells from true ones; change one of the two"
            )
