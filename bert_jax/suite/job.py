"""One run of a suite: where it lies, whether it is finished, and what it measured."""

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bert_jax.config.settings import Settings
from bert_jax.run.results import read_results
from bert_jax.suite.suite_tables import SuiteTask
from bert_jax.system.errors import UsageError
from bert_jax.system.json_file import JsonObject, read_object

AND = " and "
"""Between the names of metrics whose mean is a score."""
_NOT_IN_NAME = re.compile(r"[^\w.=-]+")
_LONGEST_NAME = 80


class Job(NamedTuple):
    """A model that is pretrained, or measured on a task."""

    model: str
    task: str
    setting: dict[str, Any]
    seed: int
    path: Path
    """The directory of a training, or the JSON file of what was measured."""
    work: Callable[[], Any]
    """Does the training or measurement; returns the content of `path` if that is a JSON file. Raises UsageError for
    wrong use, RunError for a run that failed."""
    needs: "Job | None" = None
    """The pretraining of its model."""

    @property
    def done(self) -> bool:
        """Whether it is finished."""
        return self.path.is_file() if self.path.suffix == ".json" else (self.path / "results.json").is_file()

    @property
    def measured(self) -> JsonObject:
        """What it measured, by name, once it is done. Raises UsageError for a damaged file."""
        try:
            if self.path.suffix == ".json":
                return read_object(self.path)
            results, _ = read_results(self.path / "results.json")
            return results.metrics | {name: getattr(results, name) for name in ("metric", "score", "steps")}
        except (OSError, ValueError) as error:
            remedy = "delete it, and give the same command again"
            raise UsageError(f"{self.path} can't be read ({error}); {remedy}") from None


def score_of(task: SuiteTask, metrics: JsonObject) -> tuple[str, float]:
    """Name and value of a task's score among measurements. Raises UsageError if they lack it."""
    usual = {"pairs": "accuracy", "beir": "ndcg@10", "held-out": "mlm_accuracy"}
    names = task.scores or (usual.get(task.kind) or str(metrics.get("metric")),)
    if absent := [name for name in names if not isinstance(metrics.get(name), float | int)]:
        there = ", ".join(name for name, value in metrics.items() if isinstance(value, float))
        raise UsageError(f"{task.name} has no {absent[0]}; scores can be {there}")
    return AND.join(names), sum(metrics[name] for name in names) / len(names)


def changed_settings(config: Settings | None) -> JsonObject:
    """The settings of a config that differ from their defaults, whatever file or flags they come from."""
    return config.model_dump(mode="json", exclude_defaults=True) if config else {}


def place_below(workdir: Path, folder: str, name: str, *shaped_by: Any, ending: str = "") -> Path:
    """The path of a run or measurement: its name, and a hash of all that it depends on."""
    plain = _NOT_IN_NAME.sub("-", name)[:_LONGEST_NAME]
    return workdir / folder / f"{plain}-{hash_of(shaped_by)}{ending}"


def content_stamp(place: str) -> str:
    """A text that changes with the content of a place: for a run its newest saved step, for another folder a hash of
    its files' names and sizes, for a file a hash of its bytes; "" if it isn't on this machine, such as a TFDS set."""
    path = Path(place.partition("#")[0])  # FOLDER#SPLIT of judged texts
    if (path / "checkpoints").is_dir():
        return str(max((int(each.name) for each in (path / "checkpoints").iterdir() if each.name.isdigit()), default=0))
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    files = sorted(each for each in path.rglob("*") if each.is_file())
    return hash_of([(str(each), each.stat().st_size) for each in files]) if files else ""


def hash_of(value: Any) -> str:
    """Hash of a JSON value. What JSON doesn't have, such as a path, counts as its text."""
    return hashlib.sha256(json.dumps(value, default=str, sort_keys=True).encode()).hexdigest()[:8]
