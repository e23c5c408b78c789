"""bert-jax evaluate RUN [--data FILE]: measures a run on its held-out text, or on other text or rows."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from bert_jax.cli.arguments import InferenceArguments, JsonArguments, RowsArguments, RunArgument
from bert_jax.config.finetune import TaskRunConfig
from bert_jax.config.objective import Units
from bert_jax.interchange.model_path import local_place
from bert_jax.system.errors import UsageError

if TYPE_CHECKING:
    from bert_jax.run.results import Results
    from bert_jax.run.run_files import RunFiles


class Evaluate(JsonArguments, RowsArguments, InferenceArguments):
    """Measure a run's newest checkpoint on its held-out documents or on --data; the best checkpoint of a fine-tuned run
    on its dev rows or on labelled rows from --data. --step and --average take other saved parameters of the run.
    """

    LINE = "bert-jax evaluate"
    ALIASES = RowsArguments.ALIASES | {
        "data.source": "data",
        "task.dev": "data",
        "task.unlabelled": "unlabelled",
        "data.language": "language",
        "data.words": "words",
        "objective.units": "units",
    }

    run: RunArgument
    """A run; with beir:FOLDER any model that bert-jax search takes."""
    data: str | None = None
    """Text to measure on: a file, a pattern or any source of --data.source. For a fine-tuned run, rows: a file or
    tfds:NAME/CONFIG:SPLIT. beir:FOLDER#SPLIT (by default the split test): the vectors search a corpus of judged texts.
    Without it: the run's held-out documents or dev rows."""
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

    def execute(self) -> None:
        for name, use in (("language", "is the language of"), ("words", "finds the words of")):
            if (value := getattr(self, name)) and not self.data:
                raise UsageError(f"--{name} {value} {use} the --data text; add --data, or leave --{name} out")
        from bert_jax.finetuning.judged_texts import is_judged
        from bert_jax.run.run_files import RunFiles

        if is_judged(self.data):
            self._search_judged_texts(self.data)
            return
        files = RunFiles(self.run)
        config = files.config  # raises if it is no run, before JAX is imported
        self._check(is_finetuned=config.task is not None)
        from bert_jax.cli.results_tables import print_results, print_task_results
        from bert_jax.pretraining.evaluation import evaluate_run
        from bert_jax.run.run_directory import RunDirectory
        from bert_jax.system.figures import json_line

        if config.task:
            results = self._evaluate_on_rows(files, config)
        else:
            saved = self.step, self.average
            results = evaluate_run(
                RunDirectory(files), self.data, self.language, *saved, self.words, self.dtype, self.units
            )
        if self.json:
            print(json_line(results.content))
        elif config.task:
            print_task_results(results, f"rows of {self.data}" if self.data else "dev rows")
        else:
            print_results(results, len(config.phases), self.data)

    def _check(self, is_finetuned: bool) -> None:
        """Raises UsageError for flags about rows if the run is evaluated on text, or the reverse."""
        for name, value in (("words", self.words), ("language", self.language), ("units", " ".join(self.units or ()))):
            if is_finetuned and value:
                raise UsageError(
                    f"--{name} {value} applies to text, but the fine-tuned run {self.run} is evaluated on rows; "
                    "leave it out"
                )
        row_options = (self.format, self.separator, self.columns)
        if any(one is not None for one in row_options) and not (is_finetuned and self.data):
            raise UsageError(
                "--format, --separator and --columns are those of rows, the --data of a fine-tuned run; leave them out"
            )
        if self.unlabelled and not is_finetuned:
            raise UsageError(
                f"--unlabelled {self.unlabelled} applies to rows, but the pretrained run {self.run} is evaluated on "
                "text; leave it out"
            )

    def _search_judged_texts(self, data: str) -> None:
        """Prints how well the model's vectors find the judged texts of `data` in their corpus."""
        for name in ("language", "words", "units", "unlabelled", *RowsArguments.model_fields):
            if getattr(self, name) is not None:
                raise UsageError(f"--{name} doesn't apply to judged texts, {data}; leave it out")
        local_place(self.run)  # before JAX is imported
        from bert_jax.cli.results_tables import print_task_results
        from bert_jax.finetuning.dataset import say_repairs
        from bert_jax.finetuning.judged_texts import JudgedTexts
        from bert_jax.inference.search import judged_results
        from bert_jax.system.figures import json_line

        repairs = Counter[str]()
        judged = JudgedTexts(data, "test", repairs)
        say_repairs(judged.name, repairs)
        bert = self.loaded(self.run, self.dtype)
        results = self._with_steps(judged_results(bert.embedder, judged), bert.steps)
        if self.json:
            print(json_line(results.content))
        else:
            print_task_results(results, "judged queries")

    def _evaluate_on_rows(self, files: "RunFiles", config: TaskRunConfig) -> "Results":
        """The metrics of a fine-tuned run on the rows of --data, or on its dev rows."""
        from bert_jax.finetuning.dataset import written_as
        from bert_jax.run.recorded_config import check_recorded_places

        if not self.data:
            check_recorded_places(config, self.run, ["task.dev"])
        model = self.loaded(files, self.dtype)
        predictor, written = model.predictor, None
        if self.data:
            written = written_as(predictor.task, self.data, self.format, self.columns, self.separator)
        results = predictor.measure(self.data, written, self.unlabelled, config.rows_hash)
        return self._with_steps(results, model.steps)

    def _with_steps(self, results: "Results", steps: Sequence[int]) -> "Results":
        """`results` with the saved `steps` that were measured, if --step or --average chose them."""
        if self.step is not None or self.average:
            results = results.updated({"steps": steps[-1]})
        return results.updated({"averaged_steps": list(steps)}) if self.average else results
