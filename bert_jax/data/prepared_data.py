"""A data set on disk: its record, its checksums, and what shaped it."""

import hashlib
import json
import zlib
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from bert_jax.data.chunk_worker import Recipe
from bert_jax.data.statistics import Statistics
from bert_jax.system.bucket import Place
from bert_jax.system.copies import fetched, publish
from bert_jax.system.errors import RunError
from bert_jax.system.files import FileSum, remove_directory, write_json

_FORMAT = 2
"""Counts up when the same settings would give other records."""
_RECORD = "prepared.json"


class PreparedData(NamedTuple):
    """A finished data set."""

    directory: Place
    length: int
    """Tokens of a full sequence."""
    fingerprint: str
    """Of all that shaped it but the text ..."""
    corpus: str
    """... and the text's stamp."""
    sources: list[int]
    """Training sequences of each source; those of a source lie together, source after source."""
    train: Statistics
    held_out: Statistics
    held_out_dropped: int
    """Held-out documents left out because they share a long paragraph with a training document."""
    shards: dict[str, FileSum]
    """Every shard by file name."""
    example_sentences: list[str]
    """A few held-out sentences of middling length, to show what the model makes of them."""

    @property
    def piece_counts(self) -> Int[np.ndarray, " V"]:
        """How often each piece occurs in the training documents. Raises RunError where the file is damaged."""
        try:
            return np.load(self.directory / "piece_counts.npy")
        except (OSError, ValueError) as error:
            raise damaged(self.directory / "piece_counts.npy", error) from None

    def save(self) -> None:
        """Writes prepared.json: the set is finished with it."""
        value = {
            "format": _FORMAT,
            "length": self.length,
            "fingerprint": self.fingerprint,
            "corpus": self.corpus,
            "sources": self.sources,
            "train": self.train.as_json(),
            "held_out": self.held_out.as_json(),
            "held_out_dropped": self.held_out_dropped,
            "shards": self.shards,
            "example_sentences": self.example_sentences,
        }
        write_json(self.directory / _RECORD, value | {"crc32": _sum(value)})

    @classmethod
    def open(cls, directory: Place) -> "PreparedData | None":
        """The finished set in `directory`, or None. Of one in a bucket, which can't be read there, a checked copy.

        Raises RunError where a shard is missing or cut short.
        """
        found = cls.read(directory)
        if not found:
            return None
        found = found._replace(directory=fetched(directory))
        for name, expected in found.shards.items():
            path = found.directory / name
            size = path.stat().st_size if path.exists() else 0
            if size != expected.size:
                raise RunError(
                    f"{directory / name} has {size:,} bytes and should have {expected.size:,}; delete {directory} and "
                    "give the same command again to prepare it anew"
                )
        return found

    @classmethod
    def read(cls, directory: Place) -> "PreparedData | None":
        """What is written down of the finished set in `directory`, without its shards. Raises RunError if damaged."""
        try:
            value = json.loads((directory / _RECORD).read_text(encoding="utf-8"))
            if value.pop("crc32", None) not in (None, _sum(value)):  # None: of an earlier release
                raise ValueError("its checksum is another")
            del value["format"]
            shards = {name: FileSum(*total) for name, total in value["shards"].items()}
            value["train"] = Statistics.from_json(value["train"])
            value["held_out"] = Statistics.from_json(value["held_out"])
            value.setdefault("sources", [value["train"].instances])  # of a release that knew only one
            return cls(**value | {"shards": shards, "directory": directory})
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            raise damaged(directory / _RECORD, error) from None

    def damaged_shard(self) -> str | None:
        """The first shard that isn't as it was written, or None. Reads all of them."""
        for name, written in self.shards.items():
            try:
                if FileSum.of(self.directory / name) != written:
                    return name
            except OSError:  # gone, or on a disk that can't read it
                return name
        return None


def _sum(value: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(value, sort_keys=True).encode())


def damaged(path: Place, error: Exception) -> RunError:
    """What is said of a damaged file of a data set."""
    return RunError(
        f"{path} is damaged ({str(error).partition(chr(10))[0]}); delete {path.parent} and give the same command again "
        "to prepare it anew"
    )


def discard(directory: Place) -> None:
    """Deletes the data set in `directory`, its record first: half a deletion leaves none."""
    (directory / _RECORD).unlink(missing_ok=True)
    remove_directory(directory)


def publish_prepared(directory: Place) -> None:
    """Copies the set made in `worked_on(directory)` to its bucket, if it belongs in one, its record last."""
    publish(directory, last=_RECORD)


def fingerprint(recipe: Recipe) -> str:
    """A hash of all that shapes the records, but for the text itself; weights only shape their order."""
    files = sorted(path for path in recipe.tokenizer_directory.iterdir() if path.name != "origin.json")
    tokenizer = [path.read_bytes().decode("utf-8", "surrogateescape") for path in files]  # a model is no text
    shape = [_FORMAT, recipe.data.model_dump(exclude={"weights"}), recipe.length, recipe.seed, tokenizer, recipe.pair]
    return hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()
