"""A job of a suite: its directory, whether it is finished, and its figures."""

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from bert_jax.config.settings import Settings
from bert_jax.finetuning.judged_texts import is_judged
from bert_jax.products.suite.suite_tables import PRETRAINING
from bert_jax.records.sources import open_rows, open_source, resolved_source
from bert_jax.run.remarks import nothing_learned_of_task, worse_than_before
from bert_jax.run.results import read_results
from bert_jax.run.run_files import is_checkpoint
from bert_jax.system.bucket import Place, place_of
from bert_jax.system.content import content_hash, settings_hash
from bert_jax.system.errors import RunError, UsageError
from bert_jax.system.files import remove_directory, remove_temporary, temporary_path
from bert_jax.system.json_file import MOST_VALUES, JsonObject
from bert_jax.system.progress import say
from bert_jax.system.sealed import Sealed

_NOT_IN_NAME = re.compile(r"[^\w.=-]+")
_LONGEST_NAME = 80
_SECONDS = "work_seconds"
"""The figure that every finished job has: the seconds of its work."""
_MODEL = ("config.json", "tokenizer", "checkpoints")
"""Files and folders of a run that make up its model."""


class KeptFigures(Sealed):
    """The figures of a finished job, in a sealed file."""

    MOST_VALUES: ClassVar[int] = MOST_VALUES
    job: str
    """The job's name, so that the file of another job isn't mistaken for it."""
    figures: JsonObject
    parts: dict[str, str] = {}
    """Content hashes of the files and folders of its run that count; empty for a measurement."""


class Job(NamedTuple):
    """A pretraining, a fine-tuning or a measurement of a suite."""

    model: str
    task: str
    setting: dict[str, Any]
    seed: int
    path: Path
    """The directory of a run, or the JSON file of a measurement."""
    work: Callable[[], JsonObject]
    """Does the training or measurement, and returns its figures by name. Raises UsageError for wrong use, RunError for
    a run that failed."""
    finished: dict[Path, JsonObject]
    """The figures, by `path`, of the suite's finished jobs whose files were verified."""
    needs: "Job | None" = None
    """The job that must be finished before this one; None if there is none."""
    parts: tuple[str, ...] = ("results.json", *_MODEL)
    """The files and folders of a run that hold its results, or that other jobs use."""

    @property
    def is_run(self) -> bool:
        """Whether `path` is the directory of a run or preparation; False for the file of a measurement."""
        return self.path.suffix != ".json"

    @property
    def file(self) -> Path:
        """The sealed file of its figures."""
        return self.path.parent.parent / "finished" / f"{self.path.name}.json" if self.is_run else self.path

    @property
    def done(self) -> bool:
        if self.path not in self.finished and os.path.lexists(self.file) and not self.damage():
            self.finished[self.path] = KeptFigures.read(self.file).figures
        return self.path in self.finished

    @property
    def measured(self) -> JsonObject:
        """The figures of the finished job, without the time of its work, which differs each time; otherwise {}."""
        figures = self.finished[self.path] if self.done else {}
        return {name: value for name, value in figures.items() if name != _SECONDS}

    @property
    def seconds(self) -> float:
        """The seconds of the work of the finished job."""
        return self.finished[self.path][_SECONDS]

    def damage(self) -> tuple[Path, str] | None:
        """The first damaged file or folder of the job, and the reason; None if there is no damage."""
        if self.is_run and os.path.lexists(self.path) and (self.path.is_symlink() or not self.path.is_dir()):
            return self.path, "it is no folder"
        if not os.path.lexists(self.file):
            return None
        try:
            written = KeptFigures.read(self.file)
        except (OSError, ValueError, UsageError) as error:
            return self.file, getattr(error, "strerror", None) or str(error)
        if written.job != self._name:
            return self.file, f"it belongs to {written.job}"
        for name, content in written.parts.items():
            # The checkpoints of a fine-tuning are deleted if another setting is the best.
            is_deleted = name == "checkpoints" and self.task != PRETRAINING and not (self.path / name).exists()
            if not is_deleted and content_hash(self.path / name) != content:
                return self.path, f"{name} is not as it was written"
        return None

    def finish(self) -> None:
        """Does the work and keeps its figures. Damaged files are set aside first, with a line.

        Raises UsageError or RunError as `work` does, RunError also if the figures can't be kept.
        """
        if found := self.damage():
            for place in filter(os.path.lexists, {found[0], self.file}):
                _set_aside(place)
            say(f"{found[0]}: {found[1]}; the job is done again, and what was there is now damaged-{found[0].name}")
        self.finished.pop(self.path, None)
        for folder in (self.file.parent, self.path.parent):
            try:
                folder.mkdir(exist_ok=True)  # no check before it: another thread may make the folder
            except FileExistsError:
                raise RunError(f"{folder} is no folder; move it away, and give the same command again") from None
        began = time.monotonic()
        figures = self.work()
        figures = figures | {_SECONDS: round(time.monotonic() - began, 1)}
        parts = {name: content_hash(self.path / name) for name in self.parts} if self.is_run else {}
        KeptFigures(job=self._name, figures=figures, parts=parts).write(self.file)
        if not self.done:
            raise RunError(f"{self.file} can't be read back: {' '.join(map(str, self.damage() or ()))}")

    def delete_checkpoints(self) -> None:
        """Deletes a run's checkpoints. A kill leaves all of them or none."""
        if (self.path / "checkpoints").is_dir():
            (self.path / "checkpoints").rename(temporary_path(self.path / "checkpoints"))
        remove_temporary(self.path, "checkpoints")

    @property
    def _name(self) -> str:
        return f"{self.path.parent.name}/{self.path.name}"


def _set_aside(place: Path) -> None:
    """Renames the file or folder `place` to damaged-NAME; an older one of that name is deleted."""
    aside = place.with_name(f"damaged-{place.name}")
    if aside.is_symlink() or not aside.is_dir():
        aside.unlink(missing_ok=True)
    remove_directory(aside)
    place.rename(aside)


def run_figures(run: Path) -> JsonObject:
    """The metrics of a finished training by name. Raises RunError if it left no results that can be read."""
    try:
        results, _ = read_results(run / "results.json")
    except FileNotFoundError:
        raise RunError(f"it ended without an error and left no {run / 'results.json'}") from None
    except (OSError, ValueError) as error:
        raise RunError(f"{run / 'results.json'} can't be read ({error})") from None
    if results.task == "pretraining":
        remarks = [worse_than_before(results)]
        if results.stopped_early:
            remarks.append(f"It ended after {results.steps:,} of {results.planned_steps:,} steps.")
    else:
        remarks = [nothing_learned_of_task(results)]
    figures = {name: getattr(results, name) for name in ("metric", "score", "steps")}
    said = [*filter(None, remarks)]
    return results.metrics | figures | ({"remarks": said} if said else {})


def model_hash(place: Place) -> str:
    """Content hash of a model. A run counts by its settings, tokenizer and checkpoints; a checkpoint by itself and the
    run's settings and tokenizer; any other folder by all of its files."""
    if is_checkpoint(place):
        return content_hash(place.parent.parent / "config.json", place.parent.parent / "tokenizer", place)
    return content_hash(*(place / name for name in _MODEL)) if (place / "checkpoints").is_dir() else content_hash(place)


def source_hash(source: str, is_text: bool = False) -> str:
    """Content hash of rows, of judged texts (`beir:FOLDER`) or of text; "" if they aren't on this machine."""
    try:
        if is_text:
            return open_source(resolved_source(source)).content_hash
        if source.startswith("tfds:"):
            return open_rows(source).content_hash
        if is_judged(source):
            source = source.removeprefix("beir:").partition("#")[0]
        return content_hash(place_of(source))
    except UsageError:
        return ""


def all_settings(config: Settings | None) -> JsonObject:
    """The settings of a config, those with default values included: a release may have other defaults."""
    return config.model_dump(mode="json") if config else {}


def place_below(workdir: Path, folder: str, name: str, *shaped_by: Any, ending: str = "") -> Path:
    """The path of a run or measurement: its name, and a hash of all that it depends on."""
    plain = _NOT_IN_NAME.sub("-", name)[:_LONGEST_NAME]
    return workdir / folder / f"{plain}-{settings_hash(shaped_by)}{ending}"


def log_of(run: Path) -> Path:
    """The file with the output of the processes that work on `run`."""
    return run.parents[1] / "logs" / f"{run.name}.txt"
