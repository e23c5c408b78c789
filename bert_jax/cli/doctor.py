"""bert-jax doctor SOURCE...: looks at a sample of a text, and says what it gives a training and what to change."""

from typing import Annotated

from pydantic import Field

from bert_jax.cli.arguments import JsonArguments
from bert_jax.cli.flags import Positional


class Doctor(JsonArguments):
    """Look at a spread sample of a text, in a minute whatever its size: languages, faults, sequences, padding, pieces,
    the time of preparation and training, the approaches for this text, best first, and what to change, as flags of
    bert-jax pretrain.
    """

    LINE = "bert-jax doctor"
    ALIASES = {f"data.{name}": name for name in ("language", "weights", "smoothing")}

    source: Positional[Annotated[tuple[str, ...], Field(min_length=1)]]
    """Files, patterns or other sources of --data.source; @FILE is a TOML file of [[source]] tables."""
    config: str = "base"
    """The training that the text is for: a name from bert-jax configs, a Python file, or a run."""
    models: tuple[str, ...] = ()
    """Models that could be fine-tuned as they are, or adapted to the text before: runs, checkpoints, Hugging Face or
    sentence-transformers directories, or names of models on the hub. Each adds two or three approaches to those from
    scratch."""
    tags: str | None = None
    """A treebank of the language in CoNLL-U, from which a model from scratch could also learn; adds an approach."""
    minutes: Annotated[float, Field(gt=0.0)] | None = None
    """Minutes that a pretraining may take on this machine; the approaches are ordered for this budget, and their
    commands contain it. Without it: ordered for a small budget, up to about an hour of two cores."""
    language: tuple[str, ...] = ()
    """Language of the text, as a code or an English name: one, or one for each source. Without it: the first language
    of the config."""
    weights: tuple[float, ...] = ()
    """The weight of each source, as --data.weights. Without it: by --smoothing."""
    smoothing: float | None = None
    """Exponent of the shares of several sources, as --data.smoothing. Without it: that of the config."""

    def execute(self) -> None:
        from bert_jax.config.fitted import ScratchConfig
        from bert_jax.config.run import RunConfig
        from bert_jax.records.corpus import open_corpus
        from bert_jax.run.config_files import open_config

        config, run = open_config(self.config, RunConfig, opened=self.opened)
        if run:  # the text is for the run's vocabulary
            config = config.replace(init=str(run), vocabulary=config.vocabulary.replace(file=None))
        phases = {f"phases.{number}.languages": None for number in range(len(config.phases))}
        mixed = {
            "data.source": self.source,
            "data.language": self.language or config.data.languages[:1],
            "data.weights": self.weights or None,
            "data.smoothing": config.data.smoothing if self.smoothing is None else self.smoothing,
        }
        config = config.set(mixed | phases)
        open_corpus(config.data)  # refuses an absent text before JAX is imported
        from bert_jax.pretraining.fitting import fitted
        from bert_jax.products.doctor.diagnosis import diagnose, print_diagnosis
        from bert_jax.products.doctor.remedies import changes
        from bert_jax.system.figures import json_line

        follows_text, config = isinstance(config, ScratchConfig), fitted(config, self.opened)
        found = diagnose(config, self.opened, self.models, self.tags, self.minutes)
        advice = list(changes(found, config, follows_text))
        if self.json:
            print(json_line({**dict(found), "changes": advice}))
        else:
            print_diagnosis(found, advice)
