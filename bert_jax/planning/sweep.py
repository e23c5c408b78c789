"""Tries batch sizes and meshes on a slice, with one compilation for each."""

import functools
import itertools

from bert_jax.config.settings import SettingsError
from bert_jax.planning.plan import Planner, in_threads
from bert_jax.planning.plan_record import PhasePlan
from bert_jax.planning.work import AnyRunConfig
from bert_jax.system.errors import UsageError

_LARGER: tuple[float, ...] = (1, 2, 4)
_SMALLER: tuple[float, ...] = (1 / 2, 1 / 4)


def most_compilations(config: AnyRunConfig, chips: int) -> int:
    """The largest number of compilations that a sweep may need."""
    return len(config.phases) * len(splits(chips)) * max(len(_LARGER), 1 + len(_SMALLER))


def splits(chips: int) -> list[int]:
    """Sizes of `mesh.fsdp` to try: 1, the powers of 4 below `chips`, and `chips`."""
    return sorted({4**power for power in range(chips.bit_length()) if 4**power < chips} | {chips})


def sweep(planner: Planner, config: AnyRunConfig) -> list[PhasePlan]:
    """Plans that fit, phase by phase, most sequences a second first.

    On each mesh it tries the phase's batch size, then 2 and 4 times that as long as it fits. If the phase's batch size
    doesn't fit, it tries a half and a quarter until one fits.
    """
    fitting: list[PhasePlan] = []
    for number in range(len(config.phases)):
        on_mesh = functools.partial(_on_mesh, planner, config, number)
        on_meshes = in_threads(on_mesh, splits(planner.topology.chips))
        plans = itertools.chain.from_iterable(on_meshes)
        fitting += sorted(plans, key=_rate, reverse=True)
    return fitting


def _rate(plan: PhasePlan) -> float:
    return plan.time.in_turn.sequences_per_second if plan.time else 0.0


def _on_mesh(planner: Planner, config: AnyRunConfig, number: int, split: int) -> list[PhasePlan]:
    """Plans that fit with `mesh.fsdp` = `split`."""
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


def _with_batch(planner: Planner, config: AnyRunConfig, number: int, factor: float) -> PhasePlan | None:
    """The plan of a phase with `factor` times its batch size; None if that can't be divided over the mesh."""
    name, size = list(config.batch_sizes.items())[number]
    size = int(size * factor)
    if not size:
        return None
    try:
        return planner.phase(config.set({name: size}), number)
    except (UsageError, SettingsError):
        return None
