"""Trains recipes of pretraining for the same time on this machine and writes one JSON file and one table.

    .venv/bin/python launch/experiments.py --output runs/experiments.json --source "text:corpus/*.txt.gz"
    .venv/bin/python launch/experiments.py --output runs/experiments.json --source "text:corpus/*.txt.gz" \
      --recipes full_sentences modern_muon --seeds 0 1 2 --tasks tasks.json

A recipe is one of configs/experiments.py, with one phase. Before any run these are the rules:

* Time. Some steps of every recipe are measured, in turn, `--rounds` times, and the least is its step time: on a CPU the
  processor time of all threads, which other work hardly changes, elsewhere the time that passes. A recipe takes as many
  steps as fit into `--seconds` at that time, with its schedule planned for them, so that what else the machine does
  meanwhile changes nothing. `--at-once` runs on a CPU share its cores out among them, for measuring a step, too.
* Text. All recipes have the vocabulary made from the training documents, and the same documents are held out.
* Measure. Accuracy of masked tokens on the held-out documents as whole sentences of the same length, 15% of the tokens
  masked, the same sequences and the same masks for every model, whatever it was trained on. A recipe that can't be
  measured so (one that only predicts next tokens, say) has no figure.
* Plateau. How many sequences had been trained on when the mean training loss of masked tokens first was below 6.0. It
  stands above for as long as a model knows only how frequent words are.
* Tasks. The file of `--tasks` holds an object: the name of a fine-tuning config, and the flags of `bert-jax finetune`
  that name its rows. Each trained model is fine-tuned once on each, with its own seed.
* Difference. It counts where the means over seeds differ by more than twice the pooled standard deviation. Where either
  has a single seed, none within 2% of the larger counts.

Both files are written after each run. The same command goes on where it was stopped, and takes more recipes and seeds.
"""

import hashlib
import json
import math
import multiprocessing
import os
import queue
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from bert_jax.cli.arguments import Arguments, Command
from bert_jax.cli.config_files import load_config
from bert_jax.cli.tables import markdown
from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.run import RunConfig
from bert_jax.run.metrics import read_metrics
from bert_jax.system.errors import BertJaxError, UsageError
from bert_jax.system.files import write_json, write_text
from bert_jax.system.json_file import read_object
from bert_jax.system.progress import complain, say

ROOT = Path(__file__).parents[1]
MEASURED_AS = "full_sentences"
"""The recipe whose held-out sequences every model is measured on, and with which all are compared."""
BEGUN_BY = {"left_to_right_then_masked": "left_to_right"}
"""A recipe that starts from another's parameters -> that other. Each has half of the time."""
PLATEAU_LOSS = 6.0
"""Loss of masked tokens that shows more than the frequencies of words."""
STEPS_A_ROUND = 10
"""Steps that are measured together."""
SINGLE_SEED_MARGIN = 0.02
"""Share of the larger figure within which single runs are alike."""
RUNNING: set[subprocess.Popen[str]] = set()
"""The commands at work, which end with this one."""


class Options(Arguments):
    """What is trained, and where the results go."""

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
    rounds: Annotated[int, Field(gt=0)] = 5
    """How often the step of each recipe is measured."""
    tasks: Path | None = None
    """A JSON file of tasks to fine-tune on."""


COMMAND = Command("launch/experiments.py", Options, __doc__, program="python")


def experiment(options: Options) -> None:
    """Trains and measures the recipes and seeds that the file doesn't hold yet.

    Raises UsageError where the file holds results of other text or time, a recipe has several phases, or what is asked
    can't be done.
    """
    tasks = _tasks(options.tasks) if options.tasks else {}
    needed = [*dict.fromkeys(name for recipe in options.recipes for name in (BEGUN_BY.get(recipe), recipe) if name)]
    configs = {name: load_config(f"experiments/{name}") for name in needed}
    if several := [name for name, config in configs.items() if len(config.phases) > 1]:
        raise UsageError(f"{', '.join(several)}: more than one phase, of which the steps can't be set; keep one")
    same = {"source": list(options.source), "seconds": options.seconds, "at_once": options.at_once}
    results = Results(options.output, same)
    with _workers(options.at_once) as pool:
        measured = prepared(options, load_config(f"experiments/{MEASURED_AS}"), 0)
        pool.submit(calibrate, options, configs, results).result()
        common = Experiment(options, configs, tasks, results, measured)
        for seed in options.seeds:
            for config in configs.values():  # now, as two runs that share sequences must not both make them
                prepared(options, config, seed, common.vocabulary)
        runs = [pool.submit(common.complete, name, seed) for seed in options.seeds for name in options.recipes]
        try:
            for run in wait(runs, return_when=FIRST_EXCEPTION).done:
                run.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    table_file = options.output.with_suffix(".md")
    say(f"{len(results.values['runs'])} runs are in {options.output}, their table in {table_file}")


def _tasks(path: Path) -> dict[str, list[str]]:
    """The tasks that the file names, with their flags. Raises UsageError where it can't be read or names another."""
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


class Results:
    """What was measured, in the JSON file and in the table; several threads may add to it."""

    def __init__(self, path: Path, same: dict[str, Any]):
        """Goes on with the file. Raises UsageError where it was measured with other than `same`."""
        self.path, self._lock = path, threading.Lock()
        self.values: dict[str, Any] = same | {"machine": None, "step_times": {}, "runs": {}}
        if path.exists():
            before = read_object(path)
            if differing := {name: before.get(name) for name in same if before.get(name) != same[name]}:
                now = {name: same[name] for name in differing}
                raise UsageError(f"{path} was measured with {differing} and this would be {now}; give another --output")
            self.values = before

    def row(self, name: str, seed: int) -> dict[str, Any]:
        """The figures of one run."""
        with self._lock:
            row: dict[str, Any] = self.values["runs"].setdefault(f"{name} {seed}", {"recipe": name, "seed": seed})
            return row

    def add(self, to: dict[str, Any], values: dict[str, Any]) -> None:
        """Adds `values` to the part `to` of what was measured, and writes both files."""
        with self._lock:
            to |= values
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self.path, self.values)
            write_text(self.path.with_suffix(".md"), table(self.values))


def prepared(options: Options, config: RunConfig, seed: int, vocabulary: Path | None = None) -> Path:
    """A directory with the tokenizer and the sequences of `config`, made once for all recipes that share them."""
    lengths = [phase.length for phase in config.phases]
    shaped_by = [config.data.model_dump(mode="json"), config.objective.pair, lengths, seed, vocabulary is None]
    name = hashlib.sha256(json.dumps(shaped_by).encode()).hexdigest()[:12]
    directory, path = options.workdir / "data" / name, options.workdir / "data" / f"{name}.py"
    if not (directory / f"data/length-{lengths[0]}/prepared.json").exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        command("prepare", *_written(config, path), "--workdir", directory, *_of_text(options, vocabulary, seed))
    return directory


def calibrate(options: Options, configs: dict[str, RunConfig], results: Results) -> None:
    """Measures the steps that `results` doesn't hold yet."""
    if missing := [name for name in configs if name not in results.values["step_times"]]:
        say(f"measuring a step of {', '.join(missing)}")
        of = {name: configs[name] for name in missing}
        machine, times = _alone(_step_times, of, options.rounds, options.at_once)
        results.add(results.values, {"machine": machine, "step_times": results.values["step_times"] | times})


def _step_times(configs: dict[str, RunConfig], rounds: int, at_once: int) -> tuple[str, dict[str, list[float]]]:
    """The machine in words, and of each recipe the seconds of a step, one figure a round."""
    import jax

    from bert_jax.model.placement import platform
    from bert_jax.model.sharding import batch_sharding, make_mesh
    from bert_jax.planning.bench_record import processor
    from bert_jax.pretraining.objective import planned_vocabulary_size, pretraining_trainer
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


@dataclass(frozen=True)
class Experiment:
    """What all runs have in common."""

    options: Options
    configs: dict[str, RunConfig]
    tasks: dict[str, list[str]]
    results: Results
    measured: Path
    """Directory with the vocabulary of all, and the held-out sequences that all are measured on."""

    @property
    def vocabulary(self) -> Path:
        return self.measured / "tokenizer/vocab.txt"

    def complete(self, name: str, seed: int) -> None:
        """Does what is missing of one run: the training, its accuracy, the tasks."""
        row, run = self.results.row(name, seed), _run_of(self.options, name, seed)
        if "steps" not in row:
            steps, batch_size = self.train(name, seed), self.configs[name].phases[0].batch_size
            accuracy = _alone(_accuracy, run, self.measured)
            trained = {"steps": steps, "sequences": steps * batch_size, "plateau": _plateau(run, batch_size)}
            self.results.add(row, trained | accuracy)
        for task, flags in self.tasks.items():
            if task not in (scores := row.get("tasks", {})):
                self.results.add(row, {"tasks": scores | {task: fine_tuned(task, flags, run, seed)}})

    def train(self, name: str, seed: int) -> int:
        """Trains a recipe, and before it the one that it starts from; returns the steps of the recipe itself."""
        run, first, seconds, start = _run_of(self.options, name, seed), BEGUN_BY.get(name), self.options.seconds, []
        if first:
            seconds, before = seconds / 2, run.with_name(f"{run.name}-first")
            self._train_alone(first, seed, self._steps(first, seconds), before, [])
            start = ["--init", before]
        steps = self._steps(name, seconds)
        self._train_alone(name, seed, steps, run, start)
        return steps

    def _steps(self, name: str, seconds: float) -> int:
        return max(1, round(seconds / step_seconds(self.results.values, name)))

    def _train_alone(self, name: str, seed: int, steps: int, run: Path, start: list[Any]) -> None:
        """Trains one run on a copy of its prepared data; goes on with one that was stopped."""
        config = self.configs[name]
        if not run.exists():
            of_text = prepared(self.options, config, seed, self.vocabulary)
            unfinished = run.with_name(f"{run.name}-copied")
            shutil.rmtree(unfinished, ignore_errors=True)
            ignored = shutil.ignore_patterns("config.json", "manifest.json", ".lock")
            shutil.copytree(of_text, unfinished, ignore=ignored).rename(run)
        config = config.replace(
            phases=(config.phases[0].replace(steps=steps),),
            evaluation=config.evaluation.replace(every=steps),
            checkpoints=config.checkpoints.replace(every=max(1, steps // 4)),
        )
        recipe = _written(config, run.with_name(f"{run.name}.py"))
        say(f"{name}, seed {seed}: {steps:,} steps")
        command("pretrain", *recipe, "--workdir", run, *start, *_of_text(self.options, self.vocabulary, seed))


def _run_of(options: Options, name: str, seed: int) -> Path:
    return options.workdir / f"{name}-{seed}"


def _plateau(run: Path, batch_size: int) -> int | None:
    """Sequences seen when the loss of masked tokens was first below PLATEAU_LOSS; None where it never was."""
    lines = [line for line in read_metrics(run / "metrics.jsonl") if line["split"] == "train" and "mlm_loss" in line]
    return next((line["step"] * batch_size for line in lines if line["mlm_loss"] < PLATEAU_LOSS), None)


def _written(config: RunConfig, path: Path) -> list[Path]:
    """Writes `config` as a file that the commands take."""
    settings = json.dumps(config.model_dump(mode="json"))
    write_text(
        path,
        '"""A recipe of launch/experiments.py."""\n\nimport json\n\nfrom bert_jax.config.run import RunConfig\n\n'
        f"config = RunConfig.model_validate(json.loads({settings!r}))\n",
    )
    return [path]


def _of_text(options: Options, vocabulary: Path | None, seed: int) -> list[Any]:
    """The flags for text, vocabulary and seed."""
    return [
        "--data.source",
        *options.source,
        "--seed",
        seed,
        *(["--vocabulary.file", vocabulary] if vocabulary else []),
    ]


def fine_tuned(task: str, flags: list[str], run: Path, seed: int) -> float:
    """The score of one fine-tuning of `run`."""
    workdir = run.with_name(f"{run.name}-{task}")
    command("finetune", f"finetune/{task}", "--init", run, "--workdir", workdir, "--seed", seed, *flags)
    return float(read_object(workdir / "results.json")["score"])


def _alone(function: Any, *arguments: Any) -> Any:
    """Calls in a process of its own: this one has to leave the devices to those that train."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def _accuracy(run: Path, measured: Path) -> dict[str, float]:
    """Loss and accuracy of the run's model on the held-out sequences of the prepared `measured`."""
    from bert_jax.config.operation import MeshConfig
    from bert_jax.model.sharding import make_mesh, tree_shardings
    from bert_jax.pretraining.dataset import prepared_for
    from bert_jax.pretraining.objective import pretraining_trainer
    from bert_jax.pretraining.pretrain import held_out_sequences
    from bert_jax.run.run_config import read_pretraining_config
    from bert_jax.run.run_directory import RunDirectory
    from bert_jax.run.trained_model import TrainedModel
    from bert_jax.text.tokenizer import load_tokenizer

    model, sequences_of = TrainedModel.open(run).config, RunDirectory(measured)
    if model.causal or model.discriminator:  # it fills no masks from both sides
        return {}
    config = read_pretraining_config(measured).replace(model=model.replace(vocabulary_size=None))
    vocabulary = load_tokenizer(sequences_of.tokenizer).vocabulary
    trainer = pretraining_trainer(config, make_mesh(MeshConfig()), len(vocabulary), vocabulary.mask_id)
    _, params = TrainedModel.load(run, lambda shapes: tree_shardings(shapes, trainer.mesh))
    held_out = held_out_sequences(trainer, 0, prepared_for(config, sequences_of, config.phases[0].length))
    values = held_out.evaluate(params) if held_out else None
    return {name: values[name] for name in ("mlm_accuracy", "mlm_loss")} if values else {}


def command(*arguments: Any) -> str:
    """What a command of bert-jax prints. Raises UsageError with its last line where it fails."""
    line = [sys.executable, "-m", "bert_jax.cli.main", *map(str, arguments)]
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
    by_recipe = {name: [row for row in finished if row["recipe"] == name] for name in _names(finished)}
    base = [row["mlm_accuracy"] for row in by_recipe.get(MEASURED_AS, [])]
    lines = []
    for name, rows in by_recipe.items():
        accuracies = [row["mlm_accuracy"] for row in rows if "mlm_accuracy" in row]
        comparable = base and accuracies and name != MEASURED_AS
        verdict = ("yes" if differ(accuracies, base) else "no") if comparable else ""
        plateaus = [row["plateau"] for row in rows]
        figures = [[row["tasks"][task] for row in rows if task in row.get("tasks", {})] for task in tasks]
        lines.append(
            [
                name,
                f"{step_seconds(result, name) * 1e3:,.1f} ms",
                f"{rows[0]['steps']:,}",
                f"{rows[0]['sequences']:,}",
                "never" if None in plateaus else f"{statistics.mean(plateaus):,.0f}",
                str(len(rows)),
                _spread([row["mlm_loss"] for row in rows if "mlm_loss" in row]),
                _spread(accuracies),
                verdict,
                *map(_spread, figures),
            ]
        )
    where = f"{result['machine']}; {result['seconds']:g} s of training, {result['at_once']} at once"
    numbers = ("step", "steps", "sequences", "plateau", "seeds", "MLM loss", "MLM accuracy", "differs", *tasks)
    body = markdown(["recipe", *(f">{name}" for name in numbers)], lines)
    return f"{where}; text: {' '.join(result['source'])}\n\n{body}"


def _names(rows: Iterable[dict[str, Any]]) -> list[str]:
    return [*dict.fromkeys(row["recipe"] for row in rows)]


def _spread(values: list[float]) -> str:
    if not values:
        return ""
    return f"{statistics.mean(values):.3f}" + (f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else "")


def _end(*_: Any) -> None:
    """Ends the processes that train, too, which keep what they have."""
    for process in RUNNING.copy():
        process.terminate()
    sys.exit(128 + signal.SIGTERM)


def main() -> int:
    """Exits with 2 for wrong use or a run that failed, 143 for SIGTERM."""
    signal.signal(signal.SIGTERM, _end)
    try:
        experiment(COMMAND.parse(sys.argv[1:]))
    except BertJaxError as error:
        complain(str(error))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
