"""bert-jax prepare CONFIG --workdir RUN: makes the vocabulary and the sequences, the first two steps of pretrain."""

import json

from bert_jax.cli.arguments import Command, JsonArguments, RunArguments
from bert_jax.cli.vocab import COMMAND as VOCAB
from bert_jax.config.run import RunConfig


class Prepare(JsonArguments, RunArguments):
    """Arguments of bert-jax prepare."""


COMMAND = Command(
    "prepare",
    Prepare,
    "Make the run's vocabulary and sequences, as pretrain does. --json prints one object last: of each length, rows, "
    "sequences, tokens, fill, pairs_random, units and sources.",
    RunConfig(),
    first=(
        "data.source",
        "data.layout",
        "data.language",
        "data.weights",
        "data.held-out",
        "data.short-sequence-probability",
        "data.dupe-factor",
        "data.packed",
        "vocabulary.kind",
        "vocabulary.size",
        "vocabulary.file",
        "vocabulary.lowercase",
        "objective.pair",
        "phases.0.length",
        "seed",
        "preparation.processes",
    ),
    reads=(*VOCAB.reads, "objective.pair", "phases", "seed", "preparation"),
)


def run(words: list[str]) -> None:
    """Parses the command line, prepares the data and prints statistics of the text."""
    args = COMMAND.parse(words)
    from bert_jax.cli.summary import print_preparation
    from bert_jax.config.objective import num_predictions
    from bert_jax.pretraining.dataset import check_preparation, prepare_lengths
    from bert_jax.pretraining.vocabulary import make_tokenizer
    from bert_jax.run.run_directory import RunDirectory

    config, directory = args.config, RunDirectory(args.workdir)
    check_preparation(config, directory)
    directory.open(config)
    make_tokenizer(config, directory)
    made = prepare_lengths(config, directory)
    budgets = {length: num_predictions(config.objective.masked_share, length) for length in made}
    if args.json:
        found = {str(length): prepared.as_json(config.data, budgets[length]) for length, prepared in made.items()}
        print(json.dumps(found))
    else:
        for length, prepared in made.items():
            print_preparation(prepared, config.data.source, budgets[length])
