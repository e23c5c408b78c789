"""Prints tables of results, examples and sequences to standard output."""

import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.markup import escape
from rich.measure import Measurement
from rich.text import Text

from bert_jax.config.prediction import QUESTIONS
from bert_jax.config.run import RunConfig
from bert_jax.config.wording import counted
from bert_jax.finetuning.metrics import HEADINGS, class_table
from bert_jax.instances.preparation import MOST_UNKNOWN
from bert_jax.instances.prepared_data import PreparedData
from bert_jax.pretraining.inspection import SeenSequence
from bert_jax.run.remarks import (
    adaptation,
    behind_words,
    by_language,
    nothing_learned,
    nothing_learned_of_task,
    unlearned_classes,
)
from bert_jax.run.results import Results
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.bucket import Place
from bert_jax.system.errors import Setting, command_line
from bert_jax.system.figures import Table, print_rows
from bert_jax.system.progress import output, print_line
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


def print_results(results: Results, phases: int = 1, measured_text: str = "held-out sequences") -> None:
    """Prints the metrics of the model and of the frequency baseline.

    `phases`: the number of the run's phases; a remark may advise more steps for the last one. `measured_text` names
    what was measured.
    """
    baseline, metrics = results.baseline, results.metrics
    if baseline is None:
        output.print(f"{results.steps:,} steps done; nothing was held out to measure on")
        return
    measured = _averaged(results) or (f"Step {results.steps:,}" if results.steps else "Model as it was imported")
    units = (results.measured_on or {}).get("units")
    masked = f", masked by {' '.join(map(str, units))}" if "mlm_loss" in baseline and isinstance(units, list) else ""
    table = Table(
        f"{measured}, {results.held_out_sequences:,} {measured_text}{masked}", "", ">model", ">by frequency alone", ""
    )
    for question in QUESTIONS:
        for name, label, guess in (
            (question.loss, f"{question.label} loss (nats)", question.guessed_loss),
            (question.accuracy, f"{question.label} accuracy", question.guessed_accuracy),
        ):
            if name in baseline:
                table.add_row(label, f"{metrics[name]:.3f}", f"{baseline[name]:.3f}", guess)
    output.print(table)
    (first, *headings), lines = by_language(results.measurements, baseline)
    if lines:
        print_rows("By language", (first, *(f">{heading}" for heading in headings)), lines)
    for remark in filter(None, (nothing_learned(results, phases - 1), adaptation(results))):
        output.print(escape(remark), soft_wrap=True)
    if results.unknown_share is not None and results.unknown_share <= MOST_UNKNOWN:  # preparation warns of more
        output.print(f"{results.unknown_share:.2%} of the pieces of the text are unknown to the vocabulary")
    if results.skipped_steps:
        output.print(f"{results.skipped_steps:,} steps were skipped because a gradient was not finite")


def _averaged(results: Results) -> str:
    """The steps whose parameters were averaged, as text; empty for one checkpoint."""
    steps = results.averaged_steps
    return f"Mean of steps {', '.join(map(str, steps))}" if steps else ""


def print_next_steps(path: Place | str, commands: Sequence[Sequence[object]]) -> None:
    """Prints commands for a finished run; first, if bert-jax isn't on PATH, the one that puts it there."""
    print_line(f"\nThe run is in {path}. To go on from here:")
    if not shutil.which("bert-jax") and sys.prefix != sys.base_prefix:
        commands = [("source", f"{sys.prefix}/bin/activate"), *commands]
    for words in commands:
        print_line(f"  {command_line(*words)}")


def print_task_results(results: Results, rows: str = "dev rows") -> None:
    """Prints every metric of a task beside its baselines, and the worst classes.

    `rows` names the measured rows.
    """
    if results.metric is None or results.score is None:
        output.print(f"{results.steps:,} steps done; {Setting('task.dev')} names no rows to measure on")
        return
    title = [str(results.task), f"{results.dev_rows:,} {rows}"]
    if results.best_step is not None:
        title.append(f"best checkpoint (step {results.best_step:,} of {results.steps:,})")
    elif averaged := _averaged(results):
        title.append(averaged.lower())
    elif results.steps is not None:
        title.append(f"step {results.steps:,}")
    output.print(escape(", ".join(title)), soft_wrap=True)  # a table's own title is no wider than the table
    baselines = results.baselines or {"baseline": results.baseline or {}}
    table = Table("", "", ">score", *(f">{name}" for name in baselines))
    for name, value in results.metrics.items():
        cells = [f"{known[name]:.4f}" if name in known else "" for known in baselines.values()]
        table.add_row(Text(name, "bold" if name == results.metric else ""), f"{value:.4f}", *cells)
    output.print(table)
    behind = behind_words(results.metric, results.score, results.baselines, results.cut_texts)
    if remark := nothing_learned_of_task(results) or behind or unlearned_classes(results):
        output.print(escape(remark), soft_wrap=True)
    caption, classes = class_table(results)
    if classes:
        print_rows(caption, HEADINGS, classes)


def print_pairs(results: Results) -> None:
    """Prints the accuracies on minimal pairs: of each file, of each group, and the mean over files."""
    shown = "accuracy", "standard_error", "accuracy_per_token", "accuracy_of_shorter"
    figures = results.file_figures | {f"mean of {counted(len(results.files), 'files')}": results.measurements}
    counts = ("pairs", "left_out") if results.measurements["left_out"] else ("pairs",)
    rows = [
        (name, *(f"{each[count]:,.0f}" for count in counts), *(f"{each[figure]:.4f}" for figure in shown))
        for name, each in figures.items()
    ]
    headings = (">accuracy", ">± error", ">a piece", ">shorter")
    title = f"Accuracy on {counted(results.measurements['pairs'], 'minimal pairs')}"
    print_rows(title, ("file", *(f">{count.replace('_', ' ')}" for count in counts), *headings), rows)
    print_line("Chance is 0.5. ± error: the standard error by the choice of pairs; a piece: with scores divided by the")
    print_line("number of pieces; shorter: of taking the sentence with fewer pieces for the acceptable one.")
    for column, groups in results.groups.items():
        print_rows("", (column, ">accuracy"), [(name, f"{value:.4f}") for name, value in groups.items()])


def print_layer_weights(results: Results) -> None:
    """Prints the learned weights of a mix of layers, if the fine-tuned model has one."""
    if results.layer_weights:
        weights = " ".join(f"{weight:.3f}" for weight in results.layer_weights)
        output.print(
            f"weights of the embeddings and of each layer: {weights}; gamma {results.gamma:.3f}", soft_wrap=True
        )


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
    from bert_jax.instances.prepared_data import PreparedData

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


def print_preparation(prepared: PreparedData, budget: int) -> None:
    """Prints statistics of the training and held-out text.

    `budget`: how many tokens of a full sequence are masked.
    """
    title = f"Sequences of {prepared.length}: {prepared.directory}"
    print_rows(title, ("", ">training", ">held out"), prepared.table(budget))


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
