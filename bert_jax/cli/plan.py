"""bert-jax plan CONFIG --topology v5e:4x4: memory and least time of a run on a TPU slice, without one."""

from bert_jax.cli.arguments import JsonArguments, dotted, objective_of_config
from bert_jax.config.finetune import AnyRunConfig
from bert_jax.config.run import RunConfig


class Plan(JsonArguments):
    """Compile the train step for a TPU slice on this machine's CPU (needs the extra `plan`), and print the memory of a
    chip and the least time of a step; of a fine-tuned run, with random rows of its task. Compiler flags in
    LIBTPU_INIT_ARGS are used.
    """

    LINE = "bert-jax plan"
    SHORT_HELP_SETTINGS = dotted(
        "model: num-layers hidden-size num-heads compute-dtype",
        "vocabulary: size",
        "phases.0: steps length batch-size",
        "mesh: data fsdp tensor",
        "execution: accumulation remat",
    )
    READS = dotted(
        "vocabulary: file size",
        "model objective teacher distillation optimizer phases mesh execution layers-frozen probe",
        "task: batch-size most-negatives pool directions widths",
    )
    config: AnyRunConfig = RunConfig()

    topology: str
    """The TPU slice, like v5e:4x4, v6e:8x8, v4:2x2x1 or v5p:4x4x4, of 1 to 1,024 chips."""
    exact: bool = False
    """Compile with the effort of a real run, which takes twice as long. Without it: with the least effort; the program
    then moves more bytes, 1.7 times as many for BERT-base at 512 tokens."""

    def execute(self) -> None:
        from bert_jax.products.plan.account import account_tables
        from bert_jax.products.plan.plan import slice_account
        from bert_jax.products.plan.topology import parse_topology
        from bert_jax.system.figures import json_line
        from bert_jax.system.progress import output

        topology = parse_topology(self.topology)
        account = slice_account(self.config, objective_of_config(self.config, self.opened), topology, self.exact)
        if self.json:
            print(json_line(account))
        else:
            output.print(*account_tables(topology, account), sep="\n")
