"""bert-jax params CONFIG: prints the parameters of a model, its memory and the FLOPs of its training."""

from bert_jax.cli.arguments import Arguments, dotted, objective_of_config
from bert_jax.config.finetune import AnyRunConfig
from bert_jax.config.run import RunConfig


class Params(Arguments):
    """The model's parameters, FLOPs and memory; of a fine-tuned run with the head of its task."""

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
        "teacher distillation phases",
    )
    config: AnyRunConfig = RunConfig()

    def execute(self) -> None:
        from bert_jax.cli.params_tables import flops_table, memory_lines, parameter_table
        from bert_jax.system.progress import output

        objective = objective_of_config(self.config, self.opened)
        tables = (table(objective, self.config) for table in (parameter_table, memory_lines, flops_table))
        output.print(*tables, sep="\n")
