"""Prepares a corpus as a data set, chunk by chunk and in parallel; an interrupted preparation can be resumed."""

import functools
import hashlib
import itertools
import shutil
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import numpy as np

from bert_jax.config.data import DataConfig
from bert_jax.config.language import language_name
from bert_jax.config.operation import PreparationConfig
from bert_jax.config.wording import counted
from bert_jax.instances.chunk_worker import (
    PendingSet,
    encode_text,
    preparation_title,
    prepare_unless_finished,
    write_instances,
)
from bert_jax.instances.chunks import PIECE_COUNTS, Chunk, FinishedChunk, cut_chunks, write_numbers
from bert_jax.instances.held_out import separate_held_out
from bert_jax.instances.marks import Marker
from bert_jax.instances.portions import prepared_by_portions
from bert_jax.instances.prepared_data import (
    COUNTS_FILE,
    HELD_OUT,
    SMALL_FILES,
    TRAIN,
    PreparedData,
    Recipe,
    write_metadata,
)
from bert_jax.instances.sentences import as_sentences, forget_words
from bert_jax.instances.shards import ids_dtype
from bert_jax.instances.statistics import MANY_RANDOM, MOST_RANDOM, Statistics
from bert_jax.records.corpus import Document, Mixture
from bert_jax.records.engine import works_by_portions
from bert_jax.system.bucket import Place, in_bucket
from bert_jax.system.content import content_hash
from bert_jax.system.copies import local_path
from bert_jax.system.errors import Setting, UsageError, disk_explained
from bert_jax.system.files import FileSum, remove_directory, remove_temporary, sync
from bert_jax.system.progress import say, stage, warn
from bert_jax.system.workers import available_cores, map_in_processes
from bert_jax.text.segmentation import has_rules
from bert_jax.text.text_spans import plain
from bert_jax.text.tokenizer import load_tokenizer

_EXAMPLES = 16
"""Number of example sentences that are kept."""
MOST_UNKNOWN = 0.05
"""Share of unknown pieces, or of characters behind them, above which a warning is given. It is about 0.001 with a
vocabulary that fits."""
_HeldOut = list[tuple[Statistics, dict[str, FileSum]]]
"""Statistics of each held-out shard of a data set, and its checksum by its name."""


def prepare(corpus: Mixture, recipes: dict[Place, Recipe], settings: PreparationConfig) -> Iterator[PreparedData]:
    """Writes the data set of each recipe to its place, and yields each data set when it is finished.

    The text is read, split into sentences and encoded once for all recipes, so recipes may differ only in how the text
    is cut into sequences: in `length`, `data.packed` and `data.dupe_factor`. Chunks that an interrupted attempt
    finished are used again. Raises UsageError if a source has too little text, and RunError if the disk is full or a
    worker process dies. `settings` don't change what is written.

    If a place is in a bucket, the set is written to its local copy and isn't uploaded.
    """
    targets = [PendingSet(recipe, local_path(place), recipe.fingerprint(), place) for place, recipe in recipes.items()]
    recipe = targets[0].recipe
    _say_missing_rules(recipe.data)
    Marker(load_tokenizer(recipe.tokenizer_directory), recipe.data).report_unused_entries()
    for target in targets:
        with disk_explained(target.directory):
            (target.directory / "chunks").mkdir(parents=True, exist_ok=True)
            remove_temporary(target.directory)
    content = corpus.content_hash  # before the text is read, so that a change meanwhile is seen
    chunks = _chunks(corpus, targets, settings)
    train = sum((chunk.statistics for chunk in chunks[0]), Statistics())
    if max(train.unknown_share, train.unknown_character_share) > MOST_UNKNOWN:
        warn(
            f"{train.unknown_share:.1%} of the pieces of this text are unknown to the vocabulary, and "
            f"{train.unknown_character_share:.1%} of its characters are behind them: the model is asked about [UNK] "
            "instead of words; is it the right text, and the right vocabulary for its language?"
        )
    # Held-out documents and their text don't depend on the length.
    by_source, dropped = separate_held_out(chunks[0], len(corpus.parts), least=recipe.documents_needed)
    examples = _example_sentences(by_source, recipe)
    for target, finished, held_out in zip(targets, chunks, _write_held_out(by_source, targets), strict=True):
        yield _finish(corpus, content, target, finished, held_out, dropped, examples)


def _finish(
    corpus: Mixture,
    content: str,
    target: PendingSet,
    chunks: Sequence[FinishedChunk],
    held_out: _HeldOut,
    dropped: int,
    examples: list[str],
) -> PreparedData:
    """Completes the data set of `target`. `content`: the content hash of the corpus."""
    directory = target.directory
    lengths = {TRAIN: [chunk.statistics.rows for chunk in chunks], HELD_OUT: [seen.rows for seen, _ in held_out]}
    sources = [
        sum((chunk.statistics for chunk in chunks if chunk.source == source), Statistics())
        for source in range(len(corpus.parts))
    ]
    train = sum(sources, Statistics())
    train.repairs.update(corpus.repairs)
    shards = _shards(directory, chunks, held_out)
    counts = sum((chunk.numbers(PIECE_COUNTS, np.int64) for chunk in chunks), start=np.zeros((), np.int64))
    write_numbers(directory / COUNTS_FILE, {PIECE_COUNTS: counts})
    dtype = ids_dtype(len(counts))  # one count for each piece of the vocabulary
    with disk_explained(directory):
        write_metadata(directory, lengths, dtype, target.recipe.data.packed)
        for name in SMALL_FILES:
            sync(directory / name)
    prepared = PreparedData(
        directory=directory,
        length=target.recipe.length,
        fingerprint=target.fingerprint,
        corpus=content,
        text=content_hash([(chunk.source, chunk.text_crc32) for chunk in chunks]),
        train=train,
        of_sources=sources,
        held_out=sum((seen for seen, _ in held_out), Statistics()),
        held_out_dropped=dropped,
        files=shards | {name: FileSum.of(directory / name) for name in SMALL_FILES},
        ids_type="uint16" if dtype is np.uint16 else "int32",
        packed=target.recipe.data.packed,
        lexicons=target.recipe.lexicon_hashes(),
        records=lengths,
        example_sentences=examples,
        text_seconds=sum(chunk.text_seconds for chunk in chunks),
        cutting_seconds=sum(chunk.cutting_seconds for chunk in chunks),
    )
    prepared.save()
    if train.random_share > MOST_RANDOM + max(train.instances, 1) ** -0.5:  # of few, more may be random by chance
        warn(f"{MANY_RANDOM.format(train.random_share)}; {Setting('objective.pair')} none leaves pairs out")
    shutil.rmtree(directory / "chunks")
    if target.place and in_bucket(target.place):
        remove_directory(target.place / "chunks")
    return prepared


def _shards(directory: Place, chunks: Sequence[FinishedChunk], held_out: _HeldOut) -> dict[str, FileSum]:
    """The checksums of a data set's shards, by name. Deletes the others that an earlier attempt on a longer corpus
    left."""
    shards = {name: total for chunk in chunks for name, total in chunk.files.items() if "/" not in name}
    for _, shard in held_out:
        shards |= shard
    for path in directory.glob("*.array_record"):
        if path.name not in shards:
            path.unlink()
    return shards


def _chunks(corpus: Mixture, targets: Sequence[PendingSet], settings: PreparationConfig) -> list[list[FinishedChunk]]:
    """Prepares all chunks for each target.

    Sources with too few documents are prepared again, with held-out ends of documents.
    """
    recipe = targets[0].recipe
    prepared = prepared_by_portions if works_by_portions(corpus, settings) else _prepared_by_chunks
    chunks = list(prepared(corpus, targets, settings))
    needed = recipe.documents_needed
    documents, held_out = _counts(chunks)
    few = [source for source in documents if min(documents[source], held_out[source]) < needed]
    if few and recipe.data.held_out:
        say(
            f"{', '.join(recipe.data.source[source] for source in few)}: too few documents to hold some out for "
            "evaluation; the end of each is held out instead (--data.held-out 0 trains on all of the text)"
        )
        chunks = list(prepared(corpus, targets, settings, frozenset(few)))
        documents, _ = _counts(chunks)
    for source, name in enumerate(recipe.data.source):
        _check_enough(name, documents[source], recipe)
    return [list(finished) for finished in zip(*chunks, strict=True)]


def _counts(chunks: Iterable[Sequence[FinishedChunk]]) -> tuple[Counter[int], Counter[int]]:
    """The numbers of training documents and of held-out documents, by source."""
    documents, held_out = Counter[int](), Counter[int]()
    for chunk, *_ in chunks:
        documents[chunk.source] += chunk.statistics.documents
        held_out[chunk.source] += chunk.held_out
    return documents, held_out


def _say_missing_rules(data: DataConfig) -> None:
    """Reports each language without rules for sentences; those of a related language or general ones are used."""
    for code in dict.fromkeys(data.languages):
        if data.layout != "sentences" and not has_rules(code):
            say(
                f"data.language={code}: there are no rules for sentences of {language_name(code)}; those of a related "
                "language or general ones are used"
            )


def _write_held_out(by_source: Sequence[Sequence[Document]], targets: Sequence[PendingSet]) -> list[_HeldOut]:
    """Writes one held-out shard per source for each target."""
    written: list[_HeldOut] = [[] for _ in targets]
    with stage("Preparing held-out sequences", sum(map(len, by_source)), "documents") as bar:
        for source, documents in enumerate(by_source):
            text, marks = encode_text(documents, targets[0].recipe, source)
            for target, shards in zip(targets, written, strict=True):
                shards.append(write_instances(text, marks, target, HELD_OUT, source))
            bar.advance(len(documents))
    forget_words()  # a training may follow in this process
    return written


def _check_enough(source: str, documents: int, recipe: Recipe) -> None:
    """Raises UsageError if a source gives too few training documents."""
    if documents < recipe.documents_needed:
        wanting = "next sentence prediction needs two" if documents else "one is needed"
        remedy = f", or set {Setting('objective.pair')} none, which needs no pairs" if documents else ""
        purpose = " for training" if recipe.data.held_out else ""  # without a held-out share, evaluation reads it, too
        raise UsageError(
            f"{Setting('data.source')}={source!r} holds {counted(documents, 'documents')}{purpose} and {wanting}; "
            f"give more text, with a blank line between documents{remedy}"
        )


def _prepared_by_chunks(
    corpus: Mixture, targets: Sequence[PendingSet], settings: PreparationConfig, ends_held_out: Collection[int] = ()
) -> Iterator[list[FinishedChunk]]:
    """Yields a list for each chunk, in order, with one finished chunk per target. Chunks that aren't finished are
    prepared first."""
    work = functools.partial(prepare_unless_finished, targets=targets, ends_held_out=ends_held_out)
    with stage(preparation_title(targets), corpus.total, corpus.unit) as bar:
        finished, text, read = 0.0, 0, deque[tuple[float, int]]()

        def show() -> None:  # reading a chunk counts as half of its work
            note = f"{text / 1e6:,.0f} MB of text" if text and corpus.unit != "MB" else ""
            bar.advance((corpus.position + finished) / 2 - bar.done, note)

        def chunks() -> Iterator[Chunk]:
            for chunk in cut_corpus(corpus, targets[0].recipe.data, show):
                read.append((corpus.position, chunk.size))
                yield chunk

        for chunk_of_targets in map_in_processes(work, chunks(), settings.processes or available_cores()):
            finished, size = read.popleft()
            text += size
            show()
            for _, remark in chunk_of_targets:
                if remark:
                    say(remark)
            yield [chunk for chunk, _ in chunk_of_targets]


def cut_corpus(corpus: Mixture, data: DataConfig, show: Callable[[], None]) -> Iterator[Chunk]:
    """Yields the chunks of a corpus; calls `show` after each document."""

    def shown_while_read(documents: Iterable[Document]) -> Iterator[Document]:
        for document in documents:
            show()
            yield document

    portions = ((source, shown_while_read(documents)) for source, documents in corpus.portions())
    return cut_chunks(portions, data.chunk_bytes)


def _example_sentences(by_source: Sequence[Sequence[Document]], recipe: Recipe) -> list[str]:
    """The first well-formed sentence of each document, in the order of the sentences' hashes, at most _EXAMPLES."""
    examples: list[str] = []
    for source, documents in enumerate(by_source):
        for document in documents:
            sentences = map(plain, as_sentences(document, recipe.data, source))
            examples.extend(itertools.islice(filter(_reads_well, sentences), 1))
    examples.sort(key=lambda sentence: hashlib.blake2b(sentence.encode()).digest())
    return examples[:_EXAMPLES]


def _reads_well(sentence: str) -> bool:
    """Whether a sentence is of medium length, ends with a stop and is mostly letters: not a table, code or heading."""
    if not 30 <= len(sentence) <= 120 or sentence[-1] not in ".!?。！？।؟":
        return False
    return sum(character.isalpha() or character.isspace() for character in sentence) >= 0.93 * len(sentence)
