"""bert-jax vocab CONFIG --workdir RUN: makes the vocabulary, the first step of pretrain."""

from bert_jax.cli.arguments import RunArguments, dotted
from bert_jax.cli.vocab_extend import Extend
from bert_jax.config.run import RunConfig


class Vocab(RunArguments):
    """Make the run's vocabulary, as pretrain does. Or add words to an existing vocabulary: bert-jax vocab --extend
    VOCAB --source TEXT, or --words FILE (bert-jax vocab --extend --help).
    """

    LINE = "bert-jax vocab"
    SHORT_HELP_SETTINGS = dotted(
        "data: source layout weights held-out",
        "vocabulary: kind size file lowercase strip-accents character-coverage sample-megabytes",
    )
    READS = ("data", "vocabulary", "init", "teacher")
    VARIANTS = dict.fromkeys(("--extend", "--source", "--count", "--words", "--markers"), Extend)
    config: RunConfig = RunConfig()

    def execute(self) -> None:
        self.check_text(self.config)
        from bert_jax.pretraining.dataset import check_sources, make_vocabulary
        from bert_jax.pretraining.fitting import fitted
        from bert_jax.run.run_directory import RunDirectory
        from bert_jax.system.progress import print_line

        directory = RunDirectory(self.workdir)
        config = fitted(self.config, self.opened, directory)
        inputs = check_sources(config, directory, self.opened)
        directory.open(config)
        tokenizer = make_vocabulary(config, directory, inputs)
        print_line(f"{len(tokenizer.vocabulary):,} pieces: {directory.tokenizer_directory / tokenizer.file_name}")
