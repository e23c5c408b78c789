"""A data set on disk: its record, its checksums, and what shaped it."""

import hashlib
import json
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Int
from pydantic import ConfigDict, Field

from bert_jax.instances.checked_record import read_checked, write_checked
from bert_jax.instances.chunk_worker import HELD_OUT, TRAIN, Recipe
from bert_jax.instances.damage import damage_error
from bert_jax.instances.number_file import read_numbers
from bert_jax.instances.statistics import Count, Statistics
from bert_jax.instances.store_metadata import FEATURES_FILE, INFO_FILE, StoreMetadata
from bert_jax.system.bucket import Place
from bert_jax.system.copies import fetched, publish
from bert_jax.system.files import FileSum, remove_directory
from bert_jax.system.formats import check_format
from bert_jax.system.json_file import Shape, as_shape

_FORMAT = 3
"""Counts up when the same settings would give other records, and when the default of a setting changes: fingerprints
leave defaults out. Sets of earlier formats stay readable: `fingerprint` still makes theirs."""
_LAST_WITH_DEFAULTS = 2
"""The last format whose fingerprint has the defaults in it. A record without a format has this one or an earlier."""
_LAST_UNCHECKED = 2
"""The last format of which some records have no checksum: those of early releases."""
_SETTINGS_OF_FORMAT_2 = {
    "source",
    "layout",
    "language",
    "undecodable",
    "held_out",
    "short_sequence_probability",
    "dupe_factor",
    "chunk_megabytes",
}
"""Whose defaults are in the fingerprint of format 2. Never changes: later settings are new to such a set."""
_RECORD = "prepared.json"
COUNTS_FILE = "piece_counts.npy"
SMALL_FILES = (COUNTS_FILE, FEATURES_FILE, INFO_FILE)
"""What lies beside the shards and the record."""
_Hash = Annotated[str, Field(max_length=128)]
_ShardName = Annotated[str, Field(pattern=r"^(train|held_out)-\d{5,9}\.array_record$")]


class PreparedData(Shape):
    """A finished data set: what is written down of it in prepared.json."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    directory: Annotated[Place, Field(exclude=True)]
    format: Annotated[int, Field(ge=1)] = _FORMAT
    """Of the record, the shards and the fingerprint."""
    length: Annotated[int, Field(ge=1, le=1 << 20)]
    """Tokens of a full sequence."""
    fingerprint: _Hash
    """Hash of all that shaped the set but the text."""
    corpus: _Hash
    """The corpus' stamp: names, sizes and both ends of its files."""
    revision: _Hash | None = None
    """The corpus' revision: it tells whether a file was written since. None of an earlier release."""
    text: _Hash | None = None
    """Hash of all text. None of an earlier release."""
    sources: list[Count]
    """Training sequences of each source; those of a source lie together, source after source."""
    train: Statistics
    held_out: Statistics
    held_out_dropped: Count
    """Held-out documents left out because they share a long paragraph with a training document."""
    shards: dict[_ShardName, FileSum]
    """Checksum of every shard by file name."""
    files: dict[Literal[SMALL_FILES], FileSum] = {}
    """Checksum of every small file by its name. Empty of an earlier release."""
    example_sentences: list[str]
    """A few held-out sentences of middling length, to show what the model makes of them."""

    @property
    def piece_counts(self) -> Int[np.ndarray, " V"]:
        """How often each piece occurs in the training documents. Raises RunError where the file is damaged."""
        path = self.directory / COUNTS_FILE
        try:
            return read_numbers(path, np.int64)
        except (OSError, ValueError) as error:
            raise damage_error(path, error) from None

    def save(self) -> None:
        """Writes prepared.json: the set is finished with it."""
        write_checked(self.directory / _RECORD, self.model_dump(mode="json"))

    @classmethod
    def open(cls, directory: Place) -> "PreparedData | None":
        """The finished set in `directory`, or None. Of one in a bucket, which can't be read there, a checked copy.

        Small files are read and compared with their checksums; of shards only the sizes are. Raises RunError where one
        is missing or isn't as it was written, UsageError where a newer release wrote the set.
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
        """What is written down of the finished set in `directory`, without its files.

        Raises RunError if damaged, UsageError where a newer release wrote it.
        """
        path = directory / _RECORD
        try:
            value = read_checked(path, unchecked_formats=_LAST_UNCHECKED)
            value["format"] = check_format(path, value.get("format", _LAST_WITH_DEFAULTS), _FORMAT)
            if "sources" not in value and isinstance(value.get("train"), dict):  # of a release that knew only one
                value["sources"] = [value["train"].get("instances")]
            found = as_shape(value | {"directory": directory}, cls)
            if sum(found.sources) != found.train.instances:
                raise ValueError("the sequences of its sources do not add up to all of them")
            return found
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise damage_error(path, error) from None

    def is_of(self, recipe: Recipe) -> bool:
        """Whether the set has the fingerprint that one of `recipe` has in the set's format."""
        return self.fingerprint == fingerprint(recipe, self.format)

    def damaged_file(self) -> str | None:
        """The first file that isn't as it was written, or None. Reads all of them."""
        for name, written in (self.shards | self.files).items():
            try:
                if FileSum.of(self.directory / name) != written:
                    return name
            except OSError:  # gone, or on a disk that can't read it
                return name
        return None

    @property
    def not_covered(self) -> list[str]:
        """Files of the set of which no checksum was noted: of a set that an earlier release made."""
        return [name for name in SMALL_FILES if name not in self.files]

    def _check_metadata(self) -> None:
        """Raises RunError where the metadata are of another set: of an earlier release they have no checksum."""
        lengths = StoreMetadata.read(self.directory).shard_lengths
        for split, seen in ((TRAIN, self.train), (HELD_OUT, self.held_out)):
            if sum(lengths.get(split, [])) != seen.instances:
                raise damage_error(self.directory / INFO_FILE, f"it has another number of {split} records")


def discard(directory: Place) -> None:
    """Deletes the data set in `directory`, its record first: half a deletion leaves none."""
    (directory / _RECORD).unlink(missing_ok=True)
    remove_directory(directory)


def publish_prepared(directory: Place) -> None:
    """Copies the set made in `worked_on(directory)` to its bucket, if it belongs in one, its record last."""
    publish(directory, last=_RECORD)


def fingerprint(recipe: Recipe, format: int = _FORMAT) -> str:
    """A hash of all that shapes the records, but for the text itself; weights only shape their order.

    Of the settings, those that differ from their defaults: a new setting whose default does what was done before it
    was there leaves all sets as they are. In earlier formats also those that were there then.
    """
    there = (path for path in recipe.tokenizer_directory.iterdir() if path.is_file())
    files = sorted(path for path in there if path.name != "origin.json")
    tokenizer = [path.read_bytes().decode("utf-8", "surrogateescape") for path in files]  # a model is no text
    settings = recipe.data.model_dump(exclude={"weights"}, exclude_defaults=True)
    if format <= _LAST_WITH_DEFAULTS:
        format = _LAST_WITH_DEFAULTS  # sets of an earlier one have other records and match none
        settings |= recipe.data.model_dump(include=_SETTINGS_OF_FORMAT_2)
    shape = [format, settings, recipe.length, recipe.seed, tokenizer, recipe.pair]
    return hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()
