"""bert-jax vocab CONFIG --workdir RUN: makes the vocabulary, the first step of pretrain.

bert-jax vocab --extend VOCAB --words FILE --markers FILE: adds words and markers to a vocabulary.
"""

from bert_jax.cli.arguments import RunArguments, dotted
from bert_jax.config.run import RunConfig


class Vocab(RunArguments):
    """Make the run's vocabulary, as pretrain does. Or add words to an existing vocabulary: bert-jax vocab --extend
    VOCAB --words FILE (bert-jax vocab --extend --help).
    """

    LINE = "bert-jax vocab"
    SHORT_HELP_SETTINGS = dotted(
        "data: source layout weights held-out",
        "vocabulary: kind size file lowercase strip-accents character-coverage sample-megabytes",
    )
    READS = ("data", "vocabulary", "init")
    config: RunConfig = RunConfig()


def run(words: list[str]) -> None:
    """Parses the command line, makes the tokenizer and prints where it is."""
    if any(word.partition("=")[0] in ("--extend", "--words", "--markers") for word in words):
        from bert_jax.cli import vocab_extend

        vocab_extend.run(words)
        return
    args = Vocab.parse(words)
    from bert_jax.text.identification import load_ahead

    load_ahead()  # beside the imports, which take as long
    from bert_jax.pretraining.dataset import check_sources
    from bert_jax.pretraining.vocabulary import make_tokenizer
    from bert_jax.run.run_directory import RunDirectory
    from bert_jax.system.progress import print_line

    config, directory = args.config, RunDirectory(args.workdir)
    inputs = check_sources(config, directory)
    directory.open(config)
    directory.keep(*inputs.readings)
    tokenizer = make_tokenizer(config, directory, inputs.initial)
    print_line(f"{len(tokenizer.vocabulary):,} pieces: {directory.tokenizer / tokenizer.file_name}")
