"""The smallest change of settings with which a run fits a slice."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from bert_jax.config.run import RunConfig
from bert_jax.config.settings import SettingsError
from bert_jax.planning.plan import PhasePlan, Planner, held
from bert_jax.system.errors import UsageError

_REMATS = ("none", "dots", "full")
"""By what they cost: elementwise operations, then a forward pass."""


class Change(NamedTuple):
    """Settings other than the run's; none of them changes its result."""

    settings: dict[str, Any]
    """By their flag: `execution.remat`."""
    config: RunConfig

    @property
    def flags(self) -> str:
        """As given on the command line."""
        return " ".join(f"--{name} {value}" for name, value in self.settings.items())


def changes(config: RunConfig, chips: int) -> Iterator[Change]:
    """From the cheapest on: elementwise operations computed again, more microbatches, whole blocks computed again, the
    state split; then two of them, and at last all three. What a setting of the run goes beyond already is left out.
    """
    execution = config.execution
    remats = [{"execution.remat": remat} for remat in _REMATS[_REMATS.index(execution.remat) + 1 :]]
    most = min(phase.batch_size for phase in config.phases)
    accumulations = [{"execution.accumulation": n} for n in _doubled(execution.accumulation, most)]
    splits = [{"mesh.fsdp": n} for n in _doubled(max(config.mesh.fsdp, 1), chips)]
    last = remats[-1:] or [{}]
    alone = remats[:-1] + accumulations + last + splits
    pairs = [last[0] | more for more in accumulations] + [last[0] | more for more in splits]
    every = [last[0] | more | split for split in splits[-1:] for more in accumulations]
    seen = [{}]
    for settings in alone + pairs + every:
        if settings not in seen:
            seen.append(settings)
            if change := _changed(config, settings):
                yield change


def change_that_fits(
    planner: Planner, config: RunConfig, found: list[PhasePlan]
) -> tuple[Change, list[PhasePlan]] | None:
    """The first of `changes` with which all phases compile, and what was found with it; None where none does.

    `found`: the phases as they are. Those that need most are tried first.
    """
    hardest = sorted(found, key=lambda each: (each.fits, -(each.needed_bytes or 0)))
    for change in changes(config, planner.topology.chips):
        try:
            state = planner.trainer(change.config).state_shapes
        except UsageError:  # the batch or an axis doesn't divide
            continue
        if held(state) > planner.topology.chip.memory:  # nothing but a split would help
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
    """None where the settings don't go together."""
    groups: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        group, field = name.split(".")
        groups.setdefault(group, {})[field] = value
    if "mesh" in groups:
        groups["mesh"]["data"] = -1
    try:
        return Change(
            settings, config.replace(**{name: getattr(config, name).replace(**to) for name, to in groups.items()})
        )
    except SettingsError:
        return None
