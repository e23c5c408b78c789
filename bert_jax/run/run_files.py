"""config.json and tokenizer/ of a run or of one of its checkpoints, read once."""

import json
from functools import cached_property

from bert_jax.config.data import RecordedCode
from bert_jax.config.finetune import AnyRunConfig, TaskRunConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.settings import SettingsError
from bert_jax.interchange.model_folder import other_model, published_folder
from bert_jax.interchange.tokenizer_config import PublishedFolder
from bert_jax.run.recorded_config import IMPORTED, SCHEMA_VERSION, differences
from bert_jax.run.run_manifest import MANIFEST, RunManifest
from bert_jax.system.bucket import Place
from bert_jax.system.errors import RunError, UsageError, command_line, listed, nothing_at
from bert_jax.system.files import FileSum, open_on_disk
from bert_jax.system.json_file import JsonObject, parse_object, read_bytes, read_object
from bert_jax.system.sealed import bucket_answering, file_damage
from bert_jax.text.tokenizer import Tokenizer, load_tokenizer, saved_tokenizer, tokenizer_directory
from bert_jax.text.vocabulary import MOST_VOCABULARY_BYTES


class RunFiles:
    """config.json and tokenizer/ of a run, or a checkpoint's copies of them; each file is read once, when needed."""

    def __init__(self, path: Place, manifest: RunManifest | None = None):
        """`manifest`: the checksums of the files as they were written; None: those of the run's manifest, read once."""
        self._manifest = manifest
        self.path, self.config_file, self.tokenizer_directory = path, path / "config.json", path / "tokenizer"
        self._contents: dict[str, bytes] = {}
        """Content of the files that were read, by their path in the run."""

    @cached_property
    def manifest(self) -> RunManifest:
        """The run's manifest as it is when it is first needed, which must be before a file is read."""
        return self._manifest or RunManifest(self.path).as_read()

    @cached_property
    def published(self) -> PublishedFolder | None:
        """The folder, if it has a model of another program; None for a run or a checkpoint."""
        return published_folder(self.path)

    @cached_property
    def damage(self) -> str | None:
        """Describes the first file that differs from what the run's manifest lists; None if none does."""
        return self.manifest.damage(self.config_file, self.tokenizer_directory, differs=self.differs)

    def _refuse_damage(self) -> None:
        if self.damage:
            remedy = "put a good copy in its place: every checkpoint of the run has one"
            raise RunError(f"{self.path}: {self.damage}; {remedy}")

    def content(self, file: Place) -> bytes:
        """The content of one of the files. Raises OSError; ValueError if it is too large; RunError if a bucket doesn't
        answer."""
        name = file.relative_to(self.path).as_posix()
        if name not in self._contents:
            with bucket_answering(file):
                self._contents[name] = read_bytes(file, MOST_VOCABULARY_BYTES, open_on_disk)
        return self._contents[name]

    def differs(self, name: str, written: FileSum) -> bool:
        """Whether the file `name` of the directory isn't as it was written. Only the contents of config.json and of the
        tokenizer's files are kept."""
        file = self.path / name
        if name != self.config_file.name and not name.startswith("tokenizer/"):
            return bool(file_damage(file, written))
        try:
            return FileSum.of_bytes(self.content(file)) != written
        except (OSError, ValueError):
            return True

    @cached_property
    def config(self) -> AnyRunConfig:
        """The settings with which the run was pretrained or fine-tuned. They are data: a function named in them becomes
        a RecordedCode and isn't imported. Raises UsageError if config.json is missing or of another release, RunError
        if it or the tokenizer beside it is damaged.
        """
        settings = self._value["config"]
        self._refuse_damage()
        try:
            config = TaskRunConfig(**settings) if "task" in settings else RunConfig(**settings)
        except SettingsError as error:
            raise UsageError(f"{self.config_file}: {error}") from None
        words = config.data.words if config.data else None
        if words and ":" in words:
            return config.change(data={"words": RecordedCode(words)})
        return config

    @property
    def pretraining_config(self) -> RunConfig:
        """The settings of a pretraining run. Raises what `config` does, and UsageError for a fine-tuned run."""
        if isinstance(self.config, RunConfig):
            return self.config
        path, task = self.path, self.config.task.name
        remedy = command_line("bert-jax", "pretrain", path, "--init", path, "--workdir", "RUN", "--data.source", "TEXT")
        what = f"{path} was fine-tuned for {task}, and a pretraining run is needed here"
        raise UsageError(f"{what}; {remedy} makes a pretraining run of its encoder")

    @property
    def origin(self) -> str | None:
        """The source of an imported model; None if the model was trained here. Raises UsageError or RunError if
        config.json can't be read."""
        origin = self._value.get(IMPORTED)
        return origin if isinstance(origin, str) else None

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer. Raises UsageError if there is none, RunError if it or config.json is damaged."""
        self._refuse_damage()
        directory = tokenizer_directory(self.path)
        return saved_tokenizer(directory, self.content) if directory else load_tokenizer(self.path)

    def why_foreign(self, checkpoint: "RunFiles") -> str | None:
        """Why a checkpoint in this run's directory belongs to another run, by its settings and tokenizer; None if they
        are this run's. Phases may differ: steps may have been added since it was written."""
        ours, theirs = self.config, checkpoint.config
        if type(ours) is not type(theirs):
            return "it is of a run of another kind"
        for name, here, there in differences(ours.flat(), theirs.flat()):
            if name.partition(".")[0] in set(ours.IDENTITY) - {"phases"}:
                return f"it is of another run, in which {name} is {json.dumps(there)} and not {json.dumps(here)}"
        if self._tokenizer_contents == checkpoint._tokenizer_contents:  # parsing takes longer than comparing
            return None
        if self.tokenizer.vocabulary.pieces != checkpoint.tokenizer.vocabulary.pieces:
            return "it is of another run, which has another tokenizer"
        return None

    def refuse_foreign(self, checkpoint: "RunFiles") -> None:
        """Raises RunError if a checkpoint in this run's directory belongs to another run. Nothing is compared if the
        run has no config.json or no tokenizer."""
        is_whole = self.config_file.exists() and self.tokenizer_directory.is_dir()
        if is_whole and (reason := self.why_foreign(checkpoint)):
            raise RunError(f"{checkpoint.path}: {reason}; move it out of the run")

    @property
    def _tokenizer_contents(self) -> dict[str, bytes]:
        return {name: content for name, content in self._contents.items() if name.startswith("tokenizer/")}

    @cached_property
    def _value(self) -> JsonObject:
        # Read first, because a training takes config.json off the manifest before it replaces the file.
        self.manifest  # noqa: B018
        try:
            value = parse_object(self.content(self.config_file))
        except (FileNotFoundError, NotADirectoryError):
            raise no_run(self.path, "is no run: it has no config.json") from None
        except (OSError, ValueError) as error:
            raise self._damaged_config(getattr(error, "strerror", None) or str(error)) from None
        if "schema_version" not in value:
            raise UsageError(
                f"{self.path} is no run: another program wrote its config.json; make a run of it with bert-jax import"
            )
        if value["schema_version"] != SCHEMA_VERSION:
            raise UsageError(
                f"{self.config_file} has schema_version {value['schema_version']!r} and this release reads "
                f"{SCHEMA_VERSION}; install the release of bert_jax that wrote it"
            )
        if not isinstance(value.get("config"), dict):
            raise self._damaged_config("it has no settings")
        return value

    def _damaged_config(self, reason: str) -> RunError:
        return RunError(
            f"{self.config_file} is damaged ({reason}); put a good copy in its place: every checkpoint of a run has one"
        )


def is_checkpoint(path: Place) -> bool:
    """Whether `path` has a checkpoint's manifest. A run's manifest has the same name, and no step."""
    if not (path / MANIFEST).is_file() or (path / "checkpoints").is_dir():
        return False
    try:
        return "step" in read_object(path / MANIFEST)
    except (OSError, ValueError):
        return True


def no_run(path: Place, lacks: str, expected: str = "a run") -> UsageError:
    """The error for a `path` that isn't what a command expects. The message says what is at the path. For a folder it
    says what the folder `lacks` ("has no config.json") and which runs are in it."""
    if not path.exists():
        return nothing_at(path, expected)
    if path.is_file():
        return UsageError(f"{path} is a file; give {expected}")
    if is_checkpoint(path):
        return UsageError(f"{path} is a checkpoint, a part of a run; give {expected}")
    if other := other_model(path):
        return UsageError(other)
    patterns = "*/checkpoints", "*/*/checkpoints", "runs/*/*/checkpoints"  # of a suite, and of several
    runs = sorted({found.parent.relative_to(path).as_posix() for pattern in patterns for found in path.glob(pattern)})
    best = " (results.json names the best)" if (path / "results.json").is_file() else ""
    there = f", but there are the runs {listed(runs)} in it{best}" if runs else ""
    return UsageError(f"{path} {lacks}{there}; give {expected}")
