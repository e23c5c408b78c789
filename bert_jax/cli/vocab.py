"""bert-jax vocab CONFIG --workdir RUN: makes the vocabulary, the first step of pretrain.

bert-jax vocab --extend VOCAB --words FILE --markers FILE: adds words and markers to a vocabulary.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from bert_jax.cli.arguments import Arguments, PlaceArgument, RunArguments, dotted
from bert_jax.config.run import RunConfig
from bert_jax.config.wording import counted
from bert_jax.system.bucket import Place, in_bucket
from bert_jax.system.errors import UsageError

if TYPE_CHECKING:
    from bert_jax.text.tokenizer import Tokenizer


class Extend(Arguments):
    """Add words and markers to a vocabulary: every old piece keeps its id, and those that aren't pieces yet follow."""

    LINE = "bert-jax vocab"

    extend: PlaceArgument
    """A vocab.txt, a sentencepiece .model, a tokenizer.json, a run, or the folder of a tokenizer or published model."""
    words: PlaceArgument | None = None
    """Words to add: a UTF-8 file with one word on each line. They are cleaned as the tokenizer cleans text."""
    markers: PlaceArgument | None = None
    """Markers to add, such as [E11]: a UTF-8 file with one on each line. They are found in text as they are written,
    before it is cleaned and split. A vocabulary with markers is written as a tokenizer.json."""
    output: PlaceArgument | None = None
    """File to write. Without it: VOCAB.extended.txt, .model or .json beside the vocabulary. Needed for that of a run or
    model."""
    lowercase: bool = True
    """Whether a vocab.txt is for lower-cased text. Refused for all others, which contain this setting."""

    def execute(self) -> None:
        from bert_jax.pretraining.vocabulary import existing_tokenizer
        from bert_jax.system.progress import print_line, warn
        from bert_jax.text.extension import extend
        from bert_jax.text.merged_letters import merged_letters
        from bert_jax.text.wordpiece import MANY_CAPITALS, WordPieceTokenizer

        if self.words is None and self.markers is None:
            raise UsageError("vocab needs --words PATH or --markers PATH as well: a file of what to add")
        vocabulary = {"file": str(self.extend), "lowercase": self.lowercase}
        tokenizer, _ = existing_tokenizer(RunConfig().change(vocabulary=vocabulary))
        assert tokenizer is not None  # a file is given
        is_vocab_txt = isinstance(tokenizer, WordPieceTokenizer) and not self.extend.is_dir()
        if "lowercase" in self.model_fields_set and not is_vocab_txt:
            raise UsageError(f"--lowercase has no effect: {self.extend} itself says how text is cleaned; leave it out")
        if self.lowercase and is_vocab_txt and tokenizer.vocabulary.share_of_capitals > MANY_CAPITALS:
            raise UsageError(
                f"{self.extend} has pieces with capitals and words would be lower-cased; add --no-lowercase"
            )
        words = _lines_of(self.words)
        extended = extend(tokenizer, words, [line.strip() for line in _lines_of(self.markers)])
        output = self._checked_output(extended.tokenizer)
        counts = f"{counted(extended.added, 'words added')}, {extended.known_words:,} known already, "
        counts += f"{extended.split:,} left out: they are always split"
        counts += f"; {counted(extended.markers, 'markers added')}" if self.markers else ""
        if not extended.added + extended.markers:
            files = " and ".join(str(path) for path in (self.words, self.markers) if path)
            raise UsageError(f"{files} adds nothing to {self.extend} ({counts}); nothing was written")
        extended.tokenizer.write_vocabulary(output)
        if merged := merged_letters(words, tokenizer.cleaned, most=0.0):
            warn(f"{self.words}: {merged}; they are added as this vocabulary reads text; a cased one may keep them")
        print_line(f"{len(extended.tokenizer.vocabulary):,} pieces ({counts}): {output}")

    def _checked_output(self, tokenizer: "Tokenizer") -> Place:
        """`output` or its default. Raises UsageError if the vocabulary can't be written there."""
        from bert_jax.text.tokenizer import tokenizer_directory

        own = Path(tokenizer.file_name)
        if self.output is None and (self.extend.is_dir() or tokenizer_directory(self.extend.parent)):
            raise UsageError(
                f"{self.extend} belongs to a run or model, whose folder takes no other files; name the file to write, "
                f"such as --output {own.stem}.extended{own.suffix}"
            )
        output = self.output or self.extend.parent / f"{self.extend.stem}.extended{own.suffix}"
        # A vocab.txt may have any suffix except .model and .json, which are read as other kinds of vocabulary.
        if output.suffix != own.suffix and (own.suffix != ".txt" or output.suffix in (".model", ".json")):
            raise UsageError(f"--output {output}: a {tokenizer.kind} vocabulary is written as {own}; name it like that")
        if not in_bucket(output) and not output.parent.is_dir():  # in a bucket there are no directories to be made
            raise UsageError(f"--output {output}: there is no directory {output.parent}; make it first")
        if output.exists():
            raise UsageError(f"{output} exists already; choose another --output, or delete it first")
        return output


def _lines_of(words: Place | None) -> list[str]:
    """The lines of a file of words that aren't empty; none where there is no file."""
    from bert_jax.system.copies import fetched
    from bert_jax.text.vocabulary import read_lines

    if words is None:
        return []
    if in_bucket(words) and not words.is_file():
        raise UsageError(f"no file of words at {words}; give the path of one with a word a line")
    lines = read_lines(fetched(words), "file of words", "one with a word a line")
    return [line for line in lines if line.strip()]


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
    VARIANTS = dict.fromkeys(("--extend", "--words", "--markers"), Extend)
    config: RunConfig = RunConfig()

    def execute(self) -> None:
        from bert_jax.text.identification import load_ahead

        load_ahead()  # beside the imports, which take as long
        from bert_jax.pretraining.dataset import check_sources
        from bert_jax.pretraining.fitting import fitted
        from bert_jax.pretraining.vocabulary import make_tokenizer
        from bert_jax.run.run_directory import RunDirectory
        from bert_jax.system.progress import print_line

        directory = RunDirectory(self.workdir)
        config = fitted(self.config, directory)
        inputs = check_sources(config, directory)
        directory.open(config)
        directory.keep(*inputs.readings)
        tokenizer = make_tokenizer(config, directory, inputs.tokenizer, inputs.initial and inputs.initial.tokenizer)
        print_line(f"{len(tokenizer.vocabulary):,} pieces: {directory.tokenizer / tokenizer.file_name}")
