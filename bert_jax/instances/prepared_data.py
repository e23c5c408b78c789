"""A prepared data set on disk: the recipe that it was made with, its record and its checksums."""

import hashlib
import json
import operator
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import tensorflow_datasets as tfds
from jaxtyping import Int
from pydantic import ConfigDict, Field

from bert_jax.config.data import DataConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.instances.chunks import MOST_NUMBERS_BYTES, PIECE_COUNTS, damaged_set, read_numbers
from bert_jax.instances.statistics import Statistics, Tally
from bert_jax.system.bucket import Place, place_of
from bert_jax.system.copies import fetched, publish
from bert_jax.system.files import FileSum, remove_directory
from bert_jax.system.json_file import read_bytes
from bert_jax.system.sealed import Sealed, file_damage, first_damaged
from bert_jax.text.lexicon import LexiconFile
from bert_jax.text.tokenizer import TOKENIZER_ORIGIN

TRAIN, HELD_OUT = "train", "held_out"
"""The splits of a data set."""

_FORMAT = 1
"""Version of the format of the record, the shards and the fingerprint.

It is increased when the same settings give other records. It is also increased when a setting's default changes, since
fingerprints leave out defaults."""
_WITHOUT_BLANK = re.compile(r'"add_prefix_space":\s*false|"prepend_scheme":\s*"(?:first|never)"')
"""What the file of a tokenizer contains that may set no blank before the first word of a text."""
_RECORD = "prepared.json"
COUNTS_FILE = "piece_counts.safetensors"
SMALL_FILES = (COUNTS_FILE, "features.json", "dataset_info.json")
"""The files of a data set besides the shards and the record. Two of them are TFDS' metadata."""
_SHARD_TEMPLATE = "{SPLIT}-{SHARD_INDEX}.{FILEFORMAT}"
"""TFDS' template of a shard's name, without a total: shards are written before their number is known."""
_OF_ORDER = ("weights", "smoothing", "most_epochs")
"""Settings of the data that determine only the order in which sequences are drawn."""
_Hash = Annotated[str, Field(max_length=128)]


class Recipe(NamedTuple):
    """All settings that determine how text becomes instances."""

    data: DataConfig
    length: int
    seed: int
    tokenizer_directory: Place
    pair: str = ObjectiveConfig().pair
    """The value of objective.pair."""

    @property
    def documents_needed(self) -> int:
        """Fewest documents of a source: a random second segment needs a second document."""
        return 2 if self.pair == "next_sentence" else 1

    def fingerprint(self, lexicons: Mapping[str, str] | None = None) -> str:
        """Hash of everything that determines the records, except the text.

        Settings that only determine the order are left out. Settings with their default value are left out, too, so
        that a new setting whose default keeps the earlier behaviour changes no fingerprint. `lexicons`: the recorded
        hashes of lexicons, for files that are missing.
        """
        there = (path for path in fetched(self.tokenizer_directory).iterdir() if path.is_file())
        files = sorted(path for path in there if path.name != TOKENIZER_ORIGIN)
        # A sentencepiece model is binary, so undecodable bytes are kept as surrogates.
        tokenizer = [path.read_bytes().decode("utf-8", "surrogateescape") for path in files]
        settings = self.data.model_dump(exclude={*_OF_ORDER, *self.data.lexicons}, exclude_defaults=True)
        shape = [_FORMAT, settings, self.length, self.seed, tokenizer, self.pair]
        if any(map(_WITHOUT_BLANK.search, tokenizer)):  # earlier releases encoded each sentence as a text of its own
            shape.append("blanks between sentences")
        # A lexicon counts by its content, not by its path.
        shape += [[name, sha256] for name, sha256 in self.lexicon_hashes(lexicons).items()]
        return hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()

    def lexicon_hashes(self, recorded: Mapping[str, str] | None = None) -> dict[str, str]:
        """The hash of each lexicon's file, by the name of its setting; for a missing file, the hash in `recorded`."""
        hashes = {}
        for name, path in self.data.lexicons.items():
            known = None if place_of(path).exists() else (recorded or {}).get(name)
            hashes[name] = known or LexiconFile.read(path, f"data.{name}").sha256
        return hashes


class PreparedData(Sealed):
    """The record of a finished data set, its prepared.json. It seals all other files of the set."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    FORMAT: ClassVar[int] = _FORMAT
    directory: Annotated[Place, Field(exclude=True)]
    length: Annotated[int, Field(ge=1, le=1 << 20)]
    """Number of tokens of a full sequence."""
    fingerprint: _Hash
    """Hash of everything that determines the records, except the text."""
    corpus: _Hash
    """Content hash of the corpus. Records of earlier versions have a hash of another kind, which equals no content
    hash."""
    text: _Hash
    """Hash of the whole text."""
    train: Statistics
    of_sources: list[Statistics]
    """Statistics of each source's training documents. The training records are ordered by source."""
    held_out: Statistics
    held_out_dropped: Tally
    """Number of held-out documents that were dropped because they share a long paragraph with a training document."""
    ids_type: Literal["uint16", "int32"]
    """Type of the stored piece ids."""
    packed: bool
    """Whether a record may hold several sequences."""
    lexicons: dict[str, _Hash] = {}
    """Hashes of the lexicons' files, by the names of their settings; empty in records of earlier versions."""
    records: dict[str, list[Tally]]
    """Number of records of each shard, by split."""
    example_sentences: list[str]
    """A few held-out sentences of medium length, for showing the model's predictions."""
    text_seconds: Annotated[float, Field(exclude=True)] = 0.0
    """Seconds in which one core split and encoded the text, for all lengths together; 0 if the record was read."""
    cutting_seconds: Annotated[float, Field(exclude=True)] = 0.0
    """Seconds in which one core cut the text into these sequences and wrote them; 0 if the record was read."""

    def __eq__(self, other: object) -> bool:
        """Whether both are the same set. The seconds, which aren't stored, don't count."""
        if not isinstance(other, PreparedData):
            return NotImplemented
        return (self.directory, self.model_dump()) == (other.directory, other.model_dump())

    @property
    def sources(self) -> list[int]:
        """Number of training records of each source."""
        return [seen.rows for seen in self.of_sources]

    @property
    def shards(self) -> dict[str, FileSum]:
        """Size and checksum of each shard by its file name."""
        return {name: written for name, written in self.files.items() if name not in SMALL_FILES}

    @property
    def shards_hash(self) -> str:
        """Hash of the names and checksums of all shards. It is equal for data sets with the same records."""
        return hashlib.blake2b(json.dumps(sorted(self.shards.items())).encode(), digest_size=8).hexdigest()

    @property
    def piece_counts(self) -> Int[np.ndarray, " V"]:
        """Number of occurrences of each piece in the training documents. Raises RunError if the file is damaged."""
        path = self.directory / COUNTS_FILE
        try:
            return read_numbers(read_bytes(path, MOST_NUMBERS_BYTES), PIECE_COUNTS, np.int64)
        except (OSError, ValueError) as error:
            raise damaged_set(path, error) from None

    def save(self) -> None:
        """Writes prepared.json, which marks the data set as finished."""
        self.write(self.directory / _RECORD)

    @classmethod
    def open(cls, directory: Place) -> "PreparedData | None":
        """Opens the finished data set in `directory`, or returns None if there is none. A set in a bucket is copied.

        The checksums of small files are verified, but only the sizes of shards. Raises RunError if a file is missing or
        changed, and UsageError if another release wrote the data set.
        """
        found = cls.unchecked(directory)
        if not found:
            return None
        found = found.model_copy(update={"directory": fetched(directory)})
        for name, written in found.files.items():
            if damage := file_damage(found.directory / name, written, contents=name in SMALL_FILES):
                raise damaged_set(directory / name, damage)
        return found

    @classmethod
    def unchecked(cls, directory: Place) -> "PreparedData | None":
        """Reads the record of the data set in `directory` without checking its files; None if there is no record.

        Raises RunError if the record is damaged, and UsageError if another release wrote it.
        """
        path = directory / _RECORD
        try:
            found = cls.read(path, directory=directory)
            if sum(found.sources) != found.train.rows:
                raise ValueError("the records of its sources do not add up to all of them")
            for split, seen in ((TRAIN, found.train), (HELD_OUT, found.held_out)):
                if sum(found.records.get(split, [])) != seen.rows:
                    raise ValueError(f"it has another number of {split} records")
            return found
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise damaged_set(path, error) from None

    def sequences_a_row(self, shares: Sequence[float] | None) -> float:
        """The mean number of sequences in the rows that a training with these shares of the sources draws."""
        drawn = shares or self.sources
        means = [source.instances / max(source.rows, 1) for source in self.of_sources]
        return sum(map(operator.mul, drawn, means)) / max(sum(drawn), 1e-9)

    def as_json(self, budget: int) -> dict[str, Any]:
        """Describes the training sequences as a JSON object.

        `budget`: the number of tokens that are masked in a full sequence.
        """
        train = self.train
        return {
            "rows": train.rows,
            "sequences": train.instances,
            "tokens": train.instance_tokens,
            "words": train.words,
            "fill": train.fill(self.length),
            "pairs_random": train.random_pairs,
            "units": train.units_json(budget),
            "repairs": dict(train.repairs),
        }

    def table(self, budget: int) -> list[tuple[str, str, str]]:
        """Rows of a table for people: name, value for the training text, and value for the held-out text.

        `budget`: the number of tokens that are masked in a full sequence.
        """
        held_out = dict(self.held_out.table(self.length, budget))
        train = self.train.table(self.length, budget)
        rows = [(name, value, held_out.get(name, "")) for name, value in train]
        return [*rows, ("dropped: shares a paragraph with training", "", f"{self.held_out_dropped:,}")]

    def is_of(self, recipe: Recipe) -> bool:
        """Whether the data set was made with `recipe`.

        A missing lexicon file counts as unchanged. This suits the settings of a run under way, which can't name another
        lexicon.
        """
        return self.fingerprint == recipe.fingerprint(self.lexicons)

    def damaged_file(self) -> str | None:
        """The name of the first file whose checksum differs, or None. Reads all files completely."""
        return first_damaged(self.directory, self.files)


def discard(directory: Place) -> None:
    """Deletes the data set in `directory`, the record first, so that a partial deletion leaves no finished set."""
    (directory / _RECORD).unlink(missing_ok=True)
    remove_directory(directory)


def publish_prepared(directory: Place) -> None:
    """Uploads the data set in `local_path(directory)` if `directory` is in a bucket. The record is uploaded last."""
    publish(directory, last=_RECORD)


def write_metadata(
    directory: Path, shard_lengths: Mapping[str, Sequence[int]], dtype: type[np.integer], packed: bool = False
) -> None:
    """Writes the metadata with which other programs read the data set by `tfds.builder_from_directory`.

    This program doesn't read the metadata, since TFDS imports whatever classes features.json names. `shard_lengths`:
    number of records of each shard, by split. `packed`: whether a record may hold several sequences.
    """
    number = tfds.features.Scalar(np.int32)
    numbers = tfds.features.Tensor(shape=(None,), dtype=np.int32, encoding="bytes")
    of_sequences = ("first_length", "pair_label", *(("length",) if packed else ()))
    features = tfds.features.FeaturesDict(
        {
            "ids": tfds.features.Tensor(shape=(None,), dtype=dtype, encoding="bytes"),
            "units": tfds.features.Tensor(shape=(None,), dtype=np.uint8, encoding="bytes"),
            **{name: numbers if packed else number for name in of_sequences},
        }
    )
    template = tfds.core.ShardedFileTemplate(
        directory, template=_SHARD_TEMPLATE, dataset_name="bert_instances", filetype_suffix="array_record"
    )
    splits = [
        tfds.core.SplitInfo(name=split, shard_lengths=list(lengths), num_bytes=0, filename_template=template)
        for split, lengths in shard_lengths.items()
    ]
    tfds.folder_dataset.write_metadata(
        data_dir=directory,
        features=features,
        split_infos=splits,
        filename_template=template,
        check_data=False,
        description="Unmasked instances for BERT pretraining",
    )
