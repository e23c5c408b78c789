"""Curation: one pass over a corpus decides which documents and lines the run leaves out."""

import functools
import itertools
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
from jaxtyping import Bool, UInt64
from pydantic import Field

from bert_jax.config.data import CURATION, DataConfig
from bert_jax.config.operation import PreparationConfig
from bert_jax.config.wording import counted
from bert_jax.records.corpus import Corpus, Mixture
from bert_jax.records.dropped_list import DroppedDocuments
from bert_jax.records.drops import Drops
from bert_jax.records.duplicates import (
    BOILERPLATE_SHARE,
    BOILERPLATE_TIMES,
    FEWEST_TIMES,
    find_copies,
    find_shared_lines,
)
from bert_jax.records.engine import engine, works_by_portions
from bert_jax.records.examination import Batch, BatchFiles, BatchSummary, batches, examine, line_key
from bert_jax.records.filters import ALL_BOILERPLATE, ALL_COPIED, COPY, NONE
from bert_jax.records.signatures import BANDS
from bert_jax.records.source import short_hash
from bert_jax.system.bucket import Place
from bert_jax.system.copies import fetched
from bert_jax.system.errors import UsageError
from bert_jax.system.files import FileSum, new_directory, refuse_links, remove_directory
from bert_jax.system.progress import Stage, say, stage
from bert_jax.system.sealed import Sealed, first_damaged
from bert_jax.system.workers import available_cores, map_in_processes

_RECORD, _LIST, _BATCHES = "curation.json", "dropped.jsonl", "batches"
_EXAMINING = "Examining the text"
_OF_READING = ("source", "language", "layout", "undecodable", "spans", "chunk_megabytes")
"""Settings of the data by which the text is read."""
_MOST_LINES = 100_000
"""Most distinct lines that are counted as candidates for examples of boilerplate."""
_EXAMPLES, _EXAMPLE_CHARACTERS = 3, 80


class CurationRecord(Sealed):
    """The record of a finished curation."""

    made_from: Annotated[str, Field(max_length=128)]
    """Hash of the settings and of the revision of the text."""


def curated(corpus: Mixture, data: DataConfig, settings: PreparationConfig, directory: Place) -> Drops:
    """Decides what is dropped from a corpus, unless `directory` holds it already; lists the documents there.

    First the filters refuse documents, then later copies of the others are dropped, then lines of what is left.
    Nothing depends on the order of the work. Raises UsageError if nothing is left of a source.
    """
    made_from = _made_from(corpus, data)
    if not _is_finished(directory, made_from):
        refuse_links(directory.parent, directory)
        remove_directory(directory)
        with new_directory(directory) as temporary:
            _curate(corpus, data, settings, temporary)
            files = {path.name: FileSum.of(path) for path in temporary.iterdir()}
            CurationRecord(made_from=made_from, files=files).write(temporary / _RECORD)
            has_list = (temporary / _LIST).stat().st_size > 0
        say(f"{directory / _LIST} lists the documents that are dropped" if has_list else "no document is dropped")
    return Drops(fetched(directory))


def _made_from(corpus: Mixture, data: DataConfig) -> str:
    return short_hash([corpus.revision, data.model_dump(mode="json", include={*_OF_READING, *CURATION})])


def curation_damage(directory: Place) -> str | None:
    """What is wrong with a curation; None if all of its files are as they were written."""
    try:
        record = CurationRecord.read(directory / _RECORD)
    except (OSError, ValueError) as error:
        return f"{_RECORD} can't be used ({getattr(error, 'strerror', None) or error})"
    damaged = first_damaged(directory, record.files)
    return f"{damaged} is not as it was written" if damaged else None


def _is_finished(directory: Place, made_from: str) -> bool:
    return curation_damage(directory) is None and CurationRecord.read(directory / _RECORD).made_from == made_from


def _curate(corpus: Mixture, data: DataConfig, settings: PreparationConfig, directory: Path) -> None:
    """Examines all documents and writes into `directory` what is dropped."""
    (directory / _BATCHES).mkdir()
    lines, repeated = 0, Counter[str]()
    for summary in _examinations(corpus, data, settings, directory / _BATCHES):
        lines += summary.lines
        repeated.update(summary.repeated)
        if len(repeated) > _MOST_LINES:
            repeated = Counter(dict(repeated.most_common(_MOST_LINES // 2)))
    files = BatchFiles(directory / _BATCHES)
    if not len(files):
        raise UsageError(f"{data.described} holds no text; give a corpus")
    reasons = files.joined("refusals")
    bands = range({None: 0, "exact": 1, "near": BANDS}[data.deduplicate])
    with stage("Comparing documents", len(bands), "bands") as bar:
        copies = find_copies(files, reasons == NONE, bar.counted(bands))
    reasons[copies.documents] = COPY
    dropped_lines = _lines(files, reasons == NONE, data, lines, repeated)
    emptied = _emptied(files, dropped_lines) & (reasons == NONE)
    reasons[emptied] = ALL_BOILERPLATE if data.drop_boilerplate else ALL_COPIED
    documents = DroppedDocuments(files, reasons, copies, data.source)
    documents.check_sources()
    documents.say()
    documents.write(directory / _LIST)
    Drops.write(directory, files.joined("places")[reasons != NONE], dropped_lines)
    shutil.rmtree(directory / _BATCHES)


def _examinations(
    corpus: Mixture, data: DataConfig, settings: PreparationConfig, directory: Path
) -> Iterator[BatchSummary]:
    """Examines each batch; yields what comes of each, in order."""
    work = functools.partial(examine, data=data, directory=directory)
    if works_by_portions(corpus, settings):
        with engine(settings) as mapped:
            of_portions = mapped(functools.partial(_examine_portion, work=work), corpus.files_portions(), _EXAMINING)
        yield from itertools.chain(*of_portions)
        return
    with stage(_EXAMINING, corpus.total, corpus.unit) as bar:
        yield from map_in_processes(work, _batches(corpus, bar), settings.processes or available_cores())


def _batches(corpus: Mixture, bar: Stage) -> Iterator[Batch]:
    for source, portion, documents in corpus.whole_portions():
        for batch in batches(documents, source, portion):
            yield batch
            bar.advance(corpus.position - bar.done)


def _examine_portion(portion: tuple[int, Corpus], work: Callable[[Batch], BatchSummary]) -> list[BatchSummary]:
    source, text = portion
    return [work(batch) for batch in batches(text.documents(), source, text.source.number)]


def _lines(
    files: BatchFiles, kept: Bool[np.ndarray, " N"], data: DataConfig, lines: int, repeated: Counter[str]
) -> UInt64[np.ndarray, " M"]:
    """The places of the lines that are dropped from the documents that are kept. Says how many they are.

    `lines`: the number of all lines; `repeated`: candidates for examples of boilerplate.
    """
    if not data.compares_lines:
        return np.zeros(0, np.uint64)
    shared = find_shared_lines(files, kept, lines)
    dropped = shared.boilerplate if data.drop_boilerplate else np.zeros(0, np.uint64)
    if len(shared.boilerplate):
        texts = (line for line, _ in repeated.most_common() if line_key(line) in shared.boilerplate_keys)
        examples = ", ".join(repr(line[:_EXAMPLE_CHARACTERS]) for line in itertools.islice(texts, _EXAMPLES))
        drops = "drops" if data.drop_boilerplate else "would drop"
        often = (
            f"{BOILERPLATE_SHARE:.0%} of the documents and at least {FEWEST_TIMES}, or in over {BOILERPLATE_TIMES:,}"
        )
        say(
            f"--data.drop-boilerplate {drops} {counted(len(shared.boilerplate), 'lines')} "
            f"({len(shared.boilerplate_keys):,} distinct), each in over {often}: {examples}"
        )
    if data.deduplicate and data.layout == "paragraphs":
        paragraphs = np.setdiff1d(shared.paragraphs, dropped)
        if len(paragraphs):
            count = counted(len(paragraphs), "paragraphs")
            say(f"--data.deduplicate drops {count} that an earlier document already has")
        dropped = np.concatenate([dropped, paragraphs])
    return dropped


def _emptied(files: BatchFiles, dropped: UInt64[np.ndarray, " M"]) -> Bool[np.ndarray, " N"]:
    """Whether all lines of each document are among those at the `dropped` places."""
    emptied = np.zeros(files.ends[-1], bool)
    if len(dropped):
        for batch in range(len(files)):
            stays = ~np.isin(files.read(batch, "line_places"), dropped)
            begin, end = files.ends[batch : batch + 2]
            emptied[begin:end] = True
            emptied[begin + files.read(batch, "line_documents")[stays]] = False
    return emptied
