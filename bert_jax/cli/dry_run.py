"""bert-jax pretrain or finetune ... --dry-run: prints what a training would do, and does nothing."""

import math

from rich.markup import escape
from rich.table import Table

from bert_jax.planning.planned_run import (
    PlannedCheckpoints,
    PlannedPhase,
    PlannedRun,
    PlannedTask,
    PlannedVocabulary,
    StoredData,
    UnpreparedData,
)
from bert_jax.system.progress import output
from bert_jax.training.devices import gigabytes


def print_planned(plan: PlannedRun) -> None:
    """Prints what a training would do, as a table of two columns."""
    table = Table(title=f"bert-jax {'finetune' if plan.task else 'pretrain'} would", title_justify="left")
    table.show_header = False
    table.add_column()
    table.add_column()
    table.add_row("run", f"{escape(str(plan.path))}: {_beginning(plan)}")
    axes = " x ".join(f"{name} {size}" for name, size in plan.mesh.items())
    devices = f"{math.prod(plan.mesh.values())} x {plan.device_kind}, as {axes}"
    table.add_row("devices", f"{devices}; {plan.processes} process(es); {plan.compute_dtype}")
    if plan.vocabulary:
        table.add_row("vocabulary", _vocabulary(plan.vocabulary))
    for data in plan.data:
        table.add_row(f"data, length {data.length}", _data(data))
    if plan.task:
        _add_task(table, plan.task)
    for number, phase in enumerate(plan.phases):
        table.add_row(f"{plan.task.epochs:g} epochs" if plan.task else f"phase {number}", _phase(phase))
    for phase in plan.phases:
        table.add_row(f"memory, length {phase.settings.length}", _memory(phase, plan.device_memory))
    table.add_row("checkpoints", _checkpoints(plan.checkpoints))
    output.print(table)


def _beginning(plan: PlannedRun) -> str:
    return {
        "new": f"a new one of {plan.steps:,} steps",
        "continued": f"go on from step {plan.newest_step:,} of {plan.steps:,}",
        "finished": "finished: nothing to do",
        "anew": "begin anew",
        "deleted": f"the run there, at step {plan.newest_step:,}, would be deleted; begin anew",
    }[plan.beginning]


def _vocabulary(vocabulary: PlannedVocabulary) -> str:
    directory = escape(str(vocabulary.directory))
    how = {
        "there": f"there: {directory}",
        "given": f"read from {escape(str(vocabulary.given))}",
        "trained": f"{vocabulary.kind}, trained on the text if {directory} doesn't hold it yet",
    }[vocabulary.source]
    return f"{vocabulary.pieces:,} pieces, {how}"


def _data(data: StoredData | UnpreparedData) -> str:
    if isinstance(data, StoredData):
        training = f"{data.training:,} packed training rows" if data.packed else f"{data.training:,} training sequences"
        return f"there: {training}, {data.held_out:,} sequences held out, {gigabytes(data.bytes)}"
    replaced = "; what is there is of other settings or text and is deleted" if data.replaces else ""
    return f"to be prepared from {escape(' '.join(data.sources))}: {data.size:,.4g} {data.unit} as stored{replaced}"


def _add_task(table: Table, task: PlannedTask) -> None:
    if task.runs > 1:
        table.add_row("seeds", f"{task.runs:,} runs like this, one after the other")
    table.add_row("start from", f"{escape(task.init)}: {task.layers} layers of width {task.width:,}")
    sequences = f"{task.sequences:,} sequences padded to {', '.join(map(str, task.lengths))}"
    table.add_row("training rows", f"{task.rows:,} of {escape(task.train)}, {sequences}")
    measured = "none: no measurement" if task.dev is None else f"{task.dev_rows:,} of {escape(task.dev)}"
    table.add_row("dev rows", measured)
    if task.labels:
        table.add_row("labels", escape(", ".join(task.labels)))


def _phase(phase: PlannedPhase) -> str:
    settings = phase.settings
    steps = f"{settings.steps:,} steps" + (f" ({phase.left:,} left)" if phase.done else "")
    parts = [f"{steps} of {settings.batch(phase.packed)}"]
    parts.append(f"{phase.most_tokens:.3e} tokens at most")
    if phase.flops is not None:
        parts.append(f"{phase.flops:.3e} FLOPs of matrix products")
    return ", ".join(parts)


def _memory(phase: PlannedPhase, there: int | None) -> str:
    """The memory of a step on one device and its parts; `there`: bytes that one device has."""
    parts = ", ".join(f"{name} {gigabytes(size)}" for name, size in phase.memory._asdict().items())
    has = f" of {gigabytes(there)}" if there else ""
    return f"about {gigabytes(phase.memory.total)}{has} a device by formula: {parts}"


def _checkpoints(checkpoints: PlannedCheckpoints) -> str:
    said = f"{gigabytes(checkpoints.bytes)} each, every {checkpoints.every:,} steps; "
    said += f"{gigabytes(checkpoints.most_bytes)} at most"
    if checkpoints.free_bytes is not None:
        little = ": too little" if checkpoints.free_bytes < checkpoints.most_bytes else ""
        said += f"; {gigabytes(checkpoints.free_bytes)} are free{little}"
    return said
