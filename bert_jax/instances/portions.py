"""Prepares the portions of a corpus, each from its files to its shards. Other machines can do so, too."""

import functools
import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from bert_jax.config.data import DataConfig
from bert_jax.config.operation import PreparationConfig
from bert_jax.instances.chunk_worker import PendingSet, preparation_title, prepare_unless_finished
from bert_jax.instances.chunks import SUMMARY, Chunk, FinishedChunk, chunk_file, cut_chunks
from bert_jax.records.corpus import Corpus, Mixture, open_corpus
from bert_jax.records.drops import Drops
from bert_jax.records.engine import engine
from bert_jax.records.file_source import FileSource
from bert_jax.system.bucket import in_bucket
from bert_jax.system.copies import fetched
from bert_jax.system.errors import RunError, Setting, UsageError
from bert_jax.system.progress import say
from bert_jax.system.spark import check_spark


class Portion(NamedTuple):
    """Files of one source that are cut into chunks independently of its other files."""

    source: int
    text: Corpus
    drops: Drops | None = None
    """What is dropped from the corpus."""
    first: int = 0
    """Index in the corpus of the portion's first chunk."""
    crc32s: tuple[int, ...] = ()
    """Checksums of the portion's chunks."""

    def chunks(self, chunk_bytes: int) -> Iterator[Chunk]:
        documents = self.text.documents()
        if self.drops:
            documents = self.drops.remaining(documents, self.source, self.text.source.number, self.text)
        return cut_chunks([(self.source, documents)], chunk_bytes, self.first)


class Seen(NamedTuple):
    """What the first reading of a portion returns."""

    crc32s: tuple[int, ...]
    """Checksums of the portion's chunks."""
    repairs: Counter[str]
    lines: int
    """Lines with text."""


def prepared_by_portions(
    corpus: Mixture, targets: Sequence[PendingSet], settings: PreparationConfig, ends_held_out: Collection[int] = ()
) -> list[list[FinishedChunk]]:
    """Prepares the chunks in workers that read the portions; returns the finished chunks, in order and one per target.

    The shards are the same as if one process had read for all workers. The text is read twice: a chunk's index follows
    from the number of chunks before it, and determines its shard's name and its random numbers. All sources must
    consist of files. If a set goes to a bucket, workers of Spark write there, so they needn't share a disk with this
    machine.

    Raises UsageError if a file changes meanwhile, and RunError if what workers of Spark wrote isn't here.
    """
    portions = [Portion(*portion, corpus.drops) for portion in corpus.files_portions()]
    chunk_bytes = targets[0].recipe.data.chunk_bytes
    with engine(settings) as mapped:
        seen = mapped(functools.partial(read_portion, chunk_bytes=chunk_bytes), portions, "Cutting the text")
        for source, part in enumerate(corpus.parts):
            own = [each for portion, each in zip(portions, seen, strict=True) if portion.source == source]
            part.was_read(sum((each.repairs for each in own), Counter()), sum(each.lines for each in own))
        firsts = itertools.accumulate((len(each.crc32s) for each in seen), initial=0)
        numbered = [
            portion._replace(first=first, crc32s=each.crc32s)
            for portion, first, each in zip(portions, firsts, seen, strict=False)
        ]
        elsewhere = [_written_by_workers(target, settings) for target in targets]
        work = functools.partial(prepare_portion, targets=elsewhere, ends_held_out=ends_held_out)
        remarks = mapped(work, numbered, preparation_title(targets))
    for target in elsewhere:
        if in_bucket(target.directory):
            fetched(target.directory)
    for remark in itertools.chain(*remarks):
        say(remark)
    return [[_finished(target, index) for target in targets] for index in range(sum(len(each.crc32s) for each in seen))]


def check_engine(data: DataConfig, settings: PreparationConfig) -> None:
    """Raises UsageError if Spark is to prepare the data, and it isn't installed or can't read a source."""
    if settings.engine == "spark":
        check_spark()
        for source, part in zip(data.source, open_corpus(data).parts, strict=True):
            if not isinstance(part.source, FileSource):
                raise UsageError(
                    f"{Setting('preparation.engine', 'spark')} reads files, and {Setting('data.source')}={source!r} "
                    "doesn't consist of files; give text:, jsonl: or parquet: sources, or leave "
                    f"{Setting('preparation.engine')} out"
                )


def read_portion(portion: Portion, chunk_bytes: int) -> Seen:
    """Reads a portion and cuts it into chunks, for their checksums."""
    crc32s = tuple(chunk.crc32 for chunk in portion.chunks(chunk_bytes))
    return Seen(crc32s, portion.text.repairs, portion.text.lines)


def prepare_portion(portion: Portion, targets: Sequence[PendingSet], ends_held_out: Collection[int]) -> list[str]:
    """Prepares the chunks of a portion one by one; returns messages about damaged chunks of an earlier attempt.

    Raises UsageError if the chunks have other checksums than at the first reading.
    """
    remarks: list[str] = []
    chunks = portion.chunks(targets[0].recipe.data.chunk_bytes)
    for chunk, crc32 in itertools.zip_longest(chunks, portion.crc32s):
        if chunk is None or chunk.crc32 != crc32:
            raise UsageError(
                f"{portion.text.source.name} changed while it was being prepared; let no program write it, and give "
                "the same command again"
            )
        remarks += [remark for _, remark in prepare_unless_finished(chunk, targets, ends_held_out) if remark]
    return remarks


def _written_by_workers(target: PendingSet, settings: PreparationConfig) -> PendingSet:
    """The target that workers write to: workers of Spark write into the bucket if the set goes to one."""
    if settings.engine == "spark" and target.place and in_bucket(target.place):
        return target._replace(directory=target.place)
    return target


def _finished(target: PendingSet, index: int) -> FinishedChunk:
    """Chunk `index`, which a worker finished."""
    path = chunk_file(target.directory, index, SUMMARY)
    try:
        return FinishedChunk.read(path, directory=target.directory, index=index)
    except (OSError, ValueError):
        raise RunError(
            f"{path} isn't here, or can't be read, after Spark's workers have written it; give a --workdir on a file "
            "system that this machine and all workers share, or in a bucket"
        ) from None
