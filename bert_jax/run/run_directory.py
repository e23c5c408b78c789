"""A run, on disk or in a bucket."""

import contextlib
import fcntl
import io
import os
import platform
import re
import uuid
from typing import cast

from bert_jax.config.finetune import AnyRunConfig
from bert_jax.config.training import TrainingConfig, same_until
from bert_jax.run.checkpoint_manifest import checkpoint_damage, checkpoint_path, complete
from bert_jax.run.hosts import is_first
from bert_jax.run.recorded_config import described, differences, refuse_passwords, write_config
from bert_jax.run.results import Results, read_results
from bert_jax.run.run_files import RunFiles
from bert_jax.run.run_manifest import RunManifest
from bert_jax.run.saved_state import check_name
from bert_jax.run.tracking import check_trackers
from bert_jax.system import reading
from bert_jax.system.bucket import Place, in_bucket, is_trained_in, place_of
from bert_jax.system.copies import local_log
from bert_jax.system.errors import FULL_DISK, RunError, UsageError, command_line, disk_explained, quoted
from bert_jax.system.files import open_lock, refuse_links, remove_directory, remove_temporary, write_json, write_text
from bert_jax.system.journal import JOURNAL_FILE, open_journal
from bert_jax.system.json_file import JsonObject, read_object
from bert_jax.system.progress import say, warn
from bert_jax.system.reading import Reading
from bert_jax.text.tokenizer import TOKENIZER_ORIGIN, Tokenizer

_BEFORE_CONFIG = re.compile(r"manifest\.json|\.lock|\.owner|events\.jsonl|\..*\.tmp")
"""Names of the files and directories that a run may write before its config.json."""
_PREPARED = re.compile(r"length-\d+|curation|python-\w+\.jsonl|\..*\.tmp")
"""Names of the directories in a run's data/."""


class RunDirectory:
    """The directory of one run: config.json, tokenizer/, data/, checkpoints/, metrics.jsonl, results.json, and the
    manifest with the checksums of the files that the run is built on."""

    def __init__(self, path: str | os.PathLike | RunFiles):
        """`path`: that of the run, or its files if some of them were read already."""
        self.files = path if isinstance(path, RunFiles) else RunFiles(place_of(path))
        """config.json and the tokenizer, as they are when they are first needed or as this object has written them."""
        self.path = self.files.path
        check_name(self.path)
        self.config_file = self.path / "config.json"
        self.tokenizer_directory = self.path / "tokenizer"
        self.tokenizer_origin = self.tokenizer_directory / TOKENIZER_ORIGIN
        self.curation = self.path / "data" / "curation"
        self.checkpoints = self.path / "checkpoints"
        self.metrics_file = self.path / "metrics.jsonl"
        self.results_file = self.path / "results.json"
        self.pairs_file = self.path / "pairs.json"
        """Accuracies on minimal pairs, where they were kept."""
        self.reading_file = self.path / reading.READINGS_FILE
        self.profile = self.path / "profile"
        self.manifest = RunManifest(self.path)
        self._owner_file = self.path / ".owner"
        self._owner: str | None = None
        """This process as the owner of a run in a bucket; None for a run elsewhere."""
        self._new_owner: str | None = None
        """The process that has taken over the run from this one."""
        self._lock_file: io.BufferedWriter | None = None

    @classmethod
    def of(cls, workdir: "RunDirectory | str | os.PathLike") -> "RunDirectory":
        """The run at a path; a RunDirectory is returned as it is."""
        return workdir if isinstance(workdir, RunDirectory) else cls(workdir)

    def data(self, length: int) -> Place:
        """The prepared sequences of one length."""
        return self.path / "data" / f"length-{length}"

    @property
    def under_way(self) -> bool:
        """Whether training has begun: from then on settings and data may not change."""
        return self.newest_step is not None

    @property
    def newest_step(self) -> int | None:
        """Step of the newest finished checkpoint; None if there is none."""
        finished = complete(self.checkpoints)
        return int(finished[-1].name) if finished else None

    def results(self, steps: int) -> Results | None:
        """The results of a run that has done all its `steps` or ended early; None if anything is missing or damaged."""
        try:
            results, wrong = read_results(self.results_file)
            damage = f"{self.results_file.name} is damaged ({', '.join(wrong)})" if wrong else None
            damage = damage or self.manifest.damage(self.results_file)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            results, damage = Results(), f"{self.results_file.name} is damaged ({error})"
        saved = complete(self.checkpoints)
        if not saved:
            return None
        newest, best = int(saved[-1].name), results.best_step
        ended = results.stopped_early and results.planned_steps in (None, steps)
        steps_missing = results.steps != newest or (newest != steps and not ended)  # the latter if steps were added
        if (not damage and steps_missing) or checkpoint_damage(saved[-1]):
            return None
        if not damage and best not in (None, newest):
            path = checkpoint_path(self.checkpoints, best)
            found = checkpoint_damage(path) if path in saved else "it is gone"
            damage = found and f"{self.results_file.name} is about step {best:,}, whose checkpoint is damaged ({found})"
        if damage:
            warn(f"{self.path}: {damage}; the run is measured again")
            return None
        return results

    def save_tokenizer(self, tokenizer: Tokenizer, origin: JsonObject | None = None) -> None:
        """Writes tokenizer/, with an origin.json about what it was made from, on the first of several processes."""
        if not is_first():
            return
        refuse_links(self.tokenizer_directory)
        self.manifest.forget(self.tokenizer_directory)
        remove_directory(self.tokenizer_directory)  # a tokenizer of another kind has files of other names
        tokenizer.save(self.tokenizer_directory)
        if origin is not None:
            write_json(self.tokenizer_origin, origin)
        self.manifest.note(self.tokenizer_directory)
        self.files = RunFiles(self.path)

    def write_results(self, results: Results) -> None:
        """Writes results.json, on the first of several processes. Raises what `check_owner` does."""
        if is_first():
            self.check_owner()
            self.manifest.write_json(self.results_file, results.content)

    def readings(self) -> list[Reading]:
        """How the run's foreign input was understood; [] if nothing is kept or, with a warning, the file is damaged."""
        try:
            return reading.read_readings(self.reading_file)
        except (OSError, ValueError) as error:
            warn(f"{self.reading_file} is damaged ({error}): what the input was taken for isn't known")
            return []

    def keep(self, *readings: Reading) -> None:
        """Shows `readings` and adds them to reading.json. Each replaces an earlier one of the same subject."""
        if is_first() and readings:
            reading.show(readings)
            by_subject = {entry.subject: entry for entry in (*self.readings(), *readings)}
            self.manifest.write_json(self.reading_file, reading.as_file(by_subject.values()))

    def open(self, config: TrainingConfig) -> None:
        """Creates or reopens the directory; locks it until `close` or the end of this process; writes config.json.

        A bucket has no locks that end with a process: there the newest process owns the run, and `check_owner` stops an
        older one. Of several hosts the first one does all this, before the others. Raises UsageError if the run is
        under way with other settings, if another process works on it, or if a tracker isn't installed.
        """
        self.check(config)
        check_trackers(config.logging)  # packages after settings: an error in the settings is reported first
        if not is_first():
            if not self.config_file.exists():
                raise UsageError(
                    f"--workdir {self.path} isn't seen by all hosts of this run: the first has written its "
                    "config.json there, and this one finds none; give a directory that they share, or gs://"
                )
            return
        self.lock()
        open_journal(local_log(self.path / JOURNAL_FILE))
        self.manifest.mend(self.under_way)
        write_config(self.config_file, config)
        self.files.config = cast(AnyRunConfig, config)

    def lock(self) -> None:
        """Creates the directory and locks it, unless this object holds the lock. Raises UsageError if another process
        works on it, or if it can't be written."""
        with disk_explained(self.path):
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                self._lock()
                remove_temporary(self.path)
            except OSError as error:
                if error.errno in FULL_DISK:
                    raise
                reason = error.strerror or str(error).partition("\n")[0]
                raise UsageError(f"--workdir {self.path} can't be written ({reason}); choose another") from None

    def close(self) -> None:
        """Closes the journal and gives up the lock, so that another process or a later call can open the run."""
        self.files = RunFiles(self.path)
        open_journal(None)
        self._owner = self._new_owner = None
        if self._lock_file:
            self._lock_file.close()
            self._lock_file = None

    def check(self, config: TrainingConfig) -> None:
        """Raises UsageError if the run under way can't go on with `config`, if the directory is another program's, or
        if a setting holds a password, which would be written. Writes nothing."""
        self.check_place()
        refuse_passwords(config)
        if not self.under_way:
            return
        if origin := self.files.origin:
            raise UsageError(
                f"{self.path} was imported from {origin} and can't be trained on itself; start a run from it: "
                f"{command_line('--init', self.path, '--workdir', 'ANOTHER')}"
            )
        self._refuse_another_run(config)

    def check_place(self) -> None:
        """Raises UsageError if no run can be written here: the directory is another program's, Orbax can't write to it,
        or a part of it is a link."""
        if not is_trained_in(self.path):
            raise UsageError(
                f"--workdir {self.path}: training writes to a folder on this machine or to gs://, and runs in other "
                "buckets are only read; give a folder, and copy the finished run there"
            )
        check_name(self.path, written=True)
        written = (self.path / name for name in ("checkpoints", "tensorboard", "wandb", "profile"))
        refuse_links(*written, *self.checkpoints.glob("*"))
        if not self.under_way:
            self._refuse_another_program()

    def _refuse_another_program(self) -> None:
        """Refuses a directory whose config.json would be overwritten, such as a Hugging Face model's, and one without
        config.json that holds files which aren't a run's, such as a corpus."""
        try:
            there = read_object(self.config_file)
        except FileNotFoundError:
            children = self.path.iterdir() if self.path.is_dir() else ()
            if other := [child.name for child in children if not _precedes_config(child)]:
                raise UsageError(
                    f"--workdir {self.path} is no run and not empty: it holds {quoted(min(other))}; choose another "
                    "--workdir, which is created if it is missing"
                ) from None
            return
        except (OSError, ValueError):
            return  # damaged, in a run that hasn't begun: it is overwritten
        if "schema_version" not in there:
            raise UsageError(
                f"--workdir {self.path} is no run: its config.json is another program's, and would be overwritten; "
                "choose another --workdir"
            )

    def _refuse_another_run(self, config: TrainingConfig) -> None:
        """Refuses settings that differ from the run's. Phases may differ, except in the steps that are done."""
        before = self.files.config
        if type(before) is not type(config):
            raise UsageError(f"{self.path} is a run that was {before.TRAINED}; choose another --workdir")
        identity = {*config.IDENTITY, *config.compared_from_start}
        changes = differences(before.flat(), config.flat())
        changed = [change for change in changes if {change[0], change[0].partition(".")[0]} & identity]
        may_change = "phases" if same_until(self.newest_step or 0, before.phases, config.phases) else None
        replanned = [change for change in changed if change[0].partition(".")[0] == may_change]
        if refused := [change for change in changed if change not in replanned]:
            deletion = "" if in_bucket(self.path) else f": {command_line('rm', '-r', self.path)}"
            raise UsageError(
                f"{self.path} is another run: {described(refused)}. Give the same settings to go on with it, or "
                f"another --workdir, or delete it{deletion}"
            )
        if replanned:
            say(
                f"{described(replanned)}: from step {self.newest_step:,} on, the learning rate is that of a run "
                f"planned with {config.steps:,} steps from its start"
            )

    def check_owner(self) -> None:
        """Raises RunError if a later process has taken over the run, as can happen in a bucket."""
        if self._owner is None:
            return
        owner = self._new_owner or self._owner
        with contextlib.suppress(Exception):  # a bucket out of reach, in any library's error: the next write reports it
            owner = self._owner_file.read_text(encoding="utf-8")
        if owner != self._owner:
            self._new_owner = owner
            raise RunError(
                f"{self.path} was taken over by {owner.partition(',')[0]}; this one ends; steps since its last "
                "checkpoint are done again there"
            )

    def _lock(self) -> None:
        if self._lock_file or self._owner:
            return
        if in_bucket(self.path):
            self._owner = f"process {os.getpid()} on {platform.node()}, {uuid.uuid4()}"
            write_text(self._owner_file, self._owner)
            return
        file = open_lock(self.path / ".lock")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._lock_file = file
        except BlockingIOError:
            raise UsageError(
                f"another process is working on {self.path}; wait for it, or choose another --workdir"
            ) from None


def _precedes_config(child: Place) -> bool:
    """Whether a file or directory of a run may exist before its config.json: the run was killed before it was written,
    or only the tokenizer and the prepared data were copied."""
    if child.name == "tokenizer" and child.is_dir():
        return (child / TOKENIZER_ORIGIN).is_file() or not any(child.iterdir())
    if child.name == "data" and child.is_dir():
        return all(_PREPARED.fullmatch(prepared.name) for prepared in child.iterdir())
    return bool(_BEFORE_CONFIG.fullmatch(child.name))
