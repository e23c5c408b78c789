"""A run's config.json: written and compared, and the places that it names."""

import json
import operator
from collections.abc import Iterable, Mapping

from bert_jax.config.data import DataConfig
from bert_jax.config.training import TrainingConfig
from bert_jax.run.run_manifest import RunManifest
from bert_jax.system.bucket import Place, place_of, scheme_of
from bert_jax.system.errors import Setting, UsageError, command_line, first_of, without_passwords
from bert_jax.system.progress import say

SCHEMA_VERSION = 1
"""Version of the format of config.json."""
IMPORTED = "imported_from"
"""Key in config.json of an imported model's source."""
_PLACES = {
    *("data.source", "data.phrases", "data.entities", "vocabulary.file", "init", "teacher"),
    *("task.train", "task.source", "task.dev", "objective.tags"),
}
"""Names of the settings that say where to read from."""
_HASHED = {
    "rows_hash": "the rows of its files or sets",
    "objective.tags_hash": f"the sentences of {Setting('objective.tags')}",
}
"""What the settings that are hashes are hashes of."""
_MOST_CHANGES = 8
"""Maximum number of differences between two runs that an error lists."""


def refuse_passwords(config: TrainingConfig) -> None:
    """Raises UsageError if a setting holds a password, which would be written to the run's files."""
    for name, value in config.flat().items():
        if isinstance(value, str) and (cleaned := without_passwords(value)) != value:
            others = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD or MLFLOW_TRACKING_TOKEN"
            where = others if name == "logging.mlflow" else "the variables of its service"
            raise UsageError(
                f"{Setting(name, cleaned)} holds a user, password or token, which would be written to the run's files; "
                f"leave it out and set the environment variables instead: {where}"
            )


def write_config(path: Place, config: TrainingConfig, imported_from: str | None = None) -> None:
    """Writes a run's config.json; `imported_from`: the source of a model that was not trained here."""
    origin = {IMPORTED: imported_from} if imported_from else {}
    value = {"schema_version": SCHEMA_VERSION, **origin, "config": config.model_dump(mode="json")}
    RunManifest(path.parent).write_json(path, value)


def check_recorded_places(config: TrainingConfig, run: Place, names: Iterable[str]) -> None:
    """Prints to which places on this machine the settings `names` in `run`'s config.json refer, before they are opened.
    Raises UsageError for a place elsewhere: a file of a run mustn't decide which servers are contacted."""
    for name in sorted({*names} & _PLACES):
        recorded: str | tuple[str, ...] | None = operator.attrgetter(name)(config)
        places = [recorded] if isinstance(recorded, str) else recorded or ()
        for place in places:
            if is_elsewhere(place, is_model=name in ("init", "teacher")):
                raise UsageError(
                    f"{run / 'config.json'} names {place}, which isn't on this machine, and a run's file may not "
                    f"name a place elsewhere; if you trust it, add {Setting(name, command_line(*places))}"
                )
        if places and places != DataConfig().source:
            say(f"{name} is {' '.join(places)}, as recorded in {run / 'config.json'}")


def is_elsewhere(place: str, is_model: bool = False) -> bool:
    """Whether a source of text or rows, or a model, is read from a bucket or a hub."""
    kind, _, rest = place.partition(":")
    if kind == "hf" or scheme_of(place) or scheme_of(rest):
        return True
    return is_model and not place_of(place).exists()


def differences(old: Mapping[str, object], new: Mapping[str, object]) -> list[tuple[str, object, object]]:
    """Dotted name and both values of every setting that differs; the settings are as `Settings.flat` gives them."""
    names = dict.fromkeys([*old, *new])
    return [(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)]


def described(changes: list[tuple[str, object, object]]) -> str:
    """The first differences as text."""
    lines = [
        f"{_HASHED[name]} have changed"
        if name in _HASHED
        else f"{Setting(name)} is {json.dumps(old)} there and {json.dumps(new)} now"
        for name, old, new in sorted(changes, key=lambda change: change[0] not in _HASHED)
    ]
    return first_of(lines, _MOST_CHANGES, "; ")
