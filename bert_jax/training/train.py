"""Trains a run from its newest checkpoint to its end."""

import contextlib
from collections.abc import Callable, Iterator

import jax

from bert_jax.model.bert import Parameters
from bert_jax.model.linear import compute_dtype
from bert_jax.run.checkpoint import Checkpoints
from bert_jax.run.hosts import is_first
from bert_jax.run.manifest import noted_metrics
from bert_jax.run.metrics import MetricsLog, changed_lines
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.state import TrainState
from bert_jax.run.tracking import open_trackers
from bert_jax.system.errors import BertJaxError, Interrupted
from bert_jax.system.journal import note, open_journal
from bert_jax.system.progress import say, tell, warn
from bert_jax.training.devices import peak_flops
from bert_jax.training.loop import run_phases
from bert_jax.training.phase_work import PhaseWork
from bert_jax.training.profile import StepTrace
from bert_jax.training.trainer import Trainer
from bert_jax.training.trust import check_compiler


@contextlib.contextmanager
def _failures_noted() -> Iterator[None]:
    """Adds a failure of the code within to the run's journal, and closes the journal."""
    try:
        yield
    except Interrupted:
        raise  # the loop noted it, with the checkpoint
    except Exception as error:
        note("failed", str(error) if isinstance(error, BertJaxError) else f"{type(error).__name__}: {error}")
        raise
    finally:
        open_journal(None)


@_failures_noted()
def train(
    trainer: Trainer, run: RunDirectory, phases: list[PhaseWork], initial: Callable[[], Parameters | None]
) -> TrainState:
    """Does the steps of `run` that are left, from its newest good checkpoint or from `initial` parameters.

    Raises what `run_phases` does, and RunError where the compiler can't be trusted on this machine.
    """
    check_compiler()
    config = trainer.config
    carried = (run.config_file, run.tokenizer)
    checkpoints = Checkpoints(
        run.checkpoints, carried, config.checkpoints.keep, run.check_owner, config.checkpoints.keep_every
    )
    state = checkpoints.restore(trainer.state_shapes)
    if state is None:
        if aside := sorted(path.name for path in run.checkpoints.glob("damaged-*")):
            warn(f"{run.path} has no good checkpoint left ({', '.join(aside)}): it begins anew")
        state = trainer.initial_state(initial())
        note("begun", f"{config.steps:,} steps")
    elif state.step:
        tell("resumed", f"going on from step {int(state.step):,}")
        if config.profiled and config.profiled[-1] <= state.step:
            say(f"profile_steps={config.profile_steps} are done already: no trace is written")
    if is_first() and (changed := changed_lines(run.metrics_file, noted_metrics(run.checkpoints, int(state.step)))):
        warn(f"{run.metrics_file}: {changed}; training goes on")
    model = trainer.objective.model
    say(f"computing in {compute_dtype(model).name} (model.compute_dtype={model.compute_dtype})")
    trackers, finished = open_trackers(config, run.path), False
    log = MetricsLog(run.path, int(state.step), config.logging.tensorboard, trackers)
    all_peaks = (peak_flops(jax.devices()[0]) or 0) * trainer.mesh.size or None
    try:
        with StepTrace(config.profiled if is_first() else range(0), run.profile) as trace:
            last = run_phases(state, phases, checkpoints, log, trace, config, all_peaks)
        finished = True
        note("finished", f"step {int(last.step):,}")
        return last
    finally:
        log.close()
        for tracker in trackers:
            tracker.close(finished)
        checkpoints.close()
