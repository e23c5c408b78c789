"""Finds the smallest change of settings with which a run fits a TPU slice."""

import itertools
from collections.abc import Iterator
from typing import Any

from pydantic import computed_field

from bert_jax.config.settings import SettingsError
from bert_jax.planning.plan import Planner, device_bytes
from bert_jax.planning.plan_record import PhasePlan
from bert_jax.planning.work import AnyRunConfig
from bert_jax.system.errors import UsageError
from bert_jax.system.facts import Facts

_REMATS = ("none", "dots", "full")
"""From the cheapest: nothing, elementwise operations, or a whole forward pass is computed again."""


class ChangedPlan(Facts):
    """The plan of a run with changed settings, none of which changes its result."""

    settings: dict[str, Any]
    """New values by the name of the setting: `execution.remat`."""
    phases: list[PhasePlan]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def flags(self) -> str:
        """The settings as flags of a command line."""
        return " ".join(f"--{name} {value}" for name, value in self.settings.items())


def changes(config: AnyRunConfig, chips: int) -> Iterator[dict[str, Any]]:
    """Yields changed settings, cheapest first: remat of elementwise operations, more microbatches, remat of whole
    blocks, the state split over devices; then pairs of these, and finally all three. Settings of the run are left out.
    """
    execution = config.execution
    most = min(config.batch_sizes.values())
    remats: list[dict[str, Any]] = [
        {"execution.remat": remat} for remat in _REMATS[_REMATS.index(execution.remat) + 1 :]
    ]
    accumulations: list[dict[str, Any]] = [
        {"execution.accumulation": n} for n in _doubled(execution.accumulation, most)
    ]
    splits = [{"mesh.fsdp": n} for n in _doubled(max(config.mesh.fsdp, 1), chips)]
    last = remats[-1:] or [{}]
    pairs = itertools.product(last, accumulations + splits)
    every = itertools.product(last, splits[-1:], accumulations)
    candidates: list[dict[str, Any]] = [*remats[:-1], *accumulations, *remats[-1:], *splits]
    candidates += [first | second for first, second in pairs] + [remat | more | split for remat, split, more in every]
    yield from (settings for number, settings in enumerate(candidates) if settings not in candidates[:number])


def change_that_fits(planner: Planner, config: AnyRunConfig, plans: list[PhasePlan]) -> ChangedPlan | None:
    """The plan with the first of `changes` with which all phases fit; None if there is none.

    `plans`: those without a change. The phases that need most memory are tried first.
    """
    hardest = sorted(plans, key=lambda each: (each.fits, -(each.needed_bytes or 0)))
    for settings in changes(config, planner.topology.chips):
        # With more devices in one axis of the mesh, the data axis takes the rest.
        rest = {"mesh.data": -1} if "mesh.fsdp" in settings else {}
        try:
            changed = config.set(settings | rest)
            state = planner.trainer(changed).state_shapes
        except (SettingsError, UsageError):  # the batch or an axis can't be divided over the mesh
            continue
        if device_bytes(state) > planner.topology.chip.memory:  # too large for a chip, whatever the activations take
            continue
        fitting = []
        for each in hardest:
            fitting.append(planner.phase(changed, each.phase))
            if not fitting[-1].fits:
                break
        else:
            return ChangedPlan(settings=settings, phases=sorted(fitting, key=lambda each: each.phase))
    return None


def _doubled(start: int, most: int) -> list[int]:
    """2, 4, 8 ... times `start`, up to `most`."""
    return [start << power for power in range(1, most.bit_length()) if start << power <= most]
