"""bert-jax vocab --extend VOCAB --source TEXT --words FILE --markers FILE: adds words and markers to a vocabulary."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from bert_jax.cli.arguments import Arguments, PlaceArgument
from bert_jax.config.run import RunConfig
from bert_jax.config.wording import counted
from bert_jax.interchange.model_path import local_place
from bert_jax.system.bucket import Place, in_bucket
from bert_jax.system.errors import UsageError

if TYPE_CHECKING:
    from bert_jax.text.extension import Extension
    from bert_jax.text.tokenizer import Tokenizer
    from bert_jax.text.word_splits import WordSplits

_SHOWN = 20
"""Proposed words that are shown."""


class Extend(Arguments):
    """Add words and markers to a vocabulary: every old piece keeps its id, and those that aren't pieces yet follow. The
    words come from a list or, with --source, from a text of the domain: those that save the most pieces."""

    LINE = "bert-jax vocab"

    extend: PlaceArgument
    """A vocab.txt, a sentencepiece .model, a tokenizer.json, a run, or the folder of a tokenizer or published model."""
    source: tuple[str, ...] = ()
    """Text of the domain or language, as in --data.source. A sample is read, and the words are added that save the most
    pieces: frequent words that the vocabulary splits into many. Works for scripts with spaces between words."""
    count: Annotated[int, Field(gt=0)] = 1_000
    """Most words to add from --source."""
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
        if not (self.words or self.markers or self.source):
            raise UsageError(
                "vocab needs --source TEXT, --words PATH or --markers PATH as well: a text of the domain, or a file of "
                "what to add"
            )
        if "count" in self.model_fields_set and not self.source:
            raise UsageError(
                f"--count={self.count} has no effect without --source, whose words it counts; leave it out"
            )
        local_place(self.extend, "a vocabulary, or a model's folder")  # before what reads it is imported
        from bert_jax.system.progress import print_line, warn
        from bert_jax.text.extension import extend
        from bert_jax.text.merged_letters import merged_letters
        from bert_jax.text.word_splits import word_splits

        tokenizer = self._tokenizer()
        lines = _lines_of_text(self.source) if self.source else []
        text, listed = Counter(word for line in lines for word in line.split()), _lines_of(self.words)
        markers = [line.strip() for line in _lines_of(self.markers)]
        extended = extend(tokenizer, [*listed, *self._proposed(tokenizer, text)], markers)
        output, counts = self._checked_output(extended.tokenizer), self._counts(extended)
        extended.tokenizer.write_vocabulary(output)
        for place, given, most in ((self.words, listed, {"most": 0.0}), (" ".join(self.source), lines, {})):
            if merged := merged_letters(given, tokenizer.cleaned, **most):
                warn(f"{place}: {merged}; they are added as this vocabulary reads text; a cased one may keep them")
        if text:
            self._tell_saving(word_splits(tokenizer, text), word_splits(extended.tokenizer, text))
        print_line(f"{len(extended.tokenizer.vocabulary):,} pieces ({counts}): {output}")

    def _tokenizer(self) -> "Tokenizer":
        """The tokenizer of `extend`. Raises UsageError if `lowercase` doesn't fit it."""
        from bert_jax.pretraining.vocabulary import existing_tokenizer
        from bert_jax.text.wordpiece import MANY_CAPITALS, WordPieceTokenizer

        vocabulary = {"file": str(self.extend), "lowercase": self.lowercase}
        tokenizer, _ = existing_tokenizer(RunConfig().change(vocabulary=vocabulary), self.opened)
        assert tokenizer is not None  # a file is given
        is_vocab_txt = isinstance(tokenizer, WordPieceTokenizer) and not self.extend.is_dir()
        if "lowercase" in self.model_fields_set and not is_vocab_txt:
            raise UsageError(f"--lowercase has no effect: {self.extend} itself says how text is cleaned; leave it out")
        if self.lowercase and is_vocab_txt and tokenizer.vocabulary.share_of_capitals > MANY_CAPITALS:
            raise UsageError(
                f"{self.extend} has pieces with capitals and words would be lower-cased; add --no-lowercase"
            )
        return tokenizer

    def _counts(self, extended: "Extension") -> str:
        """How many words and markers were added. Raises UsageError if none were."""
        counts = f"{counted(extended.added, 'words added')}, {extended.known_words:,} known already, "
        counts += f"{extended.split:,} left out: they are always split"
        counts += f"; {counted(extended.markers, 'markers added')}" if self.markers else ""
        if not extended.added + extended.markers:
            files = " and ".join(str(path) for path in (*self.source, self.words, self.markers) if path)
            raise UsageError(f"{files} adds nothing to {self.extend} ({counts}); nothing was written")
        return counts

    def _proposed(self, tokenizer: "Tokenizer", text: Counter[str]) -> list[str]:
        """The words of `text` that save the most pieces; prints the first ones. `text`: how often each word occurs,
        split at blanks. Raises UsageError if no word saves any."""
        from bert_jax.system.figures import rows_table
        from bert_jax.system.progress import output
        from bert_jax.text.word_splits import FEWEST_OCCURRENCES, words_that_save

        proposed = words_that_save(tokenizer, text, self.count) if text else []
        if text and not proposed:
            raise UsageError(
                f"--source {' '.join(self.source)} has no words to add: {self.extend} splits none that occurs "
                f"{FEWEST_OCCURRENCES} times; give more text or, if its characters are unknown to the vocabulary, see "
                "what bert-jax doctor TEXT --models MODEL says"
            )
        if proposed:
            title = f"Words to add: {min(_SHOWN, len(proposed))} of {len(proposed):,}"
            output.print(rows_table(title, proposed[:_SHOWN]))
        return [each.word for each in proposed]

    def _tell_saving(self, before: "WordSplits", after: "WordSplits") -> None:
        """Prints the pieces of --source before and after, and a warning if the vocabulary can't write the text."""
        from bert_jax.system.progress import print_line, warn
        from bert_jax.text.word_splits import MOST_UNKNOWN_CHARACTERS

        old, new = (1000 * splits.pieces_a_word for splits in (before, after))
        print_line(f"a thousand words of the text were {old:,.0f} pieces and are {new:,.0f}: {old - new:,.0f} saved")
        if before.unknown > MOST_UNKNOWN_CHARACTERS:
            warn(
                f"{before.unknown:.0%} of the characters of {' '.join(self.source)} are unknown to {self.extend}, and "
                f"{after.unknown:.0%} remain so; bert-jax doctor TEXT --models MODEL compares it with a vocabulary "
                "that is trained on the text"
            )

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


def _lines_of_text(sources: tuple[str, ...]) -> list[str]:
    """The lines of a sample of `sources`. Raises UsageError if they hold no text."""
    from bert_jax.records.corpus import open_corpus
    from bert_jax.records.sample import read_sample

    corpus = open_corpus(RunConfig().set({"data.source": sources}).data)
    samples = [read_sample(part, sources=len(sources)) for part in corpus.parts]
    lines = [line for sample in samples for document in sample.documents for line in document]
    if not lines:
        raise UsageError(f"--source {' '.join(sources)} holds no text; give another")
    return lines


def _lines_of(words: Place | None) -> list[str]:
    """The lines of a file of words that aren't empty; [] if `words` is None."""
    from bert_jax.system.copies import fetched
    from bert_jax.text.vocabulary import read_lines

    if words is None:
        return []
    if in_bucket(words) and not words.is_file():
        raise UsageError(f"no file of words at {words}; give the path of one with a word a line")
    lines = read_lines(fetched(words), "file of words", "one with a word a line")
    return [line for line in lines if line.strip()]
