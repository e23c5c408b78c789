"""Batch sizes and meshes tried on a slice, one compilation each."""

import itertools

from bert_jax.config.run import RunConfig
from bert_jax.config.settings import SettingsError
from bert_jax.planning.plan import PhasePlan, Planner, in_threads
from bert_jax.system.errors import UsageError

_LARGER = (1, 2, 4)
_SMALLER = (1 / 2, 1 / 4)


def most_compilations(config: RunConfig, chips: int) -> int:
    """How many a sweep takes at most."""
    return len(config.phases) * len(splits(chips)) * max(len(_LARGER), 1 + len(_SMALLER))


def splits(chips: int) -> list[int]:
    """Sizes of `mesh.fsdp`: none, all, and every fourth power of two between."""
    return sorted({4**power for power in range(chips.bit_length()) if 4**power < chips} | {chips})


def sweep(planner: Planner, config: RunConfig) -> list[PhasePlan]:
    """What fits, each phase by itself, the most sequences a second first.

    On each mesh the phase's batch, then twice and four times as much as long as it fits; where it doesn't, half and a
    quarter until it does.
    """
    fitting: list[PhasePlan] = []
    for number in range(len(config.phases)):
        on_meshes = in_threads(lambda split: _on_mesh(planner, config, number, split), splits(planner.topology.chips))
        found = itertools.chain.from_iterable(on_meshes)
        fitting += sorted(found, key=lambda plan: plan.batch_size / plan.time.in_turn, reverse=True)
    return fitting


def _on_mesh(planner: Planner, config: RunConfig, number: int, split: int) -> list[PhasePlan]:
    """The batch sizes that fit where `split` chips share one copy of the state."""
    config = config.replace(mesh=config.mesh.replace(data=-1, fsdp=split))
    fitting: list[PhasePlan] = []
    for factor in _LARGER:
        plan = _with_batch(planner, config, number, factor)
        if plan is None or not plan.fits:
            break
        fitting.append(plan)
    if fitting:
        return fitting
    for factor in _SMALLER:
        plan = _with_batch(planner, config, number, factor)
        if plan and plan.fits:
            return [plan]
    return []


def _with_batch(planner: Planner, config: RunConfig, number: int, factor: float) -> PhasePlan | None:
    """The phase with its batch so many times as large; None where that can't be divided over the mesh."""
    phase = config.phases[number]
    size = int(phase.batch_size * factor)
    if not size:
        return None
    try:
        alone = phase.replace(batch_size=size, steps=1)
        return planner.phase(config.replace(phases=(alone,), profile_steps=None), 0)._replace(
            phase=number, steps=phase.steps
        )
    except (UsageError, SettingsError):
        return None
