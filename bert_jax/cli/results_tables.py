"""Prints tables of results and of prepared text, and the commands that go on from a finished run."""

import shutil
import sys
from collections.abc import Sequence

from rich.markup import escape
from rich.text import Text

from bert_jax.config.prediction import QUESTIONS
from bert_jax.config.wording import counted
from bert_jax.finetuning.metrics import HEADINGS, class_table
from bert_jax.instances.preparation import MOST_UNKNOWN
from bert_jax.instances.prepared_data import PreparedData
from bert_jax.run.remarks import (
    adaptation,
    behind_words,
    by_language,
    nothing_learned,
    nothing_learned_of_task,
    unlearned_classes,
)
from bert_jax.run.results import Results
from bert_jax.system.bucket import Place
from bert_jax.system.errors import Setting, command_line
from bert_jax.system.figures import Table, print_rows
from bert_jax.system.progress import output, print_line


def print_results(results: Results, phases: int, other_text: str | None = None) -> None:
    """Prints the metrics of the model and of the frequency baseline.

    `phases`: the number of the run's phases; a remark may advise more steps for the last one. `other_text`: the text
    that was measured. None: what the run holds out.
    """
    baseline, metrics = results.baseline, results.metrics
    if baseline is None:
        output.print(f"{results.steps:,} steps done; nothing was held out to measure on")
        return
    measured = _averaged(results) or (f"Step {results.steps:,}" if results.steps else "Model as it was imported")
    sequences = f"sequences of {other_text}" if other_text else "held-out sequences"
    units = (results.measured_on or {}).get("units")
    masked = f", masked by {' '.join(map(str, units))}" if "mlm_loss" in baseline and isinstance(units, list) else ""
    table = Table(
        f"{measured}, {results.held_out_sequences:,} {sequences}{masked}", "", ">model", ">by frequency alone", ""
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
    for remark in filter(None, (nothing_learned(results, None if other_text else phases - 1), adaptation(results))):
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
    trained = results.training_rows is not None
    behind = behind_words(results.metric, results.score, results.baselines, results.cut_texts, trained)
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


def print_preparation(prepared: PreparedData, budget: int) -> None:
    """Prints statistics of the training and held-out text.

    `budget`: how many tokens of a full sequence are masked.
    """
    title = f"Sequences of {prepared.length}: {prepared.directory}"
    print_rows(title, ("", ">training", ">held out"), prepared.table(budget))
