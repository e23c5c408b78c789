"""bert-jax evaluate RUN [--data FILE]: measures a run on its held-out text, or on other text or rows."""

from typing import Any, Literal

from bert_jax.cli.arguments import ROWS_NAMES, InferenceArguments, JsonArguments, RowsArguments, RunArgument
from bert_jax.config.finetune import TaskRunConfig
from bert_jax.config.units import Units
from bert_jax.system.errors import UsageError


class Evaluate(JsonArguments, RowsArguments, InferenceArguments):
    """Measure a run's newest checkpoint on its held-out documents or on --data; the best checkpoint of a fine-tuned run
    on its dev rows or on labelled rows from --data. --step and --average take other saved parameters of the run.
    """

    LINE = "bert-jax evaluate"
    FLAG_OF_SETTING = {
        "data.source": "--data",
        "task.dev": "--data",
        "data.language": "--language",
        "data.words": "--words",
        "objective.units": "--units",
    } | ROWS_NAMES

    run: RunArgument
    """A run."""
    data: str | None = None
    """Text to measure on: a file, a pattern or any source of --data.source. For a fine-tuned run, rows: a file or
    tfds:NAME/CONFIG:SPLIT. Without it: the run's held-out documents or dev rows."""
    language: str | None = None
    """Language of the text, as a code or an English name. Without it: the first language of the run."""
    words: str | None = None
    """The run's data.words, if it is module:function. Repeat it here: bert-jax never imports code only because a run's
    config.json names it. Needed only for text from --data."""
    units: Units | None = None
    """Units of masking of the measured text, so that runs trained with different ones can be compared. Without it:
    those of the run."""
    unlabelled: Literal["refuse", "skip"] | None = None
    """Rows without a label: refuse them, or skip and count them. Without it: as in training."""


def run(words: list[str]) -> None:
    """Parses the command line, evaluates, and prints the table that training prints at its end."""
    args = Evaluate.parse(words)
    if args.language and not args.data:
        raise UsageError(
            f"--language {args.language} is the language of the --data text; add --data, or leave --language out"
        )
    if args.words and not args.data:
        raise UsageError(f"--words {args.words} finds the words of the --data text; add --data, or leave --words out")
    from bert_jax.cli.summary import print_results, print_task_results
    from bert_jax.run.run_config import read_config
    from bert_jax.system.tables import as_json

    config = read_config(args.run)
    is_finetuned = isinstance(config, TaskRunConfig)
    _check(args, is_finetuned)
    results = _evaluate_on_rows(args, config) if isinstance(config, TaskRunConfig) else _evaluate_on_text(args)
    if args.json:
        print(as_json(results))
    elif is_finetuned:
        print_task_results(results, f"rows of {args.data}" if args.data else "dev rows")
    else:
        of = f"sequences of {args.data}" if args.data else "held-out sequences"
        print_results(results, len(config.phases), of)


def _check(args: Evaluate, is_finetuned: bool) -> None:
    """Raises UsageError for flags about rows if the run is evaluated on text, or the reverse."""
    for name, value in (("words", args.words), ("language", args.language), ("units", " ".join(args.units or ()))):
        if is_finetuned and value:
            raise UsageError(
                f"--{name} {value} applies to text, but the fine-tuned run {args.run} is evaluated on rows; "
                "leave it out"
            )
    row_options = (args.format, args.separator, args.columns)
    if any(one is not None for one in row_options) and not (is_finetuned and args.data):
        raise UsageError(
            "--format, --separator and --columns are those of rows, the --data of a fine-tuned run; leave them out"
        )
    if args.unlabelled and not is_finetuned:
        raise UsageError(
            f"--unlabelled {args.unlabelled} applies to rows, but the pretrained run {args.run} is evaluated on text; "
            "leave it out"
        )


def _evaluate_on_rows(args: Evaluate, config: TaskRunConfig) -> dict[str, Any]:
    """The metrics of a fine-tuned run on the rows of --data, or on its dev rows."""
    from bert_jax.finetuning.dataset import written_as
    from bert_jax.run.run_config import check_recorded_places

    if not args.data:
        check_recorded_places(config, args.run, ["task.dev"])
    model = args.loaded(args.run, args.dtype)
    predictor, written = model.predictor, None
    if args.data:
        written = written_as(predictor.task, args.data, args.format, args.columns, args.separator)
    results = predictor.measure(args.data, written, args.unlabelled, config.rows_hash)
    if args.step is not None or args.average:
        results["steps"] = model.steps[-1]
    return results | ({"averaged_steps": list(model.steps)} if args.average else {})


def _evaluate_on_text(args: Evaluate) -> dict[str, Any]:
    """Loss and accuracy of a pretrained run on the text of --data, or on its held-out documents."""
    from bert_jax.pretraining.evaluation import evaluate_run
    from bert_jax.run.run_directory import RunDirectory

    run, saved = RunDirectory(args.run), (args.step, args.average)
    return evaluate_run(run, args.data, args.language, *saved, args.words, args.dtype, args.units)
