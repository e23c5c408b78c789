"""bert-jax params CONFIG: prints the parameters of a model, its memory and the FLOPs of its training."""

from bert_jax.cli.arguments import Arguments, dotted
from bert_jax.config.run import RunConfig


class Params(Arguments):
    """The model's parameters, FLOPs and memory."""

    LINE = "bert-jax params"
    SHORT_HELP_SETTINGS = dotted(
        "model: num-layers hidden-size num-heads feedforward-size max-positions vocabulary-size",
        "vocabulary: size file",
        "phases.0: steps length batch-size",
    )
    READS = dotted(
        "model: num-layers hidden-size num-heads feedforward-size max-positions positions num-segments vocabulary-size",
        "model: embedding-size shared-layers discriminator generator-divisor",
        "vocabulary: file size",
        "objective: predict pair masked-share",
        "phases",
    )
    config: RunConfig = RunConfig()


def run(words: list[str]) -> None:
    """Parses the command line and prints parameters, memory and FLOPs."""
    config = Params.parse(words).config
    from bert_jax.cli.params_tables import flops_table, memory_lines, parameter_table
    from bert_jax.pretraining.objective import planned_vocabulary_size
    from bert_jax.system.progress import output

    model = config.model.replace(vocabulary_size=planned_vocabulary_size(config))
    tables = parameter_table(model, config.objective.pair), memory_lines(model, config), flops_table(model, config)
    output.print(*tables, sep="\n")
