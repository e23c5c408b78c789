"""Says in words what `finetune` would do, and writes nothing to the run."""

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.wording import counted
from bert_jax.finetuning.finetune import estimated_memory, plan_finetuning
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.bucket import Place
from bert_jax.training.estimate import Lines, checkpoints_line, memory_line, read_as, run_beginning, steps_in_words


def finetuning_estimates(config: FinetuneConfig, workdir: Place) -> Lines:
    """Yields what `bert-jax finetune` would do in `workdir`.

    Reads the rows of the task and writes nothing. Raises UsageError if the training would refuse to start.
    """
    run = RunDirectory(workdir)
    plan = plan_finetuning(config, run)
    mesh = plan.mesh
    task, model, phase = plan.config.task, plan.started.config, plan.config.phases[0]
    yield from run_beginning(plan.config, run, mesh)
    yield "start from", f"{config.init}: {counted(model.num_layers, 'layers')} of width {model.hidden_size:,}"
    yield from read_as(plan.started.provenance.readings)
    packed = f"{plan.batches.sequences:,.0f} sequences a step"
    yield "training rows", f"{plan.learned.rows:,} of {task.train or task.source}, {packed}"
    dev = task.dev_in_words or "the same corpus"
    yield "dev rows", f"{len(plan.measured.records):,} of {dev}" if plan.measured else "none: no measurement"
    yield from read_as(plan.readings)
    batch = (
        f"{plan.config.batch_in_words(0)}, in at most {counted(phase.batch_size, 'packed rows')} of {phase.length:,} "
        "tokens"
    )
    yield counted(task.epochs, "epochs"), steps_in_words(phase, run.newest_step or 0, batch)
    memory = estimated_memory(plan.config, mesh)
    yield memory_line(phase, memory, mesh)
    yield checkpoints_line(plan.config, workdir, memory, mesh)
