"""Prepares the portions of a corpus, each from its files to its shards, so that other machines can do it."""

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

from bert_jax.config.data import DataConfig
from bert_jax.config.operation import PreparationConfig
from bert_jax.corpora.corpus import Mixture, open_corpus
from bert_jax.corpora.file_source import FileSource
from bert_jax.instances.chunk_files import RECORD, ChunkRecord, chunk_file
from bert_jax.instances.chunk_worker import Target, prepare_unless_finished
from bert_jax.instances.chunks import Chunk, cut_chunks
from bert_jax.system.errors import RunError, UsageError
from bert_jax.system.progress import say, stage
from bert_jax.system.spark import Spark, check_installed, connected


class Portion(NamedTuple):
    """Files of one source that are cut into chunks by themselves."""

    source: int
    text: FileSource
    first: int = 0
    """Index of its first chunk in the corpus."""
    crc32s: tuple[int, ...] = ()
    """Checksums of its chunks."""

    def chunks(self, chunk_bytes: int) -> Iterator[Chunk]:
        """Reads the files and cuts the text."""
        return cut_chunks([(self.source, self.text.documents())], chunk_bytes, self.first)


class Prepared(NamedTuple):
    """What came of a portion."""

    remarks: list[str]
    """What was wrong with chunks that an earlier attempt finished."""
    repairs: Counter[str]


def prepared_by_spark(
    corpus: Mixture, targets: Sequence[Target], settings: PreparationConfig, ends_held_out: Collection[int] = ()
) -> list[list[ChunkRecord]]:
    """The records of all chunks, in order and one per target, after Spark prepared them.

    The shards are those that this machine's processes would write. The text is read twice: a chunk's index, by which
    its shard is named and its random numbers are drawn, follows from the number of chunks before it. Raises UsageError
    if a file changes meanwhile, and RunError if what Spark's workers wrote isn't here.
    """
    portions = [
        Portion(source, portion)
        for source, part in enumerate(corpus.parts)
        if isinstance(part, FileSource)
        for portion in part.portions()
    ]
    chunk_bytes = targets[0].recipe.data.chunk_bytes
    with connected(settings.spark, settings.processes) as spark:
        crc32s = _mapped(spark, functools.partial(count_chunks, chunk_bytes=chunk_bytes), portions, "Cutting the text")
        firsts = itertools.accumulate(map(len, crc32s), initial=0)
        numbered = [
            portion._replace(first=first, crc32s=crc32s)
            for portion, first, crc32s in zip(portions, firsts, crc32s, strict=False)
        ]
        work = functools.partial(prepare_portion, targets=targets, ends_held_out=ends_held_out)
        lengths = " and ".join(str(target.recipe.length) for target in targets)
        results = _mapped(spark, work, numbered, f"Preparing sequences of {lengths}")
    repairs = [Counter[str]() for _ in corpus.parts]
    for portion, result in zip(numbered, results, strict=True):
        repairs[portion.source].update(result.repairs)
        for remark in result.remarks:
            say(f"{remark}: this part of the data is prepared anew")
    corpus.was_read(repairs)
    return [[_record(target, index) for target in targets] for index in range(sum(map(len, crc32s)))]


def check_engine(data: DataConfig, settings: PreparationConfig) -> None:
    """Raises UsageError if Spark is to prepare the data, and it isn't installed or can't read a source."""
    if settings.engine == "spark":
        check_installed()
        for source, part in zip(data.source, open_corpus(data).parts, strict=True):
            if not isinstance(part, FileSource):
                raise UsageError(
                    f"preparation.engine=spark reads files, and data.source={source!r} is none; give text:, jsonl: or "
                    "parquet: sources, or leave preparation.engine out"
                )


def _mapped(spark: Spark, work: Callable[[Portion], Any], portions: Sequence[Portion], name: str) -> list[Any]:
    with stage(name, len(portions), "portions of the text") as bar:
        results = spark.map(work, portions, lambda finished: bar.advance(max(finished - bar.done, 0)))
        bar.advance(len(portions) - bar.done)
    return results


def count_chunks(portion: Portion, chunk_bytes: int) -> tuple[int, ...]:
    """The checksums of a portion's chunks."""
    return tuple(chunk.crc32 for chunk in portion.chunks(chunk_bytes))


def prepare_portion(portion: Portion, targets: Sequence[Target], ends_held_out: Collection[int] = ()) -> Prepared:
    """Prepares the chunks of a portion one after the other. Raises UsageError if they have other checksums than
    before."""
    remarks: list[str] = []
    chunks = portion.chunks(targets[0].recipe.data.chunk_bytes)
    for chunk, crc32 in itertools.zip_longest(chunks, portion.crc32s):
        if chunk is None or chunk.crc32 != crc32:
            raise UsageError(
                f"{portion.text.described} changed while it was being prepared; let no program write it, and give the "
                "same command again"
            )
        remarks += [remark for _, remark in prepare_unless_finished(chunk, targets, ends_held_out) if remark]
    return Prepared(remarks, portion.text.repairs)


def _record(target: Target, index: int) -> ChunkRecord:
    """The record that a worker wrote of a chunk."""
    path = chunk_file(target.directory, index, RECORD)
    try:
        return ChunkRecord.read(path, directory=target.directory, index=index)
    except (OSError, ValueError):
        raise RunError(
            f"{path} isn't here, or can't be read, after Spark's workers have written it; give a --workdir on a file "
            "system that this machine and all workers share"
        ) from None
