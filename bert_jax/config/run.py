"""Settings of a pretraining run."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field

from bert_jax.config.data import DataConfig, VocabularyConfig
from bert_jax.config.distillation import DistillationConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import TAGGED_EVERY, ObjectiveConfig, unit_shares
from bert_jax.config.operation import InputConfig, PreparationConfig
from bert_jax.config.prediction import PREDICTIONS
from bert_jax.config.settings import GIVEN, Requirement
from bert_jax.config.training import Phase, TrainingConfig


def prediction_of(model: ModelConfig) -> str:
    """What pretraining of such a model predicts: the value of objective.predict that goes with it."""
    fitting = (
        predict
        for predict, facts in PREDICTIONS.items()
        if facts.model_setting and getattr(model, facts.model_setting[0]) == facts.model_setting[1]
    )
    return next(fitting, "masked")


def _predictions_of_models() -> Iterator[Requirement]:
    for predict, facts in PREDICTIONS.items():
        if facts.model_setting:
            name, value, reason = facts.model_setting
            yield Requirement("objective.predict", predict, f"model.{name}", value, reason)
            yield Requirement(f"model.{name}", value, "objective.predict", predict, reason)


class RunConfig(TrainingConfig):
    """All settings of a pretraining run."""

    IDENTITY: ClassVar[tuple[str, ...]] = (
        *TrainingConfig.IDENTITY,
        "init_layers",
        "vocabulary",
        "data",
        "objective",
        "teacher",
        "distillation",
    )
    REQUIREMENTS: ClassVar[tuple[Requirement, ...]] = (
        Requirement("model.num_segments", 0, "objective.pair", "none", "there are no two segments to ask about"),
        Requirement("model.num_segments", 1, "objective.pair", "none", "there are no two segments to ask about"),
        Requirement("vocabulary.exchange", True, "init", GIVEN, "there is no model whose vocabulary it replaces"),
        Requirement("init_layers", GIVEN, "init", GIVEN, "there is no model whose layers they are"),
        Requirement("objective.tags", GIVEN, "model.mask_decoder", False, "tags are learned from other vectors"),
        Requirement("teacher", GIVEN, "objective.predict", "masked", "a teacher teaches masked tokens only"),
        Requirement("teacher", GIVEN, "objective.tags", None, "tags and a teacher can't be learned together"),
        Requirement("data.across_documents", False, "objective.pair", "none", "it is for sequences without pairs"),
        Requirement("data.whole_sentences", False, "objective.pair", "none", "it is for sequences without pairs"),
        *_predictions_of_models(),
    )
    TRAINED: ClassVar[str] = "pretrained"
    BASELINE: ClassVar[str] = "by frequency alone"
    FOLLOWS_INIT: ClassVar[bool] = False
    """Whether the model's settings are taken from `init`. If so, the length of `init_layers` isn't compared with
    `model.num_layers`."""
    task: ClassVar[None] = None
    """None: pretraining has no task. Only the settings of a fine-tuned run have one."""

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
    model on the Hugging Face hub. None: random parameters. The run also uses the model's vocabulary, unless
    `vocabulary.file` names an extension of it (the same pieces first, then added ones), or `vocabulary.exchange` puts
    another one in its place."""
    init_layers: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Layers of `init`, numbered from 0, with which the model begins: 0 2 4 6 8 10 of twelve give a model of six.
    `model.num_layers` follows from their number, and a layer may be named more than once. Empty: all layers."""
    teacher: str | None = None
    """Trained model with the same vocabulary from which this model learns; it is larger as a rule. It is a run, a
    checkpoint, a Hugging Face directory, or the name of a model on the hub. Its parameters are in the checkpoints while
    training and never change. Its vocabulary is taken unless `init` or `vocabulary.file` names one. None: no
    teacher."""
    distillation: DistillationConfig = DistillationConfig()
    input: InputConfig = InputConfig()
    preparation: PreparationConfig = PreparationConfig()

    def set(self, values: Mapping[str, Any]) -> Self:
        """A validated copy, as by `Settings.set`. A size or kind of the vocabulary that is set beside `init` asks for
        this vocabulary in place of the model's: it turns `vocabulary.exchange` on unless `values` has that too. The
        tables of the model then have the vocabulary's size, as they have that of a `vocabulary.file`.
        `distillation.settings` is reset if the teacher, or what is learned from it, changes. With `init_layers` the
        model has as many layers unless `values` has another number."""
        names = {name.replace("-", "_") for name in values}
        given = bool(values.get("init", self.init) or self.vocabulary.exchange)
        if given and names & {"vocabulary.size", "vocabulary.kind"} and "vocabulary.exchange" not in names:
            values = {**values, "vocabulary.exchange": True}
        if values.get("vocabulary.file"):  # a recorded size is that of another vocabulary
            values = {"model.vocabulary_size": None, **values}
        if str(values.get("vocabulary.exchange")) == "True":
            values = {"model.vocabulary_size": None, "model.word_rows": None, **values}
        layers = values.get("init_layers", values.get("init-layers"))
        if layers and "model.num_layers" not in names:
            values = {"model.num_layers": len(layers.split() if isinstance(layers, str) else layers), **values}
        if names & {"teacher", "distillation.kind", "distillation.layer"}:
            values = {"distillation.settings": None, **values}
        return super().set(values)

    @property
    def compared_from_start(self) -> tuple[str, ...]:
        return ("evaluation.max_sequences",) if self.init and self.evaluation.watch else ()

    @property
    def vocabulary_model(self) -> str | None:
        """The model whose tokenizer the run takes, or only its cleaning of text beside `vocabulary.file`: `init`,
        unless its vocabulary is exchanged, or `teacher`. None if there is no such model."""
        return (None if self.vocabulary.exchange else self.init) or self.teacher

    @property
    def vocabulary_origin(self) -> str | None:
        """The file or model that the run's pieces come from. None if a vocabulary is trained on the text."""
        return self.vocabulary.file or self.vocabulary_model

    @property
    def rows(self) -> list[tuple[int, int]]:
        """For each phase: the number of tokens in a row, and the largest number of sequences in a row."""
        return [(phase.length, self.data.sequences_a_row(phase.length)) for phase in self.phases]

    def shares(self, phase: int, sizes: Sequence[float]) -> tuple[float, ...] | None:
        """The share of each source in the sequences of a phase. `sizes`: the size of each source. None: every sequence
        is drawn once an epoch."""
        smoothing, languages = self.phases[phase].smoothing, self.phases[phase].languages
        if not self.data.has_shares and (len(self.data.source) == 1 or smoothing is None and languages is None):
            return None
        return self.data.shares(sizes, smoothing, languages)

    def of_source(self, source: str, language: str) -> "RunConfig":
        """The same settings, with `source` in `language` as the only source."""
        phases = {f"phases.{number}.languages": None for number in range(len(self.phases))}
        return self.set({"data.source": source, "data.language": language, "data.weights": None} | phases)

    @property
    def text_share(self) -> float:
        """The share of the training rows that are of `data.source`; the others are of `objective.tags`."""
        return 1 - 1 / TAGGED_EVERY if self.objective.tags else 1.0

    def slots(self, length: int) -> int:
        """Prediction slots P of a row of `length` tokens."""
        return self.objective.slots(length, self.data.sequences_a_row(length))

    def batch_in_words(self, phase: int) -> str:
        """The rows of a step of phase number `phase` and their length, and whether they are packed."""
        return self.phases[phase].batch(self.data.packed)

    def _conflicts(self) -> Iterator[str]:
        yield from super()._conflicts()
        if self.init_layers and not self.FOLLOWS_INIT and len(self.init_layers) != self.model.num_layers:
            yield (
                f"{self._flag('init_layers', ' '.join(map(str, self.init_layers)))} names {len(self.init_layers)} of "
                f"the layers of {self._current('init')}, and {self._current('model.num_layers')}; change one of them"
            )
        asked = {"objective": self.objective} | {f"phases.{number}": phase for number, phase in enumerate(self.phases)}
        for name, kind in ((name, kind) for name, group in asked.items() for kind in unit_shares(group.units or ())):
            setting = {"phrase": "phrases", "entity": "entities"}.get(kind)
            if setting and setting not in self.data.lexicons and not self.data.spans:
                yield (
                    f"{self._flag(f'{name}.units', kind)}: no {setting} are marked in the data; set "
                    f"{self._flag(f'data.{setting}')} to a file of them, or {self._flag('data.spans')} to the field of "
                    "the records that marks them"
                )
        for number, phase in enumerate(self.phases):
            if unknown := sorted({*(phase.languages or ())} - {*self.data.languages}):
                yield (
                    f"{self._flag(f'phases.{number}.languages', ' '.join(unknown))}: no source is in it; "
                    f"{self._flag('data.language')} names {' '.join(dict.fromkeys(self.data.languages))}"
                )
            if phase.rotary_base and self.model.positions != "rotary":
                yield (
                    f"{self._flag(f'phases.{number}.rotary_base', f'{phase.rotary_base:g}')} with "
                    f"{self._current('model.positions')}, which rotates nothing; leave it out, or set "
                    f"{self._flag('model.positions', 'rotary')}"
                )
