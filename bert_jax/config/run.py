"""Everything that one pretraining run is."""

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from bert_jax.config.data import DataConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.operation import InputConfig, PreparationConfig
from bert_jax.config.phase import Phase
from bert_jax.config.training import Seed, TrainingConfig
from bert_jax.config.vocabulary import VocabularyConfig


class RunConfig(TrainingConfig):
    """A run: what makes it what it is, and how it is carried out."""

    IDENTITY: ClassVar[tuple[str, ...]] = (*TrainingConfig.IDENTITY, "vocabulary", "data", "objective")

    vocabulary: VocabularyConfig = VocabularyConfig()
    data: DataConfig = DataConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    phases: Annotated[tuple[Phase, ...], Field(min_length=1)] = (
        Phase(steps=900_000, length=128, batch_size=256),
        Phase(steps=100_000, length=512, batch_size=256),
    )
    """Stretches of training, one after the other. The defaults are the published run's."""
    init: str | None = None
    """A run, one of its checkpoints, a Hugging Face directory or, by its name, a model of the Hugging Face hub, whose
    parameters this run starts from; None starts at random. Its vocabulary comes with it, unless `vocabulary.file` names
    one that begins with the same pieces: each row that this adds is the mean of the rows of the pieces that it
    replaces."""
    seed: Seed = 0
    """Seed of everything random: initial parameters, instances, order, masks, dropout."""
    input: InputConfig = InputConfig()
    preparation: PreparationConfig = PreparationConfig()

    @model_validator(mode="after")
    def _pairs_have_segments(self) -> "RunConfig":
        if self.objective.pair != "none" and self.model.num_segments < 2:
            raise ValueError(
                f"objective.pair={self.objective.pair} asks about two segments and model.num_segments="
                f"{self.model.num_segments}; raise it, or set objective.pair=none"
            )
        return self

    @model_validator(mode="after")
    def _prediction_is_of_what_the_model_does_not_see(self) -> "RunConfig":
        if self.model.causal != (self.objective.predict == "next"):
            raise ValueError(
                f"objective.predict={self.objective.predict} with model.causal={self.model.causal}: next tokens are "
                "predicted by a causal model, masked ones by one that sees both sides; change one of the two"
            )
        return self
