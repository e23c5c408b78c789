"""Prints sequences with what is masked in them, and sentences with the words that a model fills in."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.text import Text

from bert_jax.config.run import RunConfig
from bert_jax.instances.prepared_data import PreparedData
from bert_jax.pretraining.inspection import SeenSequence
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.figures import Table
from bert_jax.system.progress import output
from bert_jax.text.scripts import sets_no_spaces
from bert_jax.text.vocabulary import MASK

_MOST_CELLS = 160
"""Maximum characters of a sentence in a table; a terminal of 80 columns shows them on five lines."""
_CUT = "..."
"""Replaces text that is cut off."""
_FILLED_EXAMPLES = 5
"""Most held-out sentences that are shown after pretraining."""
_WORD = re.compile(r"\s+|\S+")
_MASK_OR_CHARACTER = re.compile(rf"{re.escape(MASK)}|.")


class FilledExample(NamedTuple):
    """A held-out sentence with one masked word."""

    text: str
    """The sentence with [MASK] in place of the word."""
    word: str
    fills: list[tuple[str, float]]
    """The model's first five pieces for [MASK], as `Tokenizer.spelled` has them, with their probabilities."""


def filled_examples(run: RunDirectory, config: RunConfig) -> list[FilledExample]:
    """At most five held-out sentences of a trained run with the model's predictions; none if nothing was held out,
    or if its data is gone. Raises what `load` raises."""
    from bert_jax.inference.bert import load  # takes a second to import
    from bert_jax.inference.filling import masked_examples

    prepared, bert = PreparedData.unchecked(run.data(config.phases[-1].length)), load(run.path)
    examples = masked_examples(
        prepared.example_sentences if prepared else [], bert.tokenizer, bert.config.max_positions - 2
    )[:_FILLED_EXAMPLES]
    return [FilledExample(text, word, bert.fill_mask(text)[0]) for text, word in examples]


def print_examples(examples: Sequence[FilledExample]) -> None:
    """Prints sentences with one masked word and the model's predictions for it, if there are any.

    Long sentences are cut around their [MASK].
    """
    table = Table("Held-out sentences, one word masked", show_lines=True)
    table.add_column("sentence", ratio=3)
    table.add_column("original", overflow="fold")
    table.add_column("the model's first five", ratio=2, overflow="fold")
    for example in examples:
        table.add_row(
            MaskedText(around_mask(example.text, _MOST_CELLS)),
            example.word,
            ", ".join(f"{piece} {probability:.2f}" for piece, probability in example.fills),
        )
    if examples:
        output.print(table)


def print_sequences(sequences: Iterable[SeenSequence]) -> None:
    """Prints sequences with the pieces to predict, the units that these belong to and the label of the pair."""
    output.print(
        "[bold]bold[/bold]: a piece to predict, as input/truth, or where both its neighbours are predicted, as "
        "input/next|previous; in a treebank's sentence, a word to tag, as word/tag. {Braces}: pieces of one unit, "
        "predicted together. Each word has a space before it. Inside a word, ## stands where a sequence begins, and "
        "before and after a piece to predict.\n"
    )
    for number, sequence in enumerate(sequences, 1):
        tokens = f"{len(sequence.pieces)} of {sequence.row_length} tokens"
        heading = f"sequence {number}, record {sequence.record}: {tokens}, {len(sequence.predicted)} to predict"
        if sequence.units:
            heading += f" by {sequence.units[0].kind}"
        if sequence.second_segment:
            heading += f", second segment {sequence.second_segment}"
        output.print(f"[dim]{heading}[/dim]")
        output.print(_line(sequence), "")


def _line(sequence: SeenSequence) -> Text:
    """The words of a sequence; each piece to predict is followed by its true piece."""
    predicted = set(sequence.predicted)
    several = [unit for unit in sequence.units if unit.end - unit.begin > 1 and unit.begin in predicted]
    opened, closed = {unit.begin for unit in several}, {unit.end - 1 for unit in several}
    line = Text()
    for at, piece in enumerate(sequence.pieces):
        if at and piece.begins_word:
            line.append(" ")
        elif at == 1:
            line.append(" ##")
        elif at and (piece.answer is not None or sequence.pieces[at - 1].answer is not None):
            line.append("##")
        if at in opened:
            line.append("{")
        line.append(piece.text, "" if piece.answer is None else "bold red")
        if piece.answer is not None:
            line.append(f"/{piece.answer}", "bold green")
        if at in closed:
            line.append("}")
    return line


class MaskedText:
    """A text with [MASK] for a table of rich, which never breaks a line within [MASK].

    Lines break at spaces, and beside characters of scripts without spaces. rich itself doesn't know these scripts, and
    would also break within [MASK].
    """

    def __init__(self, text: str):
        self._text = text

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(len(MASK), cell_len(self._text))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        for line in folded(self._text, options.max_width):
            text = Text(line)
            text.highlight_words([MASK], "bold")
            yield text


def folded(text: str, width: int) -> list[str]:
    """Breaks `text` into lines of at most `width` terminal cells; `width` must have room for [MASK]."""
    lines = [""]
    for word in _WORD.findall(text):
        divisible = cell_len(word) > width or any(map(sets_no_spaces, word))
        for unit in _MASK_OR_CHARACTER.findall(word) if divisible else [word]:
            if cell_len(lines[-1] + unit) > width:
                lines.append("")
            lines[-1] += unit if lines[-1] else unit.lstrip()
    return [line.rstrip() for line in lines]


def around_mask(text: str, most: int) -> str:
    """Cuts `text` around its first [MASK] to at most `most` terminal cells; a Chinese character takes two.

    "..." replaces the text that is cut off.
    """
    before, after = text.split(MASK, 1)
    room = most - len(MASK)
    left = max(room // 2, room - cell_len(after))
    before = _begin_of(before[::-1], left)[::-1]
    return before + MASK + _begin_of(after, room - cell_len(before))


def _begin_of(text: str, most: int) -> str:
    """`text` if it fits in `most` cells, or else its beginning, followed by "..."."""
    if cell_len(text) <= most:
        return text
    while text and cell_len(text) > most - len(_CUT):
        text = text[:-1]
    return text + _CUT
