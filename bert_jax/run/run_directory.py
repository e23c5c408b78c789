"""A run, on disk or in a bucket."""

import contextlib
import fcntl
import json
import os
import platform
import re
import shlex
import uuid
from typing import Any

from bert_jax.config.data import RecordedCode
from bert_jax.config.finetune import TaskRunConfig
from bert_jax.config.phase import same_until
from bert_jax.config.run import RunConfig
from bert_jax.config.settings import Settings, SettingsError
from bert_jax.config.training import TrainingConfig
from bert_jax.run.checkpoint_choice import runs_within
from bert_jax.run.events import open_events
from bert_jax.run.hosts import is_first
from bert_jax.run.manifest import complete, damaged_file, path_of
from bert_jax.run.orbax_reading import check_for_tensorstore
from bert_jax.run.run_manifest import RunManifest
from bert_jax.system.bucket import Place, in_bucket, place_of
from bert_jax.system.disk import FULL_DISK, disk_explained
from bert_jax.system.errors import RunError, UsageError, shown, without_passwords
from bert_jax.system.files import open_lock, remove_directory, remove_temporary, write_json, write_text
from bert_jax.system.json_file import read_object
from bert_jax.system.progress import say, warn
from bert_jax.text.tokenizer import Tokenizer, load_tokenizer

SCHEMA_VERSION = 1
"""Version of the format of config.json."""
_IMPORTED = "imported_from"
"""Key in config.json under which an imported model's source stands."""
OF_A_RUN = re.compile(
    r"config\.json|tokenizer|data|data-\d+\.json|checkpoints|metrics\.jsonl.*|results\.json|manifest\.json"
    r"|skipped_steps\.json|profile|\.lock|\.owner"
    r"|events\.jsonl|events\.out\.tfevents\..*|tensorboard|(confusion|learning_curve)\.png|report\.html"
    r"|stuck-.*\.txt|trackers\.json|wandb"
    r"|\..*\.tmp|.*\.orbax-checkpoint-tmp.*"
)
"""Names of the files and directories in a run's directory."""
_MOST_TOLD = 8
"""Most differences between two runs that an error lists."""


class RunDirectory:
    """Where everything of one run lies: config.json, tokenizer/, data/, checkpoints/, metrics.jsonl, results.json, and
    the manifest with the checksums of what it is built on."""

    def __init__(self, path: str | os.PathLike):
        self.path = place_of(path)
        check_for_tensorstore(self.path)
        self.config_file = self.path / "config.json"
        self.tokenizer = self.path / "tokenizer"
        self.checkpoints = self.path / "checkpoints"
        self.metrics_file = self.path / "metrics.jsonl"
        self.results_file = self.path / "results.json"
        self.profile = self.path / "profile"
        self.manifest = RunManifest(self.path)
        self._owner_file, self._owner = self.path / ".owner", None

    def data(self, length: int) -> Place:
        """The prepared sequences of one length."""
        return self.path / "data" / f"length-{length}"

    def data_record(self, length: int) -> Place:
        """The file that has the checksums of all others of such data."""
        return self.data(length) / "prepared.json"

    @property
    def under_way(self) -> bool:
        """Whether training has begun: from then on the run stays what it is."""
        return self.newest_step is not None

    @property
    def newest_step(self) -> int | None:
        """Step of the newest finished checkpoint; None where there is none."""
        finished = complete(self.checkpoints)
        return int(finished[-1].name) if finished else None

    def stranger(self, checkpoint: Place) -> str | None:
        """Why a checkpoint that lies in this run isn't its own, by the settings and the tokenizer that it carries; None
        if nothing tells them apart. Phases may differ: steps may have been added since it was written."""
        ours, theirs = read_config(self.path), read_config(checkpoint)
        if type(ours) is not type(theirs):
            return "it is of a run of another kind"
        for name, here, there in differences(ours, theirs):
            if name.partition(".")[0] in set(ours.IDENTITY) - {"phases"}:
                return f"it is of another run, in which {name} is {json.dumps(there)} and not {json.dumps(here)}"
        if load_tokenizer(checkpoint).vocabulary.pieces != load_tokenizer(self.tokenizer).vocabulary.pieces:
            return "it is of another run, which has another tokenizer"
        return None

    def results(self, steps: int) -> dict[str, Any] | None:
        """The results of a run that has done all its `steps`, or ended early; None where something is missing or
        damaged."""
        newest = self.newest_step
        if newest is None or damaged_file(complete(self.checkpoints)[-1]):
            return None
        try:
            results = read_object(self.results_file)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            damage = f"is damaged ({error})"
        else:
            damage = self.manifest.damage(self.results_file) and "is not as it was written"
        if damage:
            warn(f"{self.results_file} {damage}: the run is measured anew")
            return None
        if results.get("steps") != newest:
            return None
        best = results.get("best_step")
        if isinstance(best, int) and (damage := self._damage_of_checkpoint(best)):
            warn(f"{self.results_file} is about step {best:,}, whose checkpoint {damage}: the run is measured anew")
            return None
        return results if newest == steps or results.get("stopped_early") else None  # or steps were added

    def _damage_of_checkpoint(self, step: int) -> str | None:
        path = path_of(self.checkpoints, step)
        if path not in complete(self.checkpoints):
            return "is gone"
        damaged = damaged_file(path)
        return damaged and f"is damaged ({damaged} is not as it was written)"

    def save_tokenizer(self, tokenizer: Tokenizer, origin: dict[str, Any] | None = None) -> None:
        """Writes tokenizer/, with an origin.json that tells what it was made of, on the first of several processes."""
        if not is_first():
            return
        self.manifest.forget(self.tokenizer)
        remove_directory(self.tokenizer)  # another kind's has files of other names
        tokenizer.save(self.tokenizer)
        if origin is not None:
            write_json(self.tokenizer / "origin.json", origin)
        self.manifest.note(self.tokenizer)

    def write_results(self, results: dict[str, Any]) -> None:
        """Writes results.json, on the first of several processes."""
        if is_first():
            self.manifest.write_json(self.results_file, results)

    def open(self, config: TrainingConfig) -> None:
        """Makes the directory, or goes on with it; locks it until this process ends; writes config.json.

        A bucket has no locks that end with a process: there the newest process has the run, and `check_owner` tells an
        older one to stop. Raises UsageError where the run is under way with settings that make it another one, or where
        another process has it. Of several processes of one run the first does all this, before the others.
        """
        self.check(config)
        if not is_first():
            self._refuse_a_place_of_its_own()
            return
        with disk_explained(self.path):
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                self._lock()
                if not in_bucket(self.path):
                    remove_temporary(self.path)
            except OSError as error:
                if error.errno in FULL_DISK:
                    raise
                reason = error.strerror or str(error).partition("\n")[0]
                raise UsageError(f"--workdir {self.path} can't be written ({reason}); choose another") from None
        open_events(self.path)
        self._complete_manifest()
        write_config(self.config_file, config)

    def _complete_manifest(self) -> None:
        """Writes the manifest anew, from the files as they are, if it is damaged or, of a run under way, missing."""
        try:
            missing = self.manifest.noted() is None
        except (OSError, ValueError) as error:
            warn(f"{self.manifest.path} is damaged ({error}): the run's files are taken as they are")
            self.manifest.renew()
        else:
            if missing and self.under_way:
                warn(f"{self.path} has no {self.manifest.path.name}: the run's files are taken as they are")
                self.manifest.renew()

    def check(self, config: TrainingConfig) -> None:
        """Raises UsageError where the run that is under way here can't go on with `config`, or where the directory is
        another program's, or where a setting holds a password, which would be written. Writes nothing."""
        _refuse_passwords(config)
        if not self.under_way:
            self._refuse_another_program()
            return
        if origin := _read(self.path).get(_IMPORTED):
            raise UsageError(
                f"{self.path} was imported from {origin} and can't be trained on itself; start a run from it: --init "
                f"{shlex.quote(str(self.path))} --workdir ANOTHER"
            )
        self._refuse_another_run(config)

    def _refuse_another_program(self) -> None:
        """Refuses a directory, of a Hugging Face model for example, of which config.json would be overwritten."""
        try:
            there = read_object(self.config_file)
        except FileNotFoundError:
            self._refuse_other_files()
            return
        except (OSError, ValueError):
            return  # one that can't be read, of a run that hasn't begun
        if "schema_version" not in there:
            raise UsageError(
                f"--workdir {self.path} is no run: its config.json is another program's, and would be overwritten; "
                "choose another --workdir"
            )

    def _refuse_other_files(self) -> None:
        """Refuses a directory without config.json that holds files which aren't a run's, such as a corpus."""
        if not self.path.is_dir():
            return
        other = [child.name for child in self.path.iterdir() if not OF_A_RUN.fullmatch(child.name)]
        if other:
            raise UsageError(
                f"--workdir {self.path} is no run and not empty: it holds {shown(min(other))}; choose another "
                "--workdir, which is created if it is missing"
            )

    def _refuse_another_run(self, config: TrainingConfig) -> None:
        """Refuses settings that make another run of it. Phases may change where no step has been taken yet."""
        before = read_config(self.path)
        if type(before) is not type(config):
            other = "pretrained" if isinstance(before, RunConfig) else "fine-tuned"
            raise UsageError(f"{self.path} is a run that was {other}; choose another --workdir")
        changed = [change for change in differences(before, config) if change[0].partition(".")[0] in config.IDENTITY]
        may_change = "phases" if same_until(self.newest_step, before.phases, config.phases) else None
        replanned = [change for change in changed if change[0].partition(".")[0] == may_change]
        if refused := [change for change in changed if change not in replanned]:
            raise UsageError(
                f"{self.path} is another run: {_described(refused)}. Give what it was given before to go on with it, "
                "or another --workdir"
            )
        if replanned:
            say(
                f"{_described(replanned)}: from step {self.newest_step:,} on, the learning rate is that of a run "
                f"planned with {config.steps:,} steps from its start"
            )

    def _refuse_a_place_of_its_own(self) -> None:
        """Of several processes, those that come after the first see what that has written, or aren't in one place."""
        if not self.config_file.exists():
            raise UsageError(
                f"--workdir {self.path} isn't seen by all hosts of this run: the first has written its config.json "
                "there, and this one finds none; give a directory that they share, or gs://"
            )

    def check_owner(self) -> None:
        """Raises RunError where a later process has taken over the run, which is in a bucket."""
        owner = self._owner
        with contextlib.suppress(Exception):  # out of reach, by whichever library's error: who writes next will say so
            owner = owner and self._owner_file.read_text(encoding="utf-8")
        if owner != self._owner:
            raise RunError(
                f"{self.path} was taken over by {owner.partition(',')[0]}; this one ends; what it did since its last "
                "checkpoint is done again there"
            )

    def _lock(self) -> None:
        if in_bucket(self.path):
            self._owner = f"process {os.getpid()} on {platform.node()}, {uuid.uuid4()}"
            write_text(self._owner_file, self._owner)
            return
        self._lock_file = open_lock(self.path / ".lock")
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"another process is working on {self.path}; wait for it, or choose another --workdir"
            ) from None


def _refuse_passwords(config: TrainingConfig) -> None:
    for name, value in config.flat().items():
        if isinstance(value, str) and (shown := without_passwords(value)) != value:
            others = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD or MLFLOW_TRACKING_TOKEN"
            where = others if name == "logging.mlflow" else "the variables of its service"
            raise UsageError(
                f"{name}={shown} holds a user or password, which would be written to the run's files; leave it out and "
                f"set the environment variables instead: {where}"
            )


def write_config(path: Place, config: TrainingConfig, imported_from: str | None = None) -> None:
    """Writes a run's config.json; `imported_from` says where a model that was not trained here comes from."""
    origin = {_IMPORTED: imported_from} if imported_from else {}
    value = {"schema_version": SCHEMA_VERSION, **origin, "config": config.model_dump(mode="json")}
    RunManifest(path.parent).write_json(path, value)


def read_config(path: Place) -> RunConfig | TaskRunConfig:
    """The settings of the run (or checkpoint) at `path`, by which it was pretrained or fine-tuned.

    They are data: a function that they name is a RecordedCode, which isn't imported.
    Raises UsageError where there is none or a later release's, RunError where it, or the tokenizer beside it, isn't as
    it was written.
    """
    settings = _read(path)["config"]
    RunManifest(path).check(path / "config.json", path / "tokenizer")
    try:
        config = TaskRunConfig(**settings) if "task" in settings else RunConfig(**settings)
    except SettingsError as error:
        raise UsageError(f"{path / 'config.json'}: {error}") from None
    if isinstance(config, RunConfig) and config.data.words not in (None, "jieba"):
        return config.replace(data=config.data.replace(words=RecordedCode(config.data.words)))
    return config


def origin_of(path: Place) -> str | None:
    """Where the model of the run (or checkpoint) at `path` was imported from; None of one that was trained here."""
    origin = _read(path).get(_IMPORTED)
    return origin if isinstance(origin, str) else None


def read_pretraining_config(path: Place) -> RunConfig:
    """The settings of a pretraining run. Raises UsageError as `read_config` does, and for a fine-tuned run."""
    config = read_config(path)
    if not isinstance(config, RunConfig):
        raise UsageError(
            f"{path} was fine-tuned for {config.task.name}, and a run that was pretrained is needed here; its "
            "config.json names the one that it began with"
        )
    return config


def _read(path: Place) -> dict[str, Any]:
    try:
        value = read_object(path / "config.json")
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{path} is no run: it has no config.json{runs_within(path)}") from None
    except (OSError, ValueError) as error:
        raise _damaged_config(path, getattr(error, "strerror", None) or str(error)) from None
    if "schema_version" not in value:
        raise UsageError(
            f"{path} is no run, its config.json is another program's; make a run of it with bert-jax import"
        )
    if value["schema_version"] != SCHEMA_VERSION:
        raise UsageError(
            f"{path / 'config.json'} has schema_version {value['schema_version']!r} and this release reads "
            f"{SCHEMA_VERSION}; install the release of bert_jax that wrote it"
        )
    if not isinstance(value.get("config"), dict):
        raise _damaged_config(path, "it has no settings")
    return value


def _damaged_config(path: Place, reason: str) -> RunError:
    return RunError(
        f"{path / 'config.json'} is damaged ({reason}); put a good copy in its place: every checkpoint of a run has one"
    )


def differences(first: Settings, second: Settings) -> list[tuple[str, Any, Any]]:
    """Dotted name and both values of every setting that differs."""
    old, new = first.flat(), second.flat()
    names = dict.fromkeys([*old, *new])
    return [(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)]


def _described(changes: list[tuple[str, Any, Any]]) -> str:
    """The first differences, as text."""
    told = [
        "the rows of its files or sets are others now"  # of which the config has a checksum
        if name == "rows_hash"
        else f"{name} is {json.dumps(old)} there and {json.dumps(new)} now"
        for name, old, new in sorted(changes, key=lambda change: change[0] != "rows_hash")
    ]
    more = [f"and {len(told) - _MOST_TOLD} more"] if len(told) > _MOST_TOLD else []
    return "; ".join(told[:_MOST_TOLD] + more)
