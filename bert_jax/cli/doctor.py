"""bert-jax doctor SOURCE: looks at a sample of a text, and says what it gives a training and what to change."""

from bert_jax.cli.arguments import JsonArguments
from bert_jax.cli.flags import Positional


class Doctor(JsonArguments):
    """Look at a spread sample of a text, in a minute whatever its size: languages, faults, sequences, padding, pieces,
    the time of preparation and training, and what to change, as flags of bert-jax pretrain.
    """

    LINE = "bert-jax doctor"
    FLAG_OF_SETTING = {"data.source": "SOURCE", "data.language": "--language"}

    source: Positional[str]
    """A file, a pattern or any source of --data.source."""
    config: str = "base"
    """The training that the text is for: a name from bert-jax configs, a Python file, or a run."""
    language: str | None = None
    """Language that the text is in, as a code or an English name. Without it: the first language of the config."""

    def execute(self) -> None:
        """Looks at the text and prints tables, or one JSON object."""
        from bert_jax.cli.config_files import load_config, run_given_as_config
        from bert_jax.config.run import RunConfig
        from bert_jax.doctor.diagnosis import diagnose, print_diagnosis
        from bert_jax.doctor.remedies import changes
        from bert_jax.system.facts import json_line

        config = load_config(self.config, RunConfig)
        if run := run_given_as_config(self.config, RunConfig):  # whose vocabulary the text is for
            config = config.replace(init=str(run), vocabulary=config.vocabulary.replace(file=None))
        config = config.of_source(self.source, self.language or config.data.languages[0])
        found = diagnose(config)
        advice = list(changes(found, config))
        if self.json:
            print(json_line({**dict(found), "changes": advice}))
        else:
            print_diagnosis(found, advice)
