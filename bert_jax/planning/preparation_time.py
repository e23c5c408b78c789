"""How long a preparation takes and what it moves, from rates that were measured on a sample."""

from typing import Annotated, NamedTuple

from pydantic import computed_field

from bert_jax.config.data import DataConfig
from bert_jax.config.vocabulary import VocabularyConfig
from bert_jax.system import facts
from bert_jax.system.facts import Facts
from bert_jax.system.workers import available_cores


class Rates(NamedTuple):
    """Seconds that one core of this machine needs for a byte of text."""

    reading: float
    """To decompress and decode it, and to cut it into documents."""
    preparing: float
    """To split, encode and write it."""
    vocabulary: float
    """To train a vocabulary on it; 0 if one is given."""


class PreparationTime(Facts):
    """The preparation of a source: its parts, and its time on several workers like this machine's cores."""

    chunks: int
    shuffled_bytes: Annotated[facts.Traffic, "text sent to workers"]
    """Bytes of text that go from the process that reads them to those that prepare them; workers of Spark read their
    files themselves."""
    shard_bytes: Annotated[facts.Traffic, "written"]
    """Bytes of the shards of all lengths."""
    vocabulary_seconds: Annotated[facts.Seconds, "vocabulary"]
    """To read the text once and to train the vocabulary; one process does it."""
    work_seconds: Annotated[facts.Seconds, "sequences, one core"]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def cores(self) -> int:
        """Cores of this machine that the command may use."""
        return available_cores()

    @computed_field  # type: ignore[prop-decorator]
    @property
    def seconds_here(self) -> Annotated[facts.Seconds, "all, here"]:
        """Time of vocabulary and sequences on this machine."""
        return self.seconds(self.cores)

    def seconds(self, workers: int) -> float:
        """Time of vocabulary and sequences with so many workers; no more are busy than there are chunks."""
        return self.vocabulary_seconds + self.work_seconds / max(min(workers, self.chunks), 1)


def preparation_time(
    size: float, shard_bytes: int, rates: Rates, data: DataConfig, vocabulary: VocabularyConfig
) -> PreparationTime:
    """The preparation of `size` bytes of text to `shard_bytes`."""
    trained_on = min(size, vocabulary.sample_megabytes * 1e6)
    return PreparationTime(
        chunks=max(round(size / data.chunk_bytes), 1),
        shuffled_bytes=round(size),
        shard_bytes=shard_bytes,
        vocabulary_seconds=rates.reading * size + rates.vocabulary * trained_on if rates.vocabulary else 0.0,
        work_seconds=(rates.reading + rates.preparing) * size,
    )
