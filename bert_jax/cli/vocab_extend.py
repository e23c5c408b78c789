"""bert-jax vocab --extend VOCAB --words FILE: adds words to a vocabulary."""

from pathlib import Path

from bert_jax.cli.arguments import Arguments, Command, PlaceArgument
from bert_jax.system.bucket import Place, in_bucket
from bert_jax.system.copies import fetched
from bert_jax.system.errors import UsageError
from bert_jax.system.progress import print_line
from bert_jax.text.extension import extend
from bert_jax.text.tokenizer import Tokenizer, load_tokenizer, tokenizer_directory
from bert_jax.text.vocabulary import read_lines
from bert_jax.text.wordpiece import MANY_CAPITALS


class Extend(Arguments):
    """Arguments of bert-jax vocab --extend. Every path may be in a bucket."""

    extend: PlaceArgument
    """A vocab.txt, a sentencepiece .model, a tokenizer.json, a run or a tokenizer directory."""
    words: PlaceArgument
    """Words to add: a UTF-8 file with one word on each line. They are cleaned as the tokenizer cleans text."""
    output: PlaceArgument | None = None
    """File to write. Without it: VOCAB.extended.txt, .model or .json beside the vocabulary."""
    lowercase: bool = True
    """Whether a vocab.txt is for lower-cased text. Used only for a vocab.txt: all others contain this
    setting."""


COMMAND = Command(
    "vocab",
    Extend,
    "Add words to a vocabulary: every old piece keeps its id, and words that aren't pieces yet follow.",
)


def run(words: list[str]) -> None:
    """Parses the command line, writes the extended vocabulary and prints where it is."""
    args = COMMAND.parse(words)
    tokenizer = load_tokenizer(args.extend, args.lowercase)
    _check_casing(args, tokenizer)
    output = args.output or _beside(args.extend, tokenizer)
    _check_output(output, tokenizer)
    lines = read_lines(_words_here(args.words), "file of words", "one with a word a line")
    made = extend(tokenizer, [line for line in lines if line.strip()])
    counts = f"{made.added:,} words added, {made.known:,} known already, {made.split:,} left out: they are always split"
    if not made.added:
        raise UsageError(f"{args.words} adds nothing to {args.extend} ({counts}); nothing was written")
    made.tokenizer.write_vocabulary(output)
    print_line(f"{len(made.tokenizer.vocabulary):,} pieces ({counts}): {output}")


def _words_here(words: Place) -> Path:
    """The file of words, copied to this machine if it is in a bucket."""
    if in_bucket(words) and not words.is_file():
        raise UsageError(f"no file of words at {words}; give the path of one with a word a line")
    return fetched(words)


def _check_casing(args: Extend, tokenizer: Tokenizer) -> None:
    """Raises UsageError if a vocab.txt has pieces with capitals and would be used with lower-casing."""
    given = args.lowercase and tokenizer.kind == "wordpiece" and not tokenizer_directory(args.extend)
    if given and tokenizer.vocabulary.share_of_capitals > MANY_CAPITALS:
        raise UsageError(f"{args.extend} has pieces with capitals and words would be lower-cased; add --no-lowercase")


def _beside(vocabulary: Place, tokenizer: Tokenizer) -> Place:
    """The default output, VOCAB.extended.txt, .model or .json; never in a tokenizer directory: that is its run's."""
    directory = tokenizer_directory(vocabulary) or tokenizer_directory(vocabulary.parent)
    place = directory.parent if directory in (vocabulary, vocabulary.parent) else vocabulary
    file = Path(tokenizer.file_name) if vocabulary.is_dir() else vocabulary
    return (place if place.is_dir() else place.parent) / f"{file.stem}.extended{Path(tokenizer.file_name).suffix}"


def _check_output(output: Place, tokenizer: Tokenizer) -> None:
    # A vocab.txt may have any name but one that is read as another kind's.
    own = Path(tokenizer.file_name).suffix
    if output.suffix != own and (own != ".txt" or output.suffix in (".model", ".json")):
        raise UsageError(
            f"--output {output}: a {tokenizer.kind} vocabulary is written as {tokenizer.file_name}; name it like that"
        )
    if not in_bucket(output) and not output.parent.is_dir():  # in a bucket there are no directories to be made
        raise UsageError(f"--output {output}: there is no directory {output.parent}; make it first")
    if output.exists():
        raise UsageError(f"{output} exists already; choose another --output, or delete it first")
