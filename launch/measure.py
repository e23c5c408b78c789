"""Measures base and large on this machine's devices and writes one JSON file and one table.

    .venv/bin/python launch/measure.py --output runs/h100.json
    .venv/bin/python launch/measure.py --output runs/h100.json --configs base --lengths 512 --batch-sizes 256
    .venv/bin/python launch/measure.py --output runs/tiny.json --tiny          # a minute of a CPU, to try it

A case is a configuration, a length, what is dropped, and a form of attention. Each is measured by `bert-jax bench` in a
process of its own, with the compiler flags of launch/flags.sh: one that runs out of memory costs its own row only. Of
the batch sizes the first that fits is measured; those that are hopeless by formula aren't tried. What a device can't do
is said in its row. Both files are written after each case. The same command goes on where it was stopped, and tries
again what failed. Flags of `bert-jax bench` that aren't named here are passed on to it, such as --execution.remat full.
"""

import functools
import itertools
import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NamedTuple

from scripts import results_before, run_script, write_results

from bert_jax.cli.arguments import Arguments
from bert_jax.system.errors import UsageError
from bert_jax.system.figures import markdown
from bert_jax.system.progress import say
from bert_jax.system.workers import in_own_process

ROOT = Path(__file__).parents[1]
DROPOUT = {
    "all": [],
    "outputs": ["--model.attention-dropout", "0"],
    "none": ["--model.attention-dropout", "0", "--model.dropout", "0"],
}
"""What is dropped, and the flags of bench for it: all that the config says; not attention's probabilities; nothing."""
BENCH = '. launch/flags.sh; tpu_flags; exec "$@"'
"""Runs its arguments with the compiler flags of the launchers, each of which one kind of device reads."""
_REFUSED = UsageError.exit_code
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""Exit codes of a process that Linux ends when memory runs out."""
MANUAL = __doc__
"""Text of --help; `__doc__` within a class is that of the class."""


class Options(Arguments):
    """The cases to measure, and the files of the results."""

    LINE = "python launch/measure.py"
    TEXT = MANUAL

    output: Path
    """The JSON file; the table is beside it, with the ending .md."""
    configs: tuple[str, ...] = ("base", "large")
    """Names or files of configurations."""
    lengths: tuple[int, ...] = (128, 512)
    """Tokens a sequence."""
    dropout: tuple[Literal["all", "outputs", "none"], ...] = ("all", "outputs")
    """What is dropped: all that the configuration says, all but attention's probabilities, or nothing."""
    attention: tuple[Literal["exact", "gpu", "tpu"], ...] = ("exact", "gpu", "tpu")
    """Forms of attention (execution.attention)."""
    batch_sizes: tuple[int, ...] = (1024, 512, 256, 128, 64, 32, 16, 8)
    """Sequences a step, of which the first that fits is measured."""
    seconds: float = 10.0
    """Seconds that bench measures each part for."""
    minutes: float = 8.0
    """Minutes after which the process of a case is ended."""
    tiny: bool = False
    """Measure configs/tiny.py on short sequences for a moment, in place of what the other flags say."""

    def fitted(self) -> "Options":
        """What is measured in the end: the tiny sizes where they are asked for."""
        return self.replace(configs=("tiny",), lengths=(16,), batch_sizes=(8, 4), seconds=0.1) if self.tiny else self


def split(words: list[str]) -> tuple[list[str], list[str]]:
    """The words of a command line that belong to Options, and the others, which are bench's."""
    names = {"--help", "--help-all", *(f"--{flag.name}" for flag in Options.flags())}
    parts: dict[bool, list[str]] = {True: [], False: []}
    own = True
    for word in words:
        if word.startswith("--"):
            own = word.partition("=")[0].replace("_", "-") in names
        parts[own].append(word)
    return parts[True], parts[False]


class Case(NamedTuple):
    """One row of the table."""

    config: str
    length: int
    dropout: str
    attention: str

    def flags(self, batch_size: int) -> list[str]:
        """The arguments of bench."""
        sizes = ["--length", str(self.length), "--batch-size", str(batch_size)]
        return [self.config, *sizes, *DROPOUT[self.dropout], "--execution.attention", self.attention]


class Prospect(NamedTuple):
    """Forecast for a case, by formula."""

    refused: str | None
    """Why it can't be measured here, in a line."""
    batch_sizes: list[int]
    """Those that aren't hopeless by the formula for memory, in the order given."""


class Machine(NamedTuple):
    """The devices, and the forecast for each case on them."""

    device: str
    devices: int
    prospects: dict[Case, Prospect]


class Attempt(NamedTuple):
    """How a process of bench ended."""

    code: int | None
    """Its exit code; None where it took too long."""
    output: str
    errors: str


def examine(cases: list[Case], batch_sizes: tuple[int, ...], settings: list[str]) -> Machine:
    """Looks at the devices, in a process of its own."""
    import jax

    prospects = {case: _prospect(case, batch_sizes, settings) for case in cases}
    return Machine(jax.devices()[0].device_kind, len(jax.devices()), prospects)


def _prospect(case: Case, batch_sizes: tuple[int, ...], settings: list[str]) -> Prospect:
    from bert_jax.cli.bench import Bench
    from bert_jax.config.run import RunConfig
    from bert_jax.model.kernels.attention_forms import check_attention
    from bert_jax.model.sharding import check_batch_size, make_mesh
    from bert_jax.model.size import step_memory
    from bert_jax.pretraining.objective import expected_vocabulary_size
    from bert_jax.training.devices import TOO_MUCH, device_memory, gigabytes
    from bert_jax.training.optimizer import make_optimizer

    arguments = Bench.parse(case.flags(batch_sizes[0]) + settings)  # a wrong flag ends it all
    config = arguments.config
    assert isinstance(config, RunConfig), "the cases are configs of pretraining"
    model = config.model.replace(vocabulary_size=expected_vocabulary_size(config, arguments.opened))
    mesh = make_mesh(config.mesh)
    there = device_memory(mesh.local_devices[0])
    slots, sequences = config.slots(case.length), config.data.sequences_a_row(case.length)
    optimizer = make_optimizer(config.optimizer)
    reason, hopeful = "no batch size is given", []
    for size in batch_sizes:
        phase = config.phases[0].replace(batch_size=size, length=case.length)
        try:
            check_batch_size(size, config.execution.accumulation, mesh)
            check_attention(config.execution, model, [(case.length, sequences)], mesh)
        except UsageError as error:
            reason = str(error)
            continue
        memory = step_memory(config.execution, model, mesh, phase, optimizer, predictions=slots, packed=sequences)
        needed = memory.total
        if there and needed > TOO_MUCH * there:
            reason = f"{size:,} sequences take about {gigabytes(needed)} by formula, and there are {gigabytes(there)}"
        else:
            hopeful.append(size)
    return Prospect(None if hopeful else reason, hopeful)


def run_bench(flags: list[str], minutes: float) -> Attempt:
    """Runs bench with these arguments in a process of its own."""
    command = ["bash", "-c", BENCH, "bench", sys.executable, "-P", "-m", "bert_jax", "bench", *flags]
    try:
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60 * minutes)
    except subprocess.TimeoutExpired:
        return Attempt(None, "", f"ended after {minutes:g} minutes")
    return Attempt(ended.returncode, ended.stdout, ended.stderr)


def row_of(case: Case, prospect: Prospect, attempt: Callable[[list[str]], Attempt]) -> dict[str, Any]:
    """Measures a case with the first of its batch sizes that fits; tells what is in the way where none does."""
    row = case._asdict() | {"batch_size": None, "bench": None, "remark": prospect.refused, "failed": False}
    if prospect.refused:
        return row
    for size in prospect.batch_sizes:
        say(f"{case.config}, {case.length} tokens, dropout {case.dropout}, attention {case.attention}: {size:,} a step")
        ended = attempt(case.flags(size))
        if ended.code == 0:
            return row | {"batch_size": size, "bench": json.loads(ended.output.strip().splitlines()[-1])}
        if not ("RESOURCE_EXHAUSTED" in ended.errors or ended.code in _KILLED):
            return row | {"batch_size": size, "remark": _reason(ended.errors), "failed": ended.code != _REFUSED}
    return row | {"remark": f"not even {size:,} sequences fit into memory"}


def _reason(errors: str) -> str:
    """The line of the error in what a process said, which in a traceback isn't always the last one."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()] or ["it said nothing"]
    named = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return (named or lines)[-1][:300]


def measure(
    options: Options,
    settings: list[str],
    look: Callable[..., Machine] | None = None,
    run: Callable[..., Attempt] = run_bench,
) -> bool:
    """Measures the cases that the file doesn't hold yet; returns whether any failed.

    Raises UsageError where the file holds measurements of other devices or settings.
    """
    cases = [
        Case(*each) for each in itertools.product(options.configs, options.lengths, options.dropout, options.attention)
    ]
    look = look or functools.partial(in_own_process, examine)
    machine = look(cases, options.batch_sizes, settings)
    result: dict[str, Any] = {"device": machine.device, "devices": machine.devices, "settings": settings}
    result |= {"batch_sizes": [*options.batch_sizes], "seconds": options.seconds}
    rows = results_before(options.output, result, _rows_by_case) or {}
    result["versions"] = {name: version(name) for name in ("jax", "jaxlib")}

    def attempt(flags: list[str]) -> Attempt:
        return run([*flags, "--seconds", str(options.seconds), *settings], options.minutes)

    for case in cases:
        if case not in rows or rows[case]["failed"]:
            rows[case] = row_of(case, machine.prospects[case], attempt)
        result["cases"] = list(rows.values())
        write_results(options.output, result, table(result))
    say(f"{len(rows)} cases are in {options.output}, their table in {options.output.with_suffix('.md')}")
    return any(rows[case]["failed"] for case in cases)


def _rows_by_case(result: dict[str, Any]) -> dict[Case, dict[str, Any]]:
    return {Case(*(row[name] for name in Case._fields)): row for row in result["cases"]}


def table(result: dict[str, Any]) -> str:
    """The rows in Markdown, below the devices and the versions that they are of."""
    made_by = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    passed = f", with {shlex.join(result['settings'])}" if result["settings"] else ""
    rows = markdown([_cells(row) for row in result["cases"]])
    return f"{result['devices']} x {result['device']}; {made_by}; bert-jax bench{passed}\n\n{rows}"


def _cells(row: dict[str, Any]) -> dict[str, str]:
    cells = {"config": row["config"], "tokens": f"{row['length']:,}"}
    cells |= {"dropout": row["dropout"], "attention": row["attention"]}
    if bench := row["bench"]:
        step = bench["parts"][-1]["time"]
        cells |= {
            ">sequences a step": f"{row['batch_size']:,}",
            ">step": f"{step['median'] * 1e3:,.1f} ms",
            ">80% of steps": f"{step['low'] * 1e3:,.1f} to {step['high'] * 1e3:,.1f} ms",
            ">sequences/s": f"{bench['sequences_per_second']:,.1f}",
            ">MFU": "" if bench["mfu"] is None else f"{bench['mfu']:.1%}",
            ">of the matrix rate": f"{bench['share_of_matrix_rate']:.1%}",
            ">peak memory": f"{bench['peak_memory_bytes'] / 1e9:,.1f} GB",
            ">compilation": f"{bench['compile_seconds']:,.1f} s",
        }
    return cells | {"remark": row["remark"] or ""}


def main() -> int:
    """Exits with 2 for wrong use, 1 where a case failed, 143 for SIGTERM, which ends the process of bench too."""
    own, settings = split(sys.argv[1:])
    return run_script(lambda: int(measure(Options.parse(own).fitted(), settings)))


if __name__ == "__main__":
    sys.exit(main())
