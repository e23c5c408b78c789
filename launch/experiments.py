"""Trains recipes of pretraining for the same time on this machine and writes one JSON file and one table.

    .venv/bin/python launch/experiments.py --output runs/experiments.json --source "text:corpus/*.txt.gz"
    .venv/bin/python launch/experiments.py --output runs/experiments.json --source "text:corpus/*.txt.gz" \
      --recipes full_sentences modern_muon --seeds 0 1 2 --tasks tasks.json

A recipe is one of configs/experiments.py, whose phases have batches of one shape. Before any run these are the rules:

* Time. Some steps of every recipe are measured, in turn, `--rounds` times, and the least is its step time: on a CPU the
  processor time of all threads, which other work hardly changes, elsewhere the time that passes. A recipe takes as many
  steps as fit into `--seconds` at that time, with its schedule planned for them, so that what else the machine does
  meanwhile changes nothing. `--at-once` runs on a CPU share its cores out among them, for measuring a step, too. With
  `--steps` no time is measured, and all recipes take as many.
* Text. All recipes have the vocabulary made from the training documents, and the same documents are held out.
* Measure. Accuracy of masked tokens on the held-out documents as whole sentences of the same length, 15% of the tokens
  masked, the same sequences and the same masks for every model, whatever it was trained on. The sequences are those
  of the recipe `--measured-as`, with which the others are compared; `--units piece word` measures each model twice,
  with pieces masked and with whole words. A recipe that can't be measured so (one that only predicts next tokens, say)
  has no figure.
* Plateau. How many sequences had been trained on when the mean training loss of masked tokens first was below 6.0. It
  stands above for as long as a model knows only how frequent words are.
* Tasks. The file of `--tasks` holds an object: the name of a fine-tuning config, and the flags of `bert-jax finetune`
  that name its rows. Each trained model is fine-tuned once on each, with its own seed.
* Difference. It counts where the means over seeds differ by more than twice the pooled standard deviation. Where either
  has a single seed, none within 2% of the larger counts.

Both files are written after each run. The same command goes on where it was stopped, and takes more recipes and seeds.
"""

import hashlib
import itertools
import json
import math
import os
import queue
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from scripts import in_own_process, results_before, run_script, write_results

from bert_jax.cli.arguments import Arguments
from bert_jax.cli.config_files import load_config
from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.objective import UnitKind
from bert_jax.config.run import RunConfig
from bert_jax.config.wording import counted
from bert_jax.run.metrics import read_metrics
from bert_jax.system.errors import UsageError
from bert_jax.system.facts import markdown
from bert_jax.system.json_file import read_object
from bert_jax.system.progress import say

BEGUN_BY = {"left_to_right_then_masked": "left_to_right"}
"""A recipe that starts from another's parameters -> that other. Each has half of the time."""
PLATEAU_LOSS = 6.0
"""Loss of masked tokens that shows more than the frequencies of words."""
STEPS_A_ROUND = 10
"""Steps that are measured together."""
SINGLE_SEED_MARGIN = 0.02
"""Share of the larger figure within which a difference of single runs doesn't count."""
RUNNING: set[subprocess.Popen[str]] = set()
"""The commands at work, which end with this one."""
MANUAL = __doc__
"""Text of --help; `__doc__` within a class is that of the class."""


class Options(Arguments):
    """The recipes, and the files of the results."""

    LINE = "python launch/experiments.py"
    TEXT = MANUAL

    output: Path
    """The JSON file; the table is beside it, with the ending .md."""
    source: tuple[str, ...]
    """The text, as --data.source names it."""
    workdir: Path = Path("runs/experiments")
    """Directory of the runs, which may be deleted afterwards."""
    recipes: tuple[str, ...] = (
        *("bert", "full_sentences", "left_to_right_then_masked"),
        *("modern", "modern_masks", "modern_muon", "modern_lamb", "modern_electra"),
    )
    """Names in configs/experiments.py."""
    seeds: tuple[int, ...] = (0,)
    """Seeds of each recipe."""
    seconds: Annotated[float, Field(gt=0.0)] = 600.0
    """Seconds of training, at the step time measured: on a CPU seconds of one core."""
    at_once: int = 1
    """How many runs are at work at a time, each with its share of the CPU's cores."""
    steps: Annotated[int, Field(gt=0)] | None = None
    """Steps of every recipe, in place of `seconds`."""
    measured_as: str = "full_sentences"
    """The recipe whose held-out sequences every model is measured on, and with which all are compared."""
    units: tuple[UnitKind, ...] = ("piece",)
    """What is masked together in the held-out sequences; each kind is measured by itself."""
    rounds: Annotated[int, Field(gt=0)] = 5
    """How often the step of each recipe is measured."""
    tasks: Path | None = None
    """A JSON file of tasks to fine-tune on."""


class Experiment:
    """The runs of some recipes and seeds, and their results in the JSON file and the table.

    Runs that an earlier call has finished stay as they are.
    """

    def __init__(self, options: Options):
        """Raises UsageError where the file has results of other text or time, a recipe has phases of several shapes, or
        a task is unknown."""
        self.options, self._lock = options, threading.Lock()
        self.tasks = _tasks(options.tasks) if options.tasks else {}
        needed = (name for recipe in options.recipes for name in (BEGUN_BY.get(recipe), recipe) if name)
        self.configs = {name: load_config(f"experiments/{name}", RunConfig) for name in dict.fromkeys(needed)}
        shapes = ((name, {(each.length, each.batch_size) for each in c.phases}) for name, c in self.configs.items())
        if several := [name for name, of_phases in shapes if len(of_phases) > 1]:
            raise UsageError(f"{', '.join(several)}: phases of several shapes, which can't be compared; keep one")
        seconds = None if options.steps else options.seconds
        conditions: dict[str, Any] = {"source": list(options.source), "seconds": seconds, "at_once": options.at_once}
        conditions |= {"steps": options.steps, "measured_as": options.measured_as, "units": list(options.units)}
        new: dict[str, Any] = conditions | {"machine": None, "step_times": {}, "runs": {}}
        self.results = results_before(options.output, conditions, dict) or new
        self.vocabulary: Path | None = None
        """The vocabulary of all recipes, once it is made."""

    def run(self) -> int:
        """Trains and measures the recipes and seeds that have no results yet; returns the exit code 0."""
        with _workers(self.options.at_once) as pool:
            held_out = self._prepared(self.options.measured_as, 0)
            pool.submit(self._measure_steps).result()
            self.vocabulary = held_out / "tokenizer/vocab.txt"
            for seed in self.options.seeds:
                for name in self.configs:  # now, as two runs that share sequences must not both make them
                    self._prepared(name, seed)
            runs = itertools.product(self.options.seeds, self.options.recipes)
            complete = [pool.submit(self._complete, name, seed, held_out) for seed, name in runs]
            try:
                for one in wait(complete, return_when=FIRST_EXCEPTION).done:
                    one.result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
        table_file = self.options.output.with_suffix(".md")
        say(f"{counted(len(self.results['runs']), 'runs')}: {self.options.output}; their table: {table_file}")
        return 0

    def _measure_steps(self) -> None:
        if self.options.steps:
            return
        if missing := [name for name in self.configs if name not in self.results["step_times"]]:
            say(f"measuring a step of {', '.join(missing)}")
            configs = {name: self.configs[name] for name in missing}
            machine, times = in_own_process(_step_times, configs, self.options.rounds, self.options.at_once)
            self._add(self.results, {"machine": machine, "step_times": self.results["step_times"] | times})

    def _add(self, to: dict[str, Any], values: dict[str, Any]) -> None:
        """Adds `values` to the part `to` of the results, and writes both files."""
        with self._lock:
            to |= values
            write_results(self.options.output, self.results, table(self.results))

    def _prepared(self, name: str, seed: int) -> Path:
        """A directory with the tokenizer and sequences of a recipe, made once for all recipes that share them."""
        config = load_config(f"experiments/{name}", RunConfig)
        length = config.phases[0].length
        shaped_by = [config.data.model_dump(mode="json"), config.objective.pair, length, seed, self.vocabulary is None]
        key = hashlib.sha256(json.dumps(shaped_by).encode()).hexdigest()[:12]
        directory = self.options.workdir / "data" / key
        if not (directory / f"data/length-{length}/prepared.json").exists():
            command("prepare", f"experiments/{name}", "--workdir", directory, *self._text_flags(seed))
        return directory

    def _text_flags(self, seed: int) -> list[Any]:
        vocabulary = ["--vocabulary.file", self.vocabulary] if self.vocabulary else []
        return ["--data.source", *self.options.source, "--seed", seed, *vocabulary]

    def _complete(self, name: str, seed: int, held_out: Path) -> None:
        """Does the missing parts of one run: the training, its accuracy on the sequences of `held_out`, the tasks."""
        run = self.options.workdir / f"{name}-{seed}"
        with self._lock:
            row: dict[str, Any] = self.results["runs"].setdefault(f"{name} {seed}", {"recipe": name, "seed": seed})
        if "steps" not in row:
            steps, batch_size = self._train(name, seed, run), self.configs[name].phases[0].batch_size
            trained = {"steps": steps, "sequences": steps * batch_size, "plateau": _plateau(run, batch_size)}
            self._add(row, trained | in_own_process(_accuracy, run, held_out, self.options.units))
        for task, flags in self.tasks.items():
            if task not in (scores := row.get("tasks", {})):
                tuned = run.with_name(f"{run.name}-{task}")
                command("finetune", f"finetune/{task}", "--init", run, "--workdir", tuned, "--seed", seed, *flags)
                score = float(read_object(tuned / "results.json")["score"])
                self._add(row, {"tasks": scores | {task: score}})

    def _train(self, name: str, seed: int, run: Path) -> int:
        """Trains a recipe, and before it the one that it starts from; returns the steps of the recipe itself."""
        first = BEGUN_BY.get(name)
        if not first:
            return self._train_alone(name, seed, self.options.seconds, run)
        before = run.with_name(f"{run.name}-first")
        self._train_alone(first, seed, self.options.seconds / 2, before)
        return self._train_alone(name, seed, self.options.seconds / 2, run, "--init", before)

    def _train_alone(self, name: str, seed: int, seconds: float, run: Path, *start: Any) -> int:
        """Trains one run on a copy of its prepared data, or continues it; returns its steps."""
        if not run.exists():
            unfinished = run.with_name(f"{run.name}-copied")
            shutil.rmtree(unfinished, ignore_errors=True)
            ignored = shutil.ignore_patterns("config.json", "manifest.json", ".lock")
            shutil.copytree(self._prepared(name, seed), unfinished, ignore=ignored).rename(run)
        share = seconds / self.options.seconds
        planned = self.options.steps * share if self.options.steps else seconds / step_seconds(self.results, name)
        phases = self.configs[name].phases
        of_phases = [max(1, round(planned * phase.steps / sum(each.steps for each in phases))) for phase in phases]
        steps = sum(of_phases)
        say(f"{name}, seed {seed}: {steps:,} steps")
        every = ["--evaluation.every", steps, "--checkpoints.every", max(1, steps // 4)]
        counts = itertools.chain(*((f"--phases.{number}.steps", count) for number, count in enumerate(of_phases)))
        flags = [*counts, *every, *start, *self._text_flags(seed)]
        command("pretrain", f"experiments/{name}", "--workdir", run, *flags)
        return steps


def _tasks(path: Path) -> dict[str, list[str]]:
    """The flags of each task in the file. Raises UsageError where it can't be read or a task has no config."""
    form = 'an object such as {"sst2": ["--task.train", "rows.tsv"]}'
    try:
        tasks = read_object(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"--tasks {path} can't be read ({error}); give a file that holds {form}") from None
    for task, flags in tasks.items():
        load_config(f"finetune/{task}", FinetuneConfig)
        if not isinstance(flags, list):
            raise UsageError(f"--tasks {path}: {task} has {flags!r} for its flags; give {form}")
    return tasks


def _workers(at_once: int) -> ThreadPoolExecutor:
    """Threads whose processes share this one's cores. Raises UsageError where there are fewer cores than threads."""
    cores, shares = sorted(os.sched_getaffinity(0)), queue.SimpleQueue[list[int]]()
    if not 1 <= at_once <= len(cores):
        raise UsageError(f"--at-once {at_once}: this process may use {len(cores)} cores, so 1 to {len(cores)} runs")
    for worker in range(at_once):
        shares.put(cores[worker::at_once])
    return ThreadPoolExecutor(at_once, initializer=lambda: os.sched_setaffinity(0, shares.get()))


def _step_times(configs: dict[str, RunConfig], rounds: int, at_once: int) -> tuple[str, dict[str, list[float]]]:
    """The machine in words, and of each recipe the seconds of a step, one figure a round."""
    import jax

    from bert_jax.model.placement import platform
    from bert_jax.model.sharding import batch_sharding, make_mesh
    from bert_jax.pretraining.objective import planned_vocabulary_size, pretraining_trainer
    from bert_jax.run.environment import processor
    from bert_jax.training.batch import synthetic_batch

    if platform() != "cpu" and at_once > 1:
        raise UsageError(f"--at-once {at_once}: an accelerator trains one run at a time; leave it out")
    clock = time.process_time if platform() == "cpu" else time.perf_counter
    ready: dict[str, Any] = {}
    times: dict[str, list[float]] = {name: [] for name in configs}
    for name, config in configs.items():
        mesh, phase, pieces = make_mesh(config.mesh), config.phases[0], planned_vocabulary_size(config)
        trainer = pretraining_trainer(config, mesh, pieces, mask_id=4)
        batch = synthetic_batch(phase.batch_size, phase.length, pieces, config.data.sequences_a_row(phase.length))
        batch = jax.device_put(batch, batch_sharding(mesh))
        step = trainer.train_step(0)
        ready[name] = step, batch, jax.block_until_ready(step(trainer.initial_state(), batch)[0])
    for _ in range(rounds):
        for name, (step, batch, state) in ready.items():
            begin = clock()
            for _ in range(STEPS_A_ROUND):
                state, _ = step(state, batch)
            jax.block_until_ready(state)
            times[name].append((clock() - begin) / STEPS_A_ROUND)
            ready[name] = step, batch, state
    cores = len(os.sched_getaffinity(0))
    machine = f"{jax.device_count()} x {jax.devices()[0].device_kind}, {processor()}, {cores} core{'s' * (cores > 1)}"
    return machine, times


def step_seconds(result: dict[str, Any], name: str) -> float:
    """The step time of a recipe."""
    return min(result["step_times"][name])


def _plateau(run: Path, batch_size: int) -> int | None:
    """Sequences seen when the loss of masked tokens was first below PLATEAU_LOSS; None where it never was."""
    lines = [line for line in read_metrics(run / "metrics.jsonl") if line["split"] == "train" and "mlm_loss" in line]
    return next((line["step"] * batch_size for line in lines if line["mlm_loss"] < PLATEAU_LOSS), None)


def _accuracy(run: Path, measured: Path, units: Sequence[UnitKind]) -> dict[str, float]:
    """Loss and accuracy of the run's model on the held-out sequences of the prepared `measured`, by name. All kinds of
    `units` but the first are part of the name."""
    from bert_jax.config.operation import MeshConfig
    from bert_jax.model.sharding import make_mesh, tree_shardings
    from bert_jax.pretraining.dataset import prepared_for
    from bert_jax.pretraining.evaluation import held_out_sequences
    from bert_jax.pretraining.objective import pretraining_trainer
    from bert_jax.run.run_config import read_pretraining_config
    from bert_jax.run.run_directory import RunDirectory
    from bert_jax.run.trained_model import TrainedModel
    from bert_jax.text.tokenizer import load_tokenizer

    model, sequences_of = TrainedModel.open(run).config, RunDirectory(measured)
    if model.causal or model.discriminator:  # it fills no masks from both sides
        return {}
    written = read_pretraining_config(measured).replace(model=model.replace(vocabulary_size=None))
    vocabulary = load_tokenizer(sequences_of.tokenizer).vocabulary
    mesh, figures = make_mesh(MeshConfig()), dict[str, float]()
    _, params = TrainedModel.load(run, lambda shapes: tree_shardings(shapes, mesh))
    for kind in units:
        config = written.change(objective={"units": kind})
        trainer = pretraining_trainer(config, mesh, len(vocabulary), vocabulary.mask_id)
        held_out = held_out_sequences(trainer, 0, prepared_for(config, sequences_of, config.phases[0].length))
        if held_out:
            values, ending = held_out.evaluate(params).metrics, "" if kind == units[0] else f"/{kind}"
            figures |= {name + ending: values[name] for name in ("mlm_accuracy", "mlm_loss")}
    return figures


def command(*arguments: Any) -> str:
    """Runs a command of bert-jax; returns its output. Raises UsageError with the last line of a failure."""
    line = [sys.executable, "-P", "-m", "bert_jax.cli.main", *map(str, arguments)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        RUNNING.add(process)
        printed, stderr = process.communicate()
        RUNNING.discard(process)
    if process.returncode:
        reason = [each.strip() for each in stderr.splitlines() if each.strip()] or ["it said nothing"]
        raise UsageError(f"bert-jax {arguments[0]} {arguments[1]} ended with {process.returncode}: {reason[-1]}")
    return printed


def differ(ours: list[float], theirs: list[float]) -> bool:
    """Whether a difference between the figures of two recipes, one a seed, counts: by the rule above."""
    apart = abs(statistics.mean(ours) - statistics.mean(theirs))
    if min(len(ours), len(theirs)) < 2:
        return apart > SINGLE_SEED_MARGIN * max(map(abs, (*ours, *theirs)))
    squares = sum((len(each) - 1) * statistics.variance(each) for each in (ours, theirs))
    return apart > 2 * math.sqrt(squares / (len(ours) + len(theirs) - 2))


def table(result: dict[str, Any]) -> str:
    """A line a recipe, in Markdown: means over seeds, with standard deviations where there are several."""
    finished = [row for row in result["runs"].values() if "steps" in row]
    tasks = [*dict.fromkeys(task for row in finished for task in row.get("tasks", {}))]
    by_recipe: dict[str, list[dict[str, Any]]] = {}
    for row in finished:
        by_recipe.setdefault(row["recipe"], []).append(row)
    base = _figures(by_recipe.get(result["measured_as"], []), "mlm_accuracy")
    lines = []
    for name, rows in by_recipe.items():
        accuracies, plateaus = _figures(rows, "mlm_accuracy"), [row["plateau"] for row in rows]
        comparable = base and accuracies and name != result["measured_as"]
        columns = {
            "recipe": name,
            **({} if result["steps"] else {">step": f"{step_seconds(result, name) * 1e3:,.1f} ms"}),
            ">steps": f"{rows[0]['steps']:,}",
            ">sequences": f"{rows[0]['sequences']:,}",
            ">plateau": "never" if None in plateaus else f"{statistics.mean(plateaus):,.0f}",
            ">seeds": str(len(rows)),
            ">MLM loss": _spread(_figures(rows, "mlm_loss")),
            ">MLM accuracy": _spread(accuracies),
            ">differs": ("yes" if differ(accuracies, base) else "no") if comparable else "",
            **{f">accuracy, {kind}": _spread(_figures(rows, f"mlm_accuracy/{kind}")) for kind in result["units"][1:]},
        }
        scores = {task: _figures([row.get("tasks", {}) for row in rows], task) for task in tasks}
        lines.append(columns | {f">{task}": _spread(values) for task, values in scores.items()})
    length = f"{result['steps']:,} steps" if result["steps"] else f"{result['machine']}; {result['seconds']:g} s"
    where = f"{length} of training, {result['at_once']} at once"
    return f"{where}; text: {' '.join(result['source'])}\n\n{markdown(lines)}"


def _figures(rows: list[dict[str, Any]], name: str) -> list[float]:
    return [row[name] for row in rows if name in row]


def _spread(values: list[float]) -> str:
    if not values:
        return ""
    return f"{statistics.mean(values):.3f}" + (f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else "")


def _end_runs() -> None:
    for process in RUNNING.copy():
        process.terminate()


def main() -> int:
    """Exits with 2 for wrong use or a run that failed; SIGTERM ends the runs too, which keep their checkpoints."""
    return run_script(lambda: Experiment(Options.parse(sys.argv[1:])).run(), _end_runs)


if __name__ == "__main__":
    sys.exit(main())
