"""Finds the smallest change of settings with which a run fits a TPU slice, and gives the plan with it as JSON."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from bert_jax.config.run import RunConfig
from bert_jax.config.settings import SettingsError
from bert_jax.planning.plan import STEP_TIMES, PhasePlan, Planner, held, hours_json
from bert_jax.planning.topology import Topology
from bert_jax.system.errors import UsageError

_REMATS = ("none", "dots", "full")
"""From the cheapest: nothing, elementwise operations, or a whole forward pass is computed again."""


class Change(NamedTuple):
    """Changed settings of a run, none of which changes its result."""

    settings: dict[str, Any]
    """New values by the name of the setting: `execution.remat`."""
    config: RunConfig

    @property
    def flags(self) -> str:
        """The settings as flags of a command line."""
        return " ".join(f"--{name} {value}" for name, value in self.settings.items())


def changes(config: RunConfig, chips: int) -> Iterator[Change]:
    """Yields changes, cheapest first: remat of elementwise operations, more microbatches, remat of whole blocks, the
    state split over devices; then pairs of these, and finally all three. Changes that the run has already are left out.
    """
    execution = config.execution
    remats: list[dict[str, Any]] = [
        {"execution.remat": remat} for remat in _REMATS[_REMATS.index(execution.remat) + 1 :]
    ]
    most = min(phase.batch_size for phase in config.phases)
    accumulations: list[dict[str, Any]] = [
        {"execution.accumulation": n} for n in _doubled(execution.accumulation, most)
    ]
    splits: list[dict[str, Any]] = [{"mesh.fsdp": n} for n in _doubled(max(config.mesh.fsdp, 1), chips)]
    last = remats[-1:] or [{}]
    alone = remats[:-1] + accumulations + last + splits
    pairs = [last[0] | more for more in accumulations] + [last[0] | more for more in splits]
    every = [last[0] | more | split for split in splits[-1:] for more in accumulations]
    seen: list[dict[str, Any]] = [{}]
    for settings in alone + pairs + every:
        if settings not in seen:
            seen.append(settings)
            if change := _changed(config, settings):
                yield change


def change_that_fits(
    planner: Planner, config: RunConfig, found: list[PhasePlan]
) -> tuple[Change, list[PhasePlan]] | None:
    """The first of `changes` with which all phases fit, and their plans with it; None if none does.

    `found`: the plans without a change. The phases that need most memory are tried first.
    """
    hardest = sorted(found, key=lambda each: (each.fits, -(each.needed_bytes or 0)))
    for change in changes(config, planner.topology.chips):
        try:
            state = planner.trainer(change.config).state_shapes
        except UsageError:  # the batch or an axis can't be divided over the mesh
            continue
        if held(state) > planner.topology.chip.memory:  # too large for a chip, whatever the activations take
            continue
        fitting = []
        for each in hardest:
            fitting.append(planner.phase(change.config, each.phase))
            if not fitting[-1].fits:
                break
        else:
            return change, sorted(fitting, key=lambda each: each.phase)
    return None


def _doubled(start: int, most: int) -> list[int]:
    """2, 4, 8 ... times `start`, up to `most`."""
    return [start << power for power in range(1, most.bit_length()) if start << power <= most]


def _changed(config: RunConfig, settings: dict[str, Any]) -> Change | None:
    """The change of `config` to `settings`; None if they don't fit each other."""
    # With more devices in one axis of the mesh, the data axis takes the rest.
    rest = {"mesh.data": -1} if "mesh.fsdp" in settings else {}
    try:
        return Change(settings, config.set(settings | rest))
    except SettingsError:
        return None


def plan_json(
    topology: Topology, phases: list[PhasePlan], change: tuple[Change, list[PhasePlan]] | None
) -> dict[str, Any]:
    """The plan as a JSON object; `total` sums all phases, with the change that makes them fit if one is needed."""
    fitting = phases if all(each.fits for each in phases) else change and change[1]
    return {
        "fits": fitting is phases,
        "phases": [each.as_json(topology.chips) for each in phases],
        "change": change
        and {
            "flags": change[0].flags,
            "settings": change[0].settings,
            "phases": [each.as_json(topology.chips) for each in change[1]],
        },
        "total": fitting
        and {
            name: hours_json(sum(each.steps * getattr(each.time, name) for each in fitting), topology.chips)
            for name in STEP_TIMES
        },
    }
