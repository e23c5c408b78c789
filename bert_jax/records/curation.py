"""Curation: one pass over a corpus decides which documents and lines the run leaves out."""

import contextlib
import functools
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from bert_jax.config.data import CURATION, DataConfig
from bert_jax.config.operation import PreparationConfig
from bert_jax.config.wording import counted
from bert_jax.records.corpus import PARAGRAPH_CHARACTERS, Corpus, Mixture
from bert_jax.records.drops import Drops
from bert_jax.records.engine import engine, works_by_portions
from bert_jax.records.examination import DocumentBatch, cut_into_batches, examine
from bert_jax.records.filters import ALL_BOILERPLATE, ALL_COPIED, COPY, SETTINGS
from bert_jax.records.signatures import find_copies
from bert_jax.system.bucket import Place
from bert_jax.system.content import settings_hash
from bert_jax.system.errors import RunError, Setting, UsageError, first_line
from bert_jax.system.files import FileSum, new_directory, refuse_links, remove_directory
from bert_jax.system.progress import Stage, say, stage
from bert_jax.system.sealed import Sealed, first_damaged
from bert_jax.system.workers import available_cores, map_in_processes

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

BOILERPLATE_SHARE, BOILERPLATE_TIMES = 0.01, 1000
"""A line is boilerplate if more than this share of the documents have it, or more than this number of them."""
FEWEST_TIMES = 10
"""Fewest documents that share a line of boilerplate, even in a small corpus."""
_RECORD, _LIST, _BATCHES, _SPILLED = "curation.json", "dropped.jsonl", "batches", "spilled"
_EXAMINING = "Examining the text"
_OF_READING = ("source", "language", "layout", "undecodable", "spans", "chunk_megabytes")
"""Settings of the data by which the text is read."""
_EXAMPLES = 3
_ROWS_AT_ONCE = 10_000
"""Dropped documents that are fetched from the database at a time."""

_TABLES = """
create temp table documents as
select place, source, row_number() over (partition by source order by place) as number, size, refusal as reason
from batches;
create temp table copies (document ubigint, original ubigint, similarity double);
create temp table dropped_lines (document ubigint, line ubigint, is_boilerplate boolean);
"""
_LINES = """
create temp view lines as
select place as document, unnest(lines, recursive := true) from batches
where place in (select place from documents where reason = 0);
create temp table shared_lines as
select high, low, count(*) as times, min(line) as first, any_value(characters) as characters
from lines group by high, low having count(*) > 1;
"""
_DROPPED_LINES = """
insert into dropped_lines
select document, line, $drop_boilerplate and times > $allowed
from lines join shared_lines using (high, low)
where
    $drop_boilerplate and times > $allowed
    or $drop_paragraphs and shared_lines.characters >= $paragraph_characters and line > first
"""
_EXAMPLES_OF_BOILERPLATE = """
select any_value(text)
from lines join shared_lines using (high, low)
where times > $allowed and text <> ''
group by times, first order by times desc, first limit $examples
"""
_EMPTIED_DOCUMENTS = """
select document from dropped_lines join batches on place = document
group by document, len(lines) having count(*) = len(lines)
"""
_DROPPED_DOCUMENTS = """
with listed as (
    select place, reason, {'source': list_extract($names, source + 1), 'document': number, 'begins': begin} as document
    from documents join batches using (source, place)
)
select dropped.document, dropped.reason, original.document, similarity
from listed dropped
    left join copies on copies.document = dropped.place
    left join listed original on original.place = copies.original
where dropped.reason > 0 order by dropped.place
"""


class CurationSummary(Sealed):
    """What a finished curation was made from, and the checksums of its files."""

    made_from: Annotated[str, Field(max_length=128)]
    """Hash of the settings and of the content of the text."""


def curated(corpus: Mixture, data: DataConfig, settings: PreparationConfig, directory: Place) -> Drops:
    """Decides what is dropped from a corpus, and lists the dropped documents in `directory`.

    A finished curation in `directory`, of the same text and settings, is used again. The filters refuse documents
    first. Then documents that copy an earlier one are dropped, then lines of the remaining documents. The result
    doesn't depend on the order of the work. Raises UsageError if nothing is left of a source.
    """
    made_from = settings_hash(corpus.content_hash, data.model_dump(mode="json", include={*_OF_READING, *CURATION}))
    if curation_damage(directory) or CurationSummary.read(directory / _RECORD).made_from != made_from:
        refuse_links(directory.parent, directory)
        remove_directory(directory)
        with new_directory(directory) as temporary:
            _curate(corpus, data, settings, temporary)
            files = {path.name: FileSum.of(path) for path in temporary.iterdir()}
            CurationSummary(made_from=made_from, files=files).write(temporary / _RECORD)
            has_list = (temporary / _LIST).stat().st_size > 0
        say(f"{directory / _LIST} lists the documents that are dropped" if has_list else "no document is dropped")
    return Drops(directory)


def curation_damage(directory: Place) -> str | None:
    """What is wrong with a curation; None if all of its files are as they were written."""
    try:
        summary = CurationSummary.read(directory / _RECORD)
    except (OSError, ValueError) as error:
        return f"{_RECORD} can't be used ({getattr(error, 'strerror', None) or error})"
    damaged = first_damaged(directory, summary.files)
    return f"{damaged} is not as it was written" if damaged else None


def times_allowed(documents: int) -> float:
    """The most documents, of `documents` in all, that may share a line before it is boilerplate."""
    return min(max(BOILERPLATE_SHARE * documents, FEWEST_TIMES - 1), BOILERPLATE_TIMES)


def _curate(corpus: Mixture, data: DataConfig, settings: PreparationConfig, directory: Path) -> None:
    """Examines all documents and writes into `directory` what is dropped."""
    (directory / _BATCHES).mkdir()
    _examine_all(corpus, data, settings, directory / _BATCHES)
    if not any((directory / _BATCHES).glob("*.parquet")):
        raise UsageError(f"{data.described} holds no text; give a corpus")
    with _database(directory, settings) as database:
        database.execute(_TABLES)
        with stage("Comparing documents", 2, "steps") as bar:
            if data.deduplicate:
                find_copies(database)
                _drop(database, COPY, "select document from copies")
            bar.advance()
            if data.compares_lines:
                _drop_lines(database, data)
            bar.advance()
        _check_sources(database, data.source)
        _say_reasons(database, _write_list(database, data.source, directory / _LIST))
        documents = database.execute("select place from documents where reason > 0 order by place").fetchnumpy()
        lines = database.execute("select line from dropped_lines order by line").fetchnumpy()
    Drops.write(directory, documents["place"], lines["line"])
    shutil.rmtree(directory / _BATCHES)
    shutil.rmtree(directory / _SPILLED, ignore_errors=True)


def _examine_all(corpus: Mixture, data: DataConfig, settings: PreparationConfig, directory: Path) -> None:
    """Examines a corpus batch by batch; each batch gets a file in `directory`."""
    work = functools.partial(examine, data=data, directory=directory)
    if works_by_portions(corpus, settings):
        with engine(settings) as mapped:
            mapped(functools.partial(_examine_portion, work), corpus.files_portions(), _EXAMINING)
        return
    with stage(_EXAMINING, corpus.total, corpus.unit) as bar:
        for _ in map_in_processes(work, _batches(corpus, bar), settings.processes or available_cores()):
            pass


def _batches(corpus: Mixture, bar: Stage) -> Iterator[DocumentBatch]:
    for source, portion, documents in corpus.whole_portions():
        for batch in cut_into_batches(documents, source, portion):
            yield batch
            bar.advance(corpus.position - bar.done)


def _examine_portion(work: Callable[[DocumentBatch], None], portion: tuple[int, Corpus]) -> None:
    source, text = portion
    for batch in cut_into_batches(text.documents(), source, text.source.number):
        work(batch)


@contextlib.contextmanager
def _database(directory: Path, settings: PreparationConfig) -> Iterator["DuckDBPyConnection"]:
    """Yields a database in memory with all examined documents as view `batches`; it spills to `directory`."""
    import duckdb

    options: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{settings.memory_megabytes}MB",
        "temp_directory": str(directory / _SPILLED),
        "threads": settings.processes or available_cores(),
        "preserve_insertion_order": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    try:
        with duckdb.connect(config=options) as database:
            database.execute("set enable_progress_bar = false")
            files = sorted(map(str, (directory / _BATCHES).glob("*.parquet")))
            database.from_parquet(files).create_view("batches")
            yield database
    except duckdb.OutOfMemoryException as error:
        raise RunError(
            f"{Setting('preparation.memory_megabytes', settings.memory_megabytes)} is too little to compare the "
            f"documents ({first_line(error)}); give more"
        ) from error
    except duckdb.Error as error:
        raise RunError(f"the documents can't be compared ({first_line(error)}); give the same command again") from error


def _drop(database: "DuckDBPyConnection", reason: int, places: str) -> None:
    """Marks documents as dropped for `reason`; the query `places` selects their places."""
    database.execute(f"update documents set reason = {reason} where place in ({places})")


def _drop_lines(database: "DuckDBPyConnection", data: DataConfig) -> None:
    """Drops lines of the kept documents, and documents that lose all their lines. Reports the counts."""
    database.execute(_LINES)
    (kept,) = database.execute("select count(*) from documents where reason = 0").fetchall()[0]
    allowed = times_allowed(kept)
    query = "select sum(times), count(*) from shared_lines where times > $allowed"
    boilerplate, distinct = database.execute(query, {"allowed": allowed}).fetchall()[0]
    if distinct:
        texts = database.execute(_EXAMPLES_OF_BOILERPLATE, {"allowed": allowed, "examples": _EXAMPLES}).fetchall()
        examples = ", ".join(repr(text) for (text,) in texts)
        drops = "drops" if data.drop_boilerplate else "would drop"
        say(
            f"--data.drop-boilerplate {drops} {counted(boilerplate, 'lines')} ({distinct:,} distinct), each in over "
            f"{BOILERPLATE_SHARE:.0%} of the documents and at least {FEWEST_TIMES}, or in over {BOILERPLATE_TIMES:,}: "
            f"{examples}"
        )
    parameters = {
        "drop_boilerplate": data.drop_boilerplate,
        "drop_paragraphs": data.deduplicate is not None and data.layout == "paragraphs",
        "paragraph_characters": PARAGRAPH_CHARACTERS,
        "allowed": allowed,
    }
    database.execute(_DROPPED_LINES, parameters)
    (paragraphs,) = database.execute("select count(*) from dropped_lines where not is_boilerplate").fetchall()[0]
    if paragraphs:
        say(f"--data.deduplicate drops {counted(paragraphs, 'paragraphs')} that an earlier document already has")
    _drop(database, ALL_BOILERPLATE if data.drop_boilerplate else ALL_COPIED, _EMPTIED_DOCUMENTS)


def _check_sources(database: "DuckDBPyConnection", names: Sequence[str]) -> None:
    """Raises UsageError if all documents of a source are dropped."""
    emptied = database.execute(
        "select source, count(*), list_sort(list(distinct reason)) from documents "
        "group by source having min(reason) > 0 order by source"
    ).fetchone()
    if emptied:
        source, count, reasons = emptied
        settings = " and ".join(str(Setting(SETTINGS[reason])) for reason in reasons)
        raise UsageError(
            f"of {names[source]}, {settings} would drop all {counted(count, 'documents')}; change these settings, or "
            "leave the source out"
        )


def _write_list(database: "DuckDBPyConnection", names: Sequence[str], path: Path) -> dict[int, dict]:
    """Writes a line of JSON for each dropped document. Returns the first object for each reason.

    An object has the document's source, its number there (from 1), its beginning, and the setting that drops it. A copy
    also has the original document and the similarity.
    """
    firsts: dict[int, dict] = {}
    database.execute(_DROPPED_DOCUMENTS, {"names": names})
    with open(path, "w", encoding="utf-8") as file:
        while rows := database.fetchmany(_ROWS_AT_ONCE):
            for line, reason, original, similarity in rows:
                if reason == COPY:
                    line |= {"copy_of": original, "similarity": round(similarity, 3)}
                line["dropped_by"] = SETTINGS[reason]
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
                firsts.setdefault(reason, line)
    return firsts


def _say_reasons(database: "DuckDBPyConnection", firsts: Mapping[int, dict]) -> None:
    """Reports for each reason how many documents are dropped, with the first of them as an example."""
    all_documents, all_bytes = database.execute("select count(*), sum(size) from documents").fetchall()[0]
    counts = "select reason, count(*), sum(size) from documents where reason > 0 group by reason order by reason"
    for reason, documents, size in database.execute(counts).fetchall():
        of_all = f"{documents:,} of {counted(all_documents, 'documents')}, {size / all_bytes:.2%}"
        why = ", all of whose lines it drops" if reason in (ALL_BOILERPLATE, ALL_COPIED) else ""
        first = firsts[reason]
        original = f", a copy of document {first['copy_of']['document']}" if reason == COPY else ""
        say(
            f"--{SETTINGS[reason].replace('_', '-')} drops {of_all} of the text{why}; for example document "
            f"{first['document']}{original}: {first['begins']!r}"
        )
