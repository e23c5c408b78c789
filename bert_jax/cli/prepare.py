"""bert-jax prepare CONFIG.py --workdir RUN: the first two steps of pretrain alone."""

from bert_jax.cli.arguments import RunArguments, parse_config
from bert_jax.cli.summary import print_preparation
from bert_jax.pretraining.dataset import check_sources, prepare_lengths
from bert_jax.pretraining.vocabulary import make_tokenizer
from bert_jax.training.run_directory import RunDirectory


def run(arguments: list[str]) -> None:
    """Parses, prepares, prints what was seen."""
    asked = parse_config(
        RunArguments, "prepare", "The run's vocabulary and sequences, as pretrain makes them.", arguments
    )
    config, workdir = asked.config, asked.workdir
    directory = RunDirectory(workdir)
    check_sources(config, directory)
    directory.open(config)
    make_tokenizer(config, directory)
    for prepared in prepare_lengths(config, directory).values():
        print_preparation(prepared, config.data.source)
