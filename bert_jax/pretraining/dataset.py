"""The second step of a run: the prepared sequences of each length."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bert_jax.config.data import DataConfig
from bert_jax.config.run import RunConfig
from bert_jax.corpora.corpus import corpus_stamp, open_corpus
from bert_jax.corpora.text_source import TextSource
from bert_jax.instances.chunk_text import Recipe
from bert_jax.instances.chunks import text_hash
from bert_jax.instances.preparation import cut_corpus, prepare
from bert_jax.instances.prepared_data import PreparedData, discard, publish_prepared
from bert_jax.pretraining.initial import open_initial
from bert_jax.pretraining.vocabulary import existing_tokenizer
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.trained_model import TrainedModel
from bert_jax.system.bucket import Place
from bert_jax.system.copies import fetched, worked_on
from bert_jax.system.errors import RunError, UsageError
from bert_jax.system.files import FileSum
from bert_jax.system.json_file import Shape, as_shape, check_format, read_object
from bert_jax.system.progress import say, stage, warn
from bert_jax.text.extension import replaced_pieces
from bert_jax.text.lexicon import LexiconFile
from bert_jax.text.segmenter import open_segmenter

_FORMAT = 1
"""Version of the format of data-LENGTH.json."""


class _Shards(Shape):
    """What data-LENGTH.json holds."""

    shards: dict[str, FileSum]


def check_sources(config: RunConfig, run: RunDirectory, initial: TrainedModel | None = None) -> None:
    """Raises UsageError if a corpus, vocabulary or model that the run needs is missing, or if another release wrote
    the run's data. Writes nothing. `initial`: the model of `config.init`, where it is open."""
    if not run.under_way:
        initial = initial or open_initial(config)
        tokenizer = existing_tokenizer(config, initial)
        if initial:
            assert tokenizer is not None  # it comes with the model
            replaced_pieces(initial.tokenizer, tokenizer)
    for phase in config.phases:
        _check_format_of_shards(run, phase.length)
    if _is_prepared(config, run):
        return  # here or on another machine
    for source, corpus in zip(config.data.source, open_corpus(config.data).parts, strict=True):
        # python-docs always has some, and starts processes to read it.
        if isinstance(corpus, TextSource) and next(corpus.documents(), None) is None:
            raise UsageError(f"data.source={source!r} holds no text; give another")


def check_preparation(config: RunConfig, run: RunDirectory, initial: TrainedModel | None = None) -> None:
    """Raises UsageError as `check_sources` does, and where the text isn't prepared and a segmenter or lexicon that
    preparing needs can't be used. Writes nothing."""
    check_sources(config, run, initial)
    if not _is_prepared(config, run):
        _check_marks(config.data)


def _is_prepared(config: RunConfig, run: RunDirectory) -> bool:
    return all(PreparedData.open(run.data(phase.length)) for phase in config.phases)


def _check_marks(data: DataConfig) -> None:
    """Raises UsageError where the segmenter or a lexicon of `data` can't be used."""
    if data.words:
        open_segmenter(data.words)
    for name, path in data.lexicons.items():
        LexiconFile.read(path, f"data.{name}")


def prepare_lengths(config: RunConfig, run: RunDirectory) -> dict[int, PreparedData]:
    """The data set of each length that a phase has: what is there already if it is the same, or a new one.

    Raises UsageError where a run under way would get other data than it began with.
    """
    lengths = list(dict.fromkeys(phase.length for phase in config.phases))
    text = functools.cache(lambda: _text_of(config))
    found = {length: _found(config, run, length, text) for length in lengths}
    made = _prepare(config, run, [length for length in lengths if not found[length]])
    prepared = {}
    for length in lengths:
        prepared[length] = found[length] or next(made)
        record = run.data_record(length)
        if damage := run.manifest.damage(record):
            raise RunError(
                f"{run.path}: {damage}; delete {run.data(length)} and give the same command again to prepare it anew"
            )
        run.manifest.note(record)
        _mend_shards(run, prepared[length])
    return prepared


def _found(config: RunConfig, run: RunDirectory, length: int, text: Callable[[], str]) -> PreparedData | None:
    """The finished data set of `length`, or None. Deletes one of other settings or text if the run hasn't begun.

    `text` gives the hash of the whole text. Raises UsageError if the run is under way and the set is not its own.
    """
    found = PreparedData.open(run.data(length))
    if found and run.under_way:
        return prepared_for(config, run, length)
    if found and is_outdated(found, config, run, text):
        open_corpus(config.data)  # refused before anything is deleted
        _check_marks(config.data)
        say(f"{run.data(length)} is of other settings or other text: it is prepared anew")
        run.manifest.forget(run.data(length))
        discard(run.data(length))
        return None
    return found


def prepared_for(config: RunConfig, run: RunDirectory, length: int) -> PreparedData:
    """The data set of `length` that is there. Raises UsageError where there is none or it is not this run's."""
    found = PreparedData.open(run.data(length))
    if not found:
        raise UsageError(
            f"{run.path} has no prepared data of length {length}; bert-jax prepare makes it from a config's text, and "
            "an imported model has none"
        )
    if not found.is_of(_recipe(config, run, length)):
        raise UsageError(
            f"{run.data(length)} was prepared from other settings or another tokenizer than this run has; put back "
            "what was there, or start a new run"
        )
    return found


def prepare_other(
    config: RunConfig, run: RunDirectory, length: int, source: str, language: str | None, directory: Path
) -> PreparedData:
    """All documents of `source`, in `directory`, as those of the run were prepared. Raises UsageError as `prepare`."""
    _check_marks(config.data)
    language = language or config.data.languages[0]
    # A measurement takes one sequence a row, packed training or not.
    own = {"source": source, "weights": None, "language": language, "held_out": 0.0, "dupe_factor": 1, "packed": False}
    recipe = _recipe(config.replace(data=config.data.replace(**own)), run, length)
    (made,) = prepare(open_corpus(recipe.data), {directory: recipe}, config.preparation.processes)
    return made


def is_outdated(found: PreparedData, config: RunConfig, run: RunDirectory, text: Callable[[], str]) -> bool:
    """Whether settings or text differ from those of the prepared set, so that it is prepared anew unless the run is
    under way. Without the text, only settings are compared.

    `text` gives the hash of the whole text; it is called only if the files were written since.
    """
    if not found.is_of(_recipe(config, run, found.length)):
        return True
    try:
        corpus = open_corpus(config.data)
    except UsageError:
        return False
    if corpus.stamp != found.corpus:
        return True
    if found.revision == corpus.revision:
        return False
    return found.text != text()


def _text_of(config: RunConfig) -> str:
    """Hash of the whole text, as preparation computes it."""
    corpus = open_corpus(config.data)
    with stage("Comparing the text with what was prepared", corpus.total, corpus.unit) as progress:
        chunks = cut_corpus(corpus, config.data, lambda: progress.advance(corpus.position - progress.done))
        return text_hash((chunk.source, chunk.crc32) for chunk in chunks)


def _prepare(config: RunConfig, run: RunDirectory, lengths: Sequence[int]) -> Iterator[PreparedData]:
    """Prepares the data sets of `lengths` together, and yields each as it is finished and published.

    Raises UsageError where a run under way would get other text than it began with. The checksums of the shards, kept
    outside the sets, tell whether a later set is the same, and the hash of the text whether that of another length is
    of the same text.
    """
    if not lengths:
        return
    other_text = UsageError(
        f"{config.data.described} gives other text than {run.path} began with; put the text back, "
        "or start a new run with another --workdir"
    )
    others = [found for found in map(PreparedData.read, run.path.glob("data/*")) if found]
    if run.under_way and others and corpus_stamp(config.data) not in {other.corpus for other in others}:
        raise other_text
    # Of a phase added to a run under way there are no shards yet.
    written = {length: _written_shards(run, length) if run.under_way else None for length in lengths}
    recipes = {worked_on(run.data(length)): _recipe(config, run, length) for length in lengths}
    for made in prepare(open_corpus(config.data), recipes, config.preparation.processes):
        length = made.length
        of_other_text = any(other.text != made.text for other in others)
        if run.under_way and (of_other_text or written[length] not in (None, made.shards)):
            discard(made.directory)
            raise other_text
        publish_prepared(run.data(length))
        if written[length] is None:
            _write_shards(run, made)
        run.manifest.forget(run.data(length))
        yield made


def _shards_file(run: RunDirectory, length: int) -> Place:
    return run.path / f"data-{length}.json"


def _written_shards(run: RunDirectory, length: int) -> dict[str, FileSum] | None:
    """Checksums of the shards of the run's first set of `length`; None where there was none.

    Raises RunError if the file is damaged, UsageError if another release wrote it.
    """
    try:
        return _read_shards(run, length)
    except (OSError, ValueError) as error:
        raise RunError(
            f"{_shards_file(run, length)} is damaged ({error}); without it nobody can tell whether data prepared anew "
            "are those that the run began with: put it back, or start a new run with another --workdir"
        ) from None


def _read_shards(run: RunDirectory, length: int) -> dict[str, FileSum] | None:
    """What is noted of the shards of sequences of this length; None where nothing is.

    Raises OSError or ValueError where the file is damaged.
    """
    path = _shards_file(run, length)
    try:
        value = read_object(path)
    except FileNotFoundError:
        return None
    check_format(path, value.get("format"), _FORMAT)
    return as_shape(value, _Shards).shards


def _check_format_of_shards(run: RunDirectory, length: int) -> None:
    """Raises UsageError if another release wrote the run's data-LENGTH.json. Damage is left to `_mend_shards`."""
    with contextlib.suppress(OSError, ValueError):
        _read_shards(run, length)


def _mend_shards(run: RunDirectory, prepared: PreparedData) -> None:
    """Writes the run's data-LENGTH.json anew where it is damaged or gone, from the record of the set that is there.

    That record is known to be as it was written, and has the same checksums.
    """
    path = _shards_file(run, prepared.length)
    damage = run.manifest.damage(path)
    try:
        _read_shards(run, prepared.length)
    except (OSError, ValueError) as error:
        damage = f"{path.name} is damaged ({error})"
    if damage:
        warn(f"{run.path}: {damage}: it is written anew, from the prepared data")
        _write_shards(run, prepared)


def _write_shards(run: RunDirectory, prepared: PreparedData) -> None:
    written = {"format": _FORMAT, "shards": prepared.shards}
    run.manifest.write_json(_shards_file(run, prepared.length), written)


def _recipe(config: RunConfig, run: RunDirectory, length: int) -> Recipe:
    return Recipe(config.data, length, config.seed, fetched(run.tokenizer), config.objective.pair)
