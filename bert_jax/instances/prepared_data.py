"""A prepared data set on disk: its record, its checksums, and the fingerprint of its settings."""

import hashlib
import json
import operator
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Int
from pydantic import ConfigDict, Field

from bert_jax.config.data import DataConfig
from bert_jax.instances.checked_files import damage_error, read_checked, read_numbers, write_checked
from bert_jax.instances.chunk_text import Recipe
from bert_jax.instances.chunk_worker import HELD_OUT, TRAIN
from bert_jax.instances.statistics import Count, Statistics
from bert_jax.instances.store_metadata import FEATURES_FILE, INFO_FILE, StoreMetadata
from bert_jax.system.bucket import Place
from bert_jax.system.copies import fetched, publish
from bert_jax.system.files import FileSum, remove_directory
from bert_jax.system.json_file import Shape, as_shape, check_format
from bert_jax.text.lexicon import LexiconFile

_FORMAT = 1
"""Version of the format of the record, the shards and the fingerprint.

It is increased when the same settings give other records, and when the default of a setting changes, since
fingerprints leave out defaults."""
_RECORD = "prepared.json"
COUNTS_FILE = "piece_counts.npy"
SMALL_FILES = (COUNTS_FILE, FEATURES_FILE, INFO_FILE)
"""The other files of a data set besides the shards and the record."""
_Hash = Annotated[str, Field(max_length=128)]
_ShardName = Annotated[str, Field(pattern=r"^(train|held_out)-\d{5,9}\.array_record$")]


class PreparedData(Shape):
    """A finished data set, as recorded in its prepared.json."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    directory: Annotated[Place, Field(exclude=True)]
    format: Annotated[int, Field(ge=1)] = _FORMAT
    """Version of the format."""
    length: Annotated[int, Field(ge=1, le=1 << 20)]
    """Number of tokens of a full sequence."""
    fingerprint: _Hash
    """Hash of everything that determines the records, except the text."""
    corpus: _Hash
    """Stamp of the corpus: a hash of the names, sizes and both ends of its files."""
    revision: _Hash
    """Revision of the corpus, which changes when a file is written again."""
    text: _Hash
    """Hash of the whole text."""
    sources: list[Count]
    """Number of training records of each source. They are ordered by source."""
    train: Statistics
    of_sources: list[Statistics]
    """Statistics of each source's training documents."""
    held_out: Statistics
    held_out_dropped: Count
    """Number of held-out documents left out because they share a long paragraph with a training document."""
    shards: dict[_ShardName, FileSum]
    """Checksum of every shard by file name."""
    files: dict[Literal[SMALL_FILES], FileSum]
    """Checksum of each of SMALL_FILES by name."""
    example_sentences: list[str]
    """A few held-out sentences of medium length, for showing the model's predictions."""

    @property
    def piece_counts(self) -> Int[np.ndarray, " V"]:
        """Number of occurrences of each piece in the training documents. Raises RunError if the file is damaged."""
        path = self.directory / COUNTS_FILE
        try:
            return read_numbers(path, np.int64)
        except (OSError, ValueError) as error:
            raise damage_error(path, error) from None

    def save(self) -> None:
        """Writes prepared.json, which marks the data set as finished."""
        write_checked(self.directory / _RECORD, self.model_dump(mode="json"))

    @classmethod
    def open(cls, directory: Place) -> "PreparedData | None":
        """Opens the finished data set in `directory`, or returns None if there is none. A set in a bucket is copied.

        The checksums of the small files are verified; of shards only the sizes are. Raises RunError if a file is
        missing or changed, and UsageError if another release wrote the data set.
        """
        found = cls.read(directory)
        if not found:
            return None
        found = found.model_copy(update={"directory": fetched(directory)})
        for name, written in (found.shards | found.files).items():
            path = found.directory / name
            size = path.stat().st_size if path.is_file() else 0
            if size != written.size:
                reason = f"it has {size:,} bytes and should have {written.size:,}"
                raise damage_error(directory / name, reason)
            if name in found.files and FileSum.of(path) != written:
                raise damage_error(directory / name, "its checksum is another")
        found._check_metadata()
        return found

    @classmethod
    def read(cls, directory: Place) -> "PreparedData | None":
        """Reads the record of the data set in `directory` without checking its files; None if there is no record.

        Raises RunError if the record is damaged, and UsageError if another release wrote it.
        """
        path = directory / _RECORD
        try:
            value = read_checked(path)
            check_format(path, value.get("format"), _FORMAT)
            found = as_shape(value | {"directory": directory}, cls)
            if sum(found.sources) != found.train.rows:
                raise ValueError("the records of its sources do not add up to all of them")
            return found
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise damage_error(path, error) from None

    def sequences_a_row(self, shares: Sequence[float] | None) -> float:
        """The mean number of sequences in the rows that a training draws, with these shares of the sources."""
        drawn = shares or [source.rows for source in self.of_sources]
        means = [source.instances / max(source.rows, 1) for source in self.of_sources]
        return sum(map(operator.mul, drawn, means)) / max(sum(drawn), 1e-9)

    def as_json(self, config: DataConfig, budget: int) -> dict[str, Any]:
        """What the training sequences are, as a JSON object; `config` has the settings that they were made with.

        `budget`: how many tokens of a full sequence are masked. `share` of a source is that of the training's draws.
        """
        shares = config.shares or [records / max(sum(self.sources), 1) for records in self.sources]
        train = self.train
        return {
            "rows": train.rows,
            "sequences": train.instances,
            "tokens": train.instance_tokens,
            "fill": train.fill(self.length),
            "pairs_random": train.random_pairs,
            "units": train.units_json(budget),
            "sources": [
                {
                    "source": source,
                    "language": language,
                    "sequences": seen.instances,
                    "tokens": seen.instance_tokens,
                    "share": share,
                }
                for source, language, seen, share in zip(
                    config.source, config.languages, self.of_sources, shares, strict=True
                )
            ],
        }

    def is_of(self, recipe: Recipe) -> bool:
        """Whether the data set was made with `recipe`."""
        return self.fingerprint == fingerprint(recipe)

    def damaged_file(self) -> str | None:
        """The name of the first file whose checksum differs, or None. Reads all files completely."""
        for name, written in (self.shards | self.files).items():
            try:
                if FileSum.of(self.directory / name) != written:
                    return name
            except OSError:  # the file is missing or unreadable
                return name
        return None

    def _check_metadata(self) -> None:
        """Raises RunError if the metadata have another number of records than the record of the set."""
        lengths = StoreMetadata.read(self.directory).shard_lengths
        for split, seen in ((TRAIN, self.train), (HELD_OUT, self.held_out)):
            if sum(lengths.get(split, [])) != seen.rows:
                raise damage_error(self.directory / INFO_FILE, f"it has another number of {split} records")


def discard(directory: Place) -> None:
    """Deletes the data set in `directory`, the record first, so that a partial deletion leaves no finished set."""
    (directory / _RECORD).unlink(missing_ok=True)
    remove_directory(directory)


def publish_prepared(directory: Place) -> None:
    """Uploads the data set in `worked_on(directory)` if `directory` is in a bucket; uploads the record last."""
    publish(directory, last=_RECORD)


def fingerprint(recipe: Recipe) -> str:
    """Hash of everything that determines the records, except the text.

    `data.weights` is left out, as it only determines the order. Settings with their default value are left out, too:
    a new setting whose default keeps the earlier behaviour doesn't change any fingerprint.
    """
    there = (path for path in recipe.tokenizer_directory.iterdir() if path.is_file())
    files = sorted(path for path in there if path.name != "origin.json")
    # A sentencepiece model is binary, so undecodable bytes are kept as surrogates.
    tokenizer = [path.read_bytes().decode("utf-8", "surrogateescape") for path in files]
    settings = recipe.data.model_dump(exclude={"weights", *recipe.data.lexicons}, exclude_defaults=True)
    shape = [_FORMAT, settings, recipe.length, recipe.seed, tokenizer, recipe.pair]
    # Of a lexicon what it holds counts, not where it lies.
    lexicons = recipe.data.lexicons
    shape += [[name, LexiconFile.read(path, f"data.{name}").sha256] for name, path in lexicons.items()]
    return hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()
