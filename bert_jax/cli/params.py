"""bert-jax params CONFIG: prints the parameters of a model, its memory and the FLOPs of its training."""

from bert_jax.cli.arguments import Arguments, Command
from bert_jax.config.run import RunConfig


class Params(Arguments):
    """Arguments of bert-jax params."""


COMMAND = Command(
    "params",
    Params,
    "The model's parameters, FLOPs and memory.",
    RunConfig(),
    first=(
        "model.num-layers",
        "model.hidden-size",
        "model.num-heads",
        "model.feedforward-size",
        "model.max-positions",
        "model.vocabulary-size",
        "vocabulary.size",
        "vocabulary.file",
        "phases.0.steps",
        "phases.0.length",
        "phases.0.batch-size",
    ),
    reads=(
        *(f"model.{name}" for name in ("num-layers", "hidden-size", "num-heads", "feedforward-size")),
        *(f"model.{name}" for name in ("max-positions", "positions", "num-segments", "vocabulary-size")),
        *("model.embedding-size", "model.shared-layers", "model.discriminator", "model.generator-divisor"),
        *(
            "vocabulary.file",
            "vocabulary.size",
            "objective.predict",
            "objective.pair",
            "objective.masked-share",
            "phases",
        ),
    ),
)


def run(words: list[str]) -> None:
    """Parses the command line and prints parameters, memory and FLOPs."""
    config = COMMAND.parse(words).config
    from bert_jax.cli.params_tables import flops_table, memory_lines, parameter_table
    from bert_jax.pretraining.objective import planned_vocabulary_size
    from bert_jax.system.progress import output

    model = config.model.replace(vocabulary_size=planned_vocabulary_size(config))
    tables = parameter_table(model, config.objective.pair), memory_lines(model, config), flops_table(model, config)
    output.print(*tables, sep="\n")
