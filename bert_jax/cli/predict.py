"""bert-jax predict RUN INPUT OUTPUT: applies a fine-tuned model to rows."""

import itertools
from collections import Counter
from typing import Any

from bert_jax.cli.arguments import InferenceArguments, PlaceArgument, RowsArguments, RunArgument
from bert_jax.cli.flags import Positional


class Predict(RowsArguments, InferenceArguments):
    """Apply a fine-tuned model to rows."""

    LINE = "bert-jax predict"

    run: RunArgument
    """A run of bert-jax finetune, or one of its checkpoints."""
    input: Positional[str]
    """Rows with the columns that the model was trained on; labels aren't needed. A file, or tfds:NAME/CONFIG:SPLIT. For
    a task with one text also a .txt, or - for standard input, with one text on each line; for tagging, spaces
    separate the words of a line."""
    output: Positional[PlaceArgument]
    """File for the rows with predictions: .jsonl, .csv or .tsv; for tags also .conll or .conllu, for answers SQuAD's
    .json."""

    def execute(self) -> None:
        predictor = self.loaded(self.run, self.dtype).predictor
        from bert_jax.config.wording import counted
        from bert_jax.finetuning.dataset import say_repairs, written_as
        from bert_jax.finetuning.predictions_file import check_predictions_file, write_predictions
        from bert_jax.finetuning.row_reading import reading_of_input
        from bert_jax.finetuning.rows_to_predict import STANDARD_INPUT, has_plain_lines, of_lines
        from bert_jax.records.formats import format_of
        from bert_jax.records.sources import task_records
        from bert_jax.system.progress import say, stage
        from bert_jax.system.reading import show

        task = predictor.task
        check_predictions_file(self.output, task, self.input)
        repairs: Counter[Any] = Counter()
        source, format = self.input, self.format
        if source == "-":
            source = STANDARD_INPUT
        if format is None and not self.columns and has_plain_lines(task, source):
            place = "standard input" if self.input == "-" else self.input
            line_meaning = "a text with its words separated by spaces" if task.has_word_lists else f"a {task.texts[0]}"
            other_format = "conll" if task.has_word_lists else "tsv"
            say(f"{place}: each line is {line_meaning} (for a file with columns, add --format {other_format})")
            format = "text"
        written = written_as(task, source, format, self.columns, self.separator)
        records = task_records(source, repairs, written)
        if written.format == "text":
            records = of_lines(records, task)
        for first in itertools.islice(records, 1):
            show([reading_of_input(task, self.input, written.format or format_of(source) or "TFDS", first)])
            records = itertools.chain([first], records)
        with stage("Predicting", None, "rows") as bar:
            predicted = bar.counted(predictor.predictions(records, repairs))
            write_predictions(self.output, predicted, task)
        say_repairs(self.input, repairs)
        say(f"{counted(bar.done, 'rows with predictions')}: {self.output}")
