"""bert-jax predict RUN INPUT OUTPUT: applies a fine-tuned model to rows."""

from collections import Counter
from collections.abc import Iterator

from bert_jax.cli.arguments import ROWS_NAMES, Command, PlaceArgument, RowsArguments, RunArgument, SavedArguments
from bert_jax.cli.flags import Positional


class Predict(RowsArguments, SavedArguments):
    """Arguments of bert-jax predict."""

    run: RunArgument
    """A run of bert-jax finetune, or one of its checkpoints."""
    input: Positional[str]
    """Rows with the columns that the model was trained on; labels aren't needed. A file, or tfds:NAME/CONFIG:SPLIT. For
    a task with one text also a .txt, or - for standard input, with one text on each line; words that are to be tagged
    stand between spaces there."""
    output: Positional[PlaceArgument]
    """File for the rows with predictions: .jsonl, .csv or .tsv; for tags also .conll, for answers SQuAD's .json."""


COMMAND = Command("predict", Predict, "Apply a fine-tuned model to rows.", names=ROWS_NAMES)


def run(arguments: list[str]) -> None:
    """Parses the command line, writes the predictions and prints the number of rows."""
    asked = COMMAND.parse(arguments)
    from bert_jax.finetuning.dataset import say_repairs, written_as
    from bert_jax.finetuning.output import check_output, write_predictions
    from bert_jax.finetuning.predicting import STANDARD_INPUT, has_plain_lines, of_lines
    from bert_jax.inference.bert import load
    from bert_jax.rows.task_files import task_records
    from bert_jax.system.progress import say, stage

    predictor = load(asked.run, asked.step, asked.average).predictor
    task = predictor.task
    check_output(asked.output, task.kind, asked.input)
    repairs = Counter()
    source, format = asked.input, asked.format
    if source == "-":
        source = STANDARD_INPUT
    if format is None and not asked.columns and has_plain_lines(task, source):
        place = "standard input" if asked.input == "-" else asked.input
        read = "is a text, its words between spaces" if task.kind == "tags" else f"is a {task.texts[0]}"
        say(f"{place}: each line {read} (a file with columns: --format {'conll' if task.kind == 'tags' else 'tsv'})")
        format = "text"
    written = written_as(task, source, format, asked.columns, asked.separator)
    records = task_records(source, repairs, *written)
    if written.format == "text":
        records = of_lines(records, task)
    with stage("Predicting", None, "rows") as shown:

        def counted() -> Iterator:
            for one in predictor.predictions(records, repairs):
                yield one
                shown.advance()

        write_predictions(asked.output, counted(), task.kind)
        count = int(shown.done)
    say_repairs(asked.input, repairs)
    say(f"{count:,} rows with predictions: {asked.output}")
