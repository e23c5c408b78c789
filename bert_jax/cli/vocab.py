"""bert-jax vocab CONFIG.py --workdir RUN: the first step of pretrain alone."""

from bert_jax.cli.arguments import RunArguments, parse_config
from bert_jax.pretraining.dataset import check_sources
from bert_jax.pretraining.vocabulary import make_tokenizer
from bert_jax.training.run_directory import RunDirectory


def run(arguments: list[str]) -> None:
    """Parses, makes the tokenizer, says where it is."""
    asked = parse_config(RunArguments, "vocab", "The run's vocabulary, as pretrain makes it.", arguments)
    config, workdir = asked.config, asked.workdir
    directory = RunDirectory(workdir)
    check_sources(config, directory)
    directory.open(config)
    tokenizer = make_tokenizer(config, directory)
    print(f"{len(tokenizer.vocabulary):,} pieces: {directory.tokenizer / 'vocab.txt'}")
