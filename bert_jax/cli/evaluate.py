"""bert-jax evaluate RUN [--data FILE]: measures a run on its held-out text, or on other text or rows."""

import json
from typing import Any, Literal

from bert_jax.cli.arguments import ROWS_NAMES, Command, JsonArguments, RowsArguments, RunArgument, SavedArguments
from bert_jax.system.errors import UsageError


class Evaluate(JsonArguments, RowsArguments, SavedArguments):
    """Arguments of bert-jax evaluate."""

    run: RunArgument
    """A run."""
    data: str | None = None
    """Text to measure on: a file, a pattern or any source of --data.source. For a fine-tuned run, rows: a file or
    tfds:NAME/CONFIG:SPLIT. Without it: the run's held-out documents or dev rows."""
    language: str | None = None
    """Language of the text, as a code or an English name. Without it: the first language of the run."""
    words: str | None = None
    """The run's data.words, given again, where that is module:function: no code runs because a run's config.json names
    it. Only text from --data needs it."""
    unlabelled: Literal["refuse", "skip"] | None = None
    """Rows without a label: refuse them, or skip and count them. Without it: as in training."""


COMMAND = Command(
    "evaluate",
    Evaluate,
    "Measure a run's newest checkpoint on its held-out documents or on --data; the best checkpoint of a fine-tuned run "
    "on its dev rows or on labelled rows from --data. "
    "--step and --average take other saved parameters of the run.",
    names={"data.source": "--data", "data.language": "--language", "data.words": "--words"} | ROWS_NAMES,
)


def run(arguments: list[str]) -> None:
    """Parses the command line, evaluates, and prints the table that training prints at its end."""
    asked = COMMAND.parse(arguments)
    if asked.language and not asked.data:
        raise UsageError(f"--language {asked.language} is that of --data, which is not given; give both")
    if asked.words and not asked.data:
        raise UsageError(f"--words {asked.words} finds the words of --data, which is not given; give both")
    from bert_jax.cli.summary import print_results, print_task_results
    from bert_jax.config.finetune import TaskRunConfig
    from bert_jax.run.run_directory import read_config

    config = read_config(asked.run)
    of_rows = isinstance(config, TaskRunConfig)
    _check(asked, of_rows)
    if of_rows:
        results, table = _of_rows(asked, config.rows_hash), print_task_results
        of = f"rows of {asked.data}" if asked.data else "dev rows"
    else:
        results, table = _of_text(asked), print_results
        of = f"sequences of {asked.data}" if asked.data else "held-out sequences"
    if asked.json:
        print(json.dumps(results, ensure_ascii=False))
    else:
        table(results, of)


def _check(asked: Evaluate, of_rows: bool) -> None:
    """Raises UsageError for what belongs to rows and is given for text, or the reverse."""
    if of_rows and asked.words:
        raise UsageError(f"--words {asked.words} is for text, and {asked.run} measures rows; leave it out")
    if of_rows and asked.language:
        raise UsageError(f"--language {asked.language} is that of a text, and {asked.run} measures rows; leave it out")
    given = (asked.format, asked.separator, asked.columns)
    if any(one is not None for one in given) and not (of_rows and asked.data):
        raise UsageError(
            "--format, --separator and --columns are those of rows, the --data of a fine-tuned run; leave them out"
        )
    if asked.unlabelled and not of_rows:
        raise UsageError(f"--unlabelled {asked.unlabelled} is for rows, and {asked.run} measures text; leave it out")


def _of_rows(asked: Evaluate, rows_hash: str) -> dict[str, Any]:
    """What a fine-tuned run has right of the rows of --data, or of its dev rows."""
    from bert_jax.finetuning.dataset import written_as
    from bert_jax.inference.bert import load

    model = load(asked.run, asked.step, asked.average)
    predictor, written = model.predictor, None
    if asked.data:
        written = written_as(predictor.task, asked.data, asked.format, asked.columns, asked.separator)
    results = predictor.measure(asked.data, written, asked.unlabelled, rows_hash)
    if asked.step is not None or asked.average:
        results["steps"] = model.steps[-1]
    return results | ({"averaged_steps": list(model.steps)} if asked.average else {})


def _of_text(asked: Evaluate) -> dict[str, Any]:
    """Loss and accuracy of a pretrained run on the text of --data, or on its held-out documents."""
    from bert_jax.pretraining.pretrain import evaluate_run
    from bert_jax.run.run_directory import RunDirectory

    return evaluate_run(RunDirectory(asked.run), asked.data, asked.language, asked.step, asked.average, asked.words)
