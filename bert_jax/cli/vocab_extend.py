"""bert-jax vocab --extend VOCAB --words FILE --markers FILE: adds words and markers to a vocabulary."""

from pathlib import Path

from bert_jax.cli.arguments import Arguments, PlaceArgument
from bert_jax.config.wording import counted
from bert_jax.system.bucket import Place, in_bucket
from bert_jax.system.copies import fetched
from bert_jax.system.errors import UsageError
from bert_jax.system.progress import print_line
from bert_jax.text.extension import extend
from bert_jax.text.tokenizer import Tokenizer, load_tokenizer, tokenizer_directory
from bert_jax.text.vocabulary import read_lines
from bert_jax.text.wordpiece import MANY_CAPITALS, WordPieceTokenizer


class Extend(Arguments):
    """Add words and markers to a vocabulary: every old piece keeps its id, and those that aren't pieces yet follow."""

    LINE = "bert-jax vocab"

    extend: PlaceArgument
    """A vocab.txt, a sentencepiece .model, a tokenizer.json, a run or a tokenizer directory."""
    words: PlaceArgument | None = None
    """Words to add: a UTF-8 file with one word on each line. They are cleaned as the tokenizer cleans text."""
    markers: PlaceArgument | None = None
    """Markers to add, such as [E11]: a UTF-8 file with one on each line. They are found in text as they are written,
    before it is cleaned and split. A vocabulary with markers is written as a tokenizer.json."""
    output: PlaceArgument | None = None
    """File to write. Without it: VOCAB.extended.txt, .model or .json beside the vocabulary. Needed for that of a run or
    model."""
    lowercase: bool = True
    """Whether a vocab.txt is for lower-cased text. Used only for a vocab.txt: all others contain this
    setting."""


def run(words: list[str]) -> None:
    """Parses the command line, writes the extended vocabulary and prints where it is."""
    args = Extend.parse(words)
    if args.words is None and args.markers is None:
        raise UsageError("vocab needs --words PATH or --markers PATH as well: a file of what to add")
    tokenizer = load_tokenizer(args.extend, args.lowercase)
    _check_casing(args, tokenizer)
    made = extend(tokenizer, _lines_of(args.words), [line.strip() for line in _lines_of(args.markers)])
    output = args.output or _beside(args.extend, made.tokenizer)
    _check_output(output, made.tokenizer)
    counts = f"{counted(made.added, 'words added')}, {made.known:,} known already, "
    counts += f"{made.split:,} left out: they are always split"
    counts += f"; {counted(made.markers, 'markers added')}" if args.markers else ""
    if not made.added + made.markers:
        given = " and ".join(str(path) for path in (args.words, args.markers) if path)
        raise UsageError(f"{given} adds nothing to {args.extend} ({counts}); nothing was written")
    made.tokenizer.write_vocabulary(output)
    print_line(f"{len(made.tokenizer.vocabulary):,} pieces ({counts}): {output}")


def _lines_of(words: Place | None) -> list[str]:
    """The lines of a file of words that aren't empty; none where there is no file."""
    if words is None:
        return []
    if in_bucket(words) and not words.is_file():
        raise UsageError(f"no file of words at {words}; give the path of one with a word a line")
    lines = read_lines(fetched(words), "file of words", "one with a word a line")
    return [line for line in lines if line.strip()]


def _check_casing(args: Extend, tokenizer: Tokenizer) -> None:
    """Raises UsageError if a vocab.txt has pieces with capitals and would be used with lower-casing."""
    is_vocab_txt = isinstance(tokenizer, WordPieceTokenizer) and not tokenizer_directory(args.extend)
    if args.lowercase and is_vocab_txt and tokenizer.vocabulary.share_of_capitals > MANY_CAPITALS:
        raise UsageError(f"{args.extend} has pieces with capitals and words would be lower-cased; add --no-lowercase")


def _beside(vocabulary: Place, tokenizer: Tokenizer) -> Place:
    """The default output, VOCAB.extended.txt, .model or .json. Raises UsageError if it would be in a run or model."""
    own = Path(tokenizer.file_name)
    if tokenizer_directory(vocabulary) or tokenizer_directory(vocabulary.parent):
        raise UsageError(
            f"{vocabulary} belongs to a run or model, whose folder takes no other files; name the file to write, "
            f"such as --output {own.stem}.extended{own.suffix}"
        )
    return vocabulary.parent / f"{vocabulary.stem}.extended{own.suffix}"


def _check_output(output: Place, tokenizer: Tokenizer) -> None:
    # A vocab.txt may have any suffix except .model and .json, which are read as other kinds of vocabulary.
    own = Path(tokenizer.file_name).suffix
    if output.suffix != own and (own != ".txt" or output.suffix in (".model", ".json")):
        raise UsageError(
            f"--output {output}: a {tokenizer.kind} vocabulary is written as {tokenizer.file_name}; name it like that"
        )
    if not in_bucket(output) and not output.parent.is_dir():  # in a bucket there are no directories to be made
        raise UsageError(f"--output {output}: there is no directory {output.parent}; make it first")
    if output.exists():
        raise UsageError(f"{output} exists already; choose another --output, or delete it first")
