"""How long a preparation takes and what it moves, from what was measured on a sample."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import computed_field

from bert_jax.config.run import RunConfig
from bert_jax.config.wording import counted
from bert_jax.planning.trial import Trial, try_preparation
from bert_jax.records.corpus import open_corpus
from bert_jax.records.spread_sample import SpreadSample, read_sample
from bert_jax.system import facts
from bert_jax.system.errors import Setting, UsageError
from bert_jax.system.facts import Facts
from bert_jax.system.progress import duration, say
from bert_jax.system.workers import available_cores

_WORKERS = (1, 10, 100)
"""Numbers of workers whose time a dry run tells."""


class PreparationTime(Facts):
    """The preparation of a source: its parts, and its time."""

    chunks: int
    shuffled_bytes: Annotated[facts.Traffic, "text sent to workers"]
    """Bytes of text that go from the process that reads them to those that prepare them. Workers of Spark read their
    files themselves, twice."""
    shard_bytes: Annotated[facts.Traffic, "written"]
    """Bytes of the shards of the config's lengths."""
    vocabulary_seconds: Annotated[facts.Seconds, "vocabulary"]
    """To read the text once and to train the vocabulary; 0 if one is given."""
    work_seconds: Annotated[facts.Seconds, "sequences, one core"]
    """To read, split, encode and write the text on one core of this machine."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def seconds_here(self) -> Annotated[facts.Seconds, "both, on this machine's cores"]:
        """Time of vocabulary and sequences on all cores that the command may use."""
        return self.seconds(available_cores())

    def seconds(self, workers: int) -> float:
        """Time of vocabulary and sequences with so many workers like a core of this machine.

        No more are busy than there are chunks, and one process trains the vocabulary.
        """
        return self.vocabulary_seconds + self.work_seconds / min(workers, self.chunks)

    def __add__(self, other: "PreparationTime") -> "PreparationTime":
        return type(self)(**{name: getattr(self, name) + getattr(other, name) for name in type(self).model_fields})


def preparation_time(sample: SpreadSample, trial: Trial, config: RunConfig) -> PreparationTime:
    """The preparation of a whole source, of which a sample was read and a part of that prepared."""
    size, reading = sample.text_bytes, sample.seconds / sample.bytes
    trained_on = min(size, config.vocabulary.sample_megabytes * 1e6)
    training = trial.vocabulary_seconds / trial.bytes * trained_on
    return PreparationTime(
        chunks=max(round(size / config.data.chunk_bytes), 1),
        shuffled_bytes=round(size),
        shard_bytes=round(trial.shard_bytes / trial.bytes * size),
        vocabulary_seconds=training + reading * size if training else 0.0,
        work_seconds=(reading + trial.seconds / trial.bytes) * size,
    )


def planned_preparation(config: RunConfig) -> Iterator[tuple[str, str]]:
    """Yields what a preparation would do, in words, each with its name, after a trial on a sample of each source.

    Raises UsageError if a source can't be read, or holds no or too little text.
    """
    times, shares = [], []
    for name, language, source in zip(
        config.data.source, config.data.languages, open_corpus(config.data).parts, strict=True
    ):
        of_source = config.of_source(name, language)
        sample = read_sample(source)
        if not sample.documents:
            raise UsageError(f"{Setting('data.source')}={name!r} holds no text; give another")
        say(f"Preparing a sample of {name}")
        times.append(preparation_time(sample, try_preparation(sample.documents, of_source, sample.has_all), of_source))
        shares.append(f"{sample.text_bytes / 1e6:,.4g} MB, {sample.described} looked at ({sample.share:.0%})")
    total = sum(times[1:], start=times[0])
    for name, share in zip(config.data.source, shares, strict=True):
        yield name, share
    yield from _in_words(total, config)


def _in_words(total: PreparationTime, config: RunConfig) -> Iterator[tuple[str, str]]:
    lengths = " and ".join(str(length) for length in dict.fromkeys(phase.length for phase in config.phases))
    if config.data.is_curated:
        yield "dropped", "not estimated: the figures are of all documents"
    yield "chunks", f"{total.chunks:,} of about {config.data.chunk_megabytes:g} MB of text"
    yield "shuffled", f"{facts.bytes_moved(total.shuffled_bytes)} of text go to the workers (not with Spark)"
    yield "written", f"{facts.bytes_moved(total.shard_bytes)} of sequences of {lengths}"
    yield "vocabulary", duration(total.vocabulary_seconds) if total.vocabulary_seconds else "given"
    rate = total.shuffled_bytes / total.work_seconds / 1e6
    yield "rate, measured", f"{rate:,.3g} MB of text a second and worker"
    for workers in _WORKERS:
        yield counted(workers, "workers"), duration(total.seconds(workers))
