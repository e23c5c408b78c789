"""The second step of a run: prepares the sequences of each length."""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bert_jax.config.data import DataConfig
from bert_jax.config.operation import PreparationConfig
from bert_jax.config.run import RunConfig
from bert_jax.instances.portions import check_engine
from bert_jax.instances.preparation import cut_corpus, prepare
from bert_jax.instances.prepared_data import PreparedData, Recipe, discard, publish_prepared
from bert_jax.instances.treebank import TaggedSentence, Treebank, read_treebank, treebank_hash
from bert_jax.pretraining.initial import open_initial
from bert_jax.pretraining.mixture import SourceShare, open_text, source_shares
from bert_jax.pretraining.teacher import check_pieces, open_teacher
from bert_jax.pretraining.vocabulary import existing_tokenizer, make_tokenizer, training_cleaning
from bert_jax.records.corpus import open_corpus, text_content
from bert_jax.records.corpus_reading import read_corpus
from bert_jax.records.examination import check_packages
from bert_jax.records.filters import check_language_filter
from bert_jax.run.hosts import is_first
from bert_jax.run.opened_models import OpenedModels
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.trained_model import TrainedModel
from bert_jax.system.bucket import in_bucket
from bert_jax.system.content import content_hash
from bert_jax.system.copies import local_path
from bert_jax.system.errors import RunError, Setting, UsageError
from bert_jax.system.files import refuse_links
from bert_jax.system.progress import say, stage
from bert_jax.system.reading import Fact, Reading, show
from bert_jax.text import identification
from bert_jax.text.extension import check_extension
from bert_jax.text.lexicon import LexiconFile
from bert_jax.text.segmentation import open_segmenter
from bert_jax.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Inputs:
    """The opened and checked inputs of a pretraining. Nothing is written yet."""

    initial: TrainedModel | None
    """The model of `config.init`; None if there is none or the run has checkpoints, which may yet prove damaged."""
    teacher: TrainedModel | None
    """The model of `config.teacher`; None as for `initial`."""
    tokenizer: Tokenizer | None
    """The existing tokenizer; None if one is to be trained on the text."""
    prepared: dict[int, PreparedData]
    """The data sets that exist, by length, opened and checked."""
    is_complete: bool
    """Whether the data set of every length exists. In a run that hasn't begun and has a tokenizer, the data sets must
    also have the run's settings; a run under way checks them later."""
    sentences: tuple[TaggedSentence, ...]
    """The sentences of the treebank `objective.tags`; empty without one."""
    readings: tuple[Reading, ...]
    """How the vocabulary, the initial model, the teacher and the text were understood. Inputs that needn't be read have
    no reading."""


@dataclass(frozen=True)
class Data:
    """The tokenizer and the sequences of a run."""

    tokenizer: Tokenizer
    prepared: dict[int, PreparedData]
    """The prepared sequences by the length of the phases."""
    shares: tuple[SourceShare, ...]
    """Each source's number of sequences, its share of the draws, and how often the phases see its text."""
    treebanks: dict[int, Treebank]
    """The treebank `objective.tags` by the length of the phases; empty without one."""


def check_sources(config: RunConfig, run: RunDirectory, opened: OpenedModels) -> Inputs:
    """The opened inputs of the run. Writes nothing. Raises UsageError if a corpus, vocabulary or model is missing."""
    readings: list[Reading] = []
    sentences = read_treebank(config.objective.tags) if config.objective.tags else ()
    initial = None if run.under_way else open_initial(config, opened)
    teacher = None if run.under_way else open_teacher(config, opened)
    if run.under_way:
        tokenizer: Tokenizer | None = run.files.tokenizer
    else:
        tokenizer, vocabulary_readings = existing_tokenizer(config, opened)
        readings += vocabulary_readings
    if initial:
        if tokenizer and not config.vocabulary.exchange:
            check_extension(initial.tokenizer, tokenizer)
        readings += initial.provenance.readings
    if teacher:
        assert tokenizer is not None  # the teacher's, if there is no other
        check_pieces(config, teacher.tokenizer, tokenizer)
        readings += teacher.provenance.readings
    if tokenizer:
        treebanks_of(config, tokenizer, sentences)  # raises for words that the vocabulary lacks
    prepared = _open_prepared(config, run)
    is_complete = len(prepared) == len(config.lengths)
    if is_complete and not run.under_way and run.tokenizer_directory.is_dir():
        is_complete = all(data.is_of(_recipe(config, run, length)) for length, data in prepared.items())
    # Data that exists may come from another machine, and the text may be missing here.
    if not is_complete:
        corpus = open_corpus(config.data).unmarked()  # marks of spans are no text
        trained = training_cleaning(config.vocabulary, config.data.languages).normalizer()
        clean = tokenizer.cleaned if tokenizer else lambda text: trained.normalize_str(text)
        readings.append(read_corpus(corpus, config.data, clean))
        identification.unload()  # filters identify languages in other processes
    return Inputs(initial, teacher, tokenizer, prepared, is_complete, sentences, tuple(readings))


def check_preparation(config: RunConfig, run: RunDirectory, opened: OpenedModels) -> Inputs:
    """The inputs that `check_sources` opens. Also raises UsageError if data must be prepared and a lexicon, the filter
    by language, a package or the engine can't be used. Writes nothing."""
    inputs = check_sources(config, run, opened)
    if not inputs.is_complete:
        _check_means(config.data, config.preparation)
    return inputs


def make_vocabulary(config: RunConfig, run: RunDirectory, inputs: Inputs) -> Tokenizer:
    """Writes the tokenizer and the readings of the inputs into the open run, unless they exist. Raises what
    `make_tokenizer` does."""
    run.keep(*inputs.readings)
    return make_tokenizer(config, run, inputs.tokenizer, inputs.initial and inputs.initial.tokenizer)


def prepare_data(config: RunConfig, run: RunDirectory, inputs: Inputs) -> Data:
    """Writes tokenizer and sequences into the open run, unless they exist. Raises UsageError if the text can't be
    prepared or isn't the text that the run began with, RunError if existing data differs from what was written."""
    tokenizer = make_vocabulary(config, run, inputs)
    treebanks = treebanks_of(config, tokenizer, inputs.sentences)
    prepared = prepare_lengths(config, run, inputs.prepared)
    return Data(tokenizer, prepared, tuple(source_shares(config, prepared)), treebanks)


def treebanks_of(
    config: RunConfig, tokenizer: Tokenizer, sentences: tuple[TaggedSentence, ...] | None = None
) -> dict[int, Treebank]:
    """The treebank `objective.tags` as sequences of each length of a phase; empty without one.

    `sentences`: those of the file; None: reads it. Raises UsageError if it can't be read, doesn't fit the vocabulary,
    or has changed since the run of `config` began.
    """
    path, written = config.objective.tags, config.objective.tags_hash
    if not path:
        return {}
    if sentences is None:
        sentences = read_treebank(path)
        if treebank_hash(sentences) != written:
            raise UsageError(f"the sentences of {Setting('objective.tags', path)} have changed; put the file back")
    return {length: Treebank.of(sentences, path, tokenizer, length, config.data) for length in config.lengths}


def _open_prepared(config: RunConfig, run: RunDirectory) -> dict[int, PreparedData]:
    """The run's finished data sets by length, checked. Raises what `PreparedData.open` does."""
    opened = {length: PreparedData.open(run.data(length)) for length in config.lengths}
    return {length: data for length, data in opened.items() if data}


def _check_means(data: DataConfig, preparation: PreparationConfig) -> None:
    """Raises UsageError if a lexicon, the filter by language, a package or the engine can't be used."""
    for name, path in data.lexicons.items():
        LexiconFile.read(path, f"data.{name}")
    check_language_filter(data)
    if data.words:  # packages are checked after settings
        open_segmenter(data.words)
    check_packages(data)
    check_engine(data, preparation)


def prepare_lengths(
    config: RunConfig, run: RunDirectory, opened: dict[int, PreparedData] | None = None
) -> dict[int, PreparedData]:
    """The data set of each length of a phase: the existing one if settings and text are unchanged, otherwise a new one.
    `opened`: the existing data sets; None: opens them. Raises UsageError if a run under way would get other data,
    RunError if the shards of an existing data set differ from the hash in the manifest."""
    if not is_first():  # only the first host writes; the others find its data, and need no text
        return {length: prepared_for(config, run, length) for length in config.lengths}
    text = functools.cache(lambda: _text_of(config, run))
    opened = _open_prepared(config, run) if opened is None else opened
    kept = {length: _reusable(data, length, config, run, text) for length, data in opened.items()}
    existing = {length: data for length, data in kept.items() if data}
    new_data = _prepare(config, run, [length for length in config.lengths if length not in existing], text)
    prepared = {}
    written = run.manifest.readable().data
    for length in config.lengths:
        prepared[length] = existing[length] if length in existing else next(new_data)
        shards_hash = prepared[length].shards_hash
        if length in existing and written.get(str(length), shards_hash) != shards_hash:
            raise RunError(
                f"{run.data(length)} is not as it was written; delete it and give the same command again to prepare it"
            )
        run.manifest.note_data(length, shards_hash)
    return prepared


def _reusable(
    data: PreparedData, length: int, config: RunConfig, run: RunDirectory, text: Callable[[], str]
) -> PreparedData | None:
    """Returns `data` if the run can use it. Otherwise a run that hasn't begun deletes the data set and gets None, and a
    run under way raises UsageError. `text` returns the hash of the whole text."""
    if run.under_way:
        return _checked(data, length, config, run)
    if is_outdated(data, config, run, text):
        open_corpus(config.data)  # raises before anything is deleted
        _check_means(config.data, config.preparation)
        refuse_links(run.path / "data", run.data(length))
        say(f"{run.data(length)} was prepared from other text or with other settings: it is prepared again")
        run.manifest.note_data(length, None)
        discard(run.data(length))
        return None
    content = text_content(config.data)
    if content and data.directory == run.data(length) and data.corpus != content:
        data = data.model_copy(update={"corpus": content})
        data.save()  # the same text in other files, or hashed by an earlier release: the next run needn't compare it
    return data


def prepared_for(config: RunConfig, run: RunDirectory, length: int) -> PreparedData:
    """The existing data set of `length`. Raises UsageError if there is none or it has other settings than the run."""
    prepared = PreparedData.open(run.data(length))
    if not prepared:
        raise UsageError(
            f"{run.path} has no prepared data of length {length}; bert-jax prepare makes it from a config's text, and "
            "an imported model has none"
        )
    return _checked(prepared, length, config, run)


def _checked(data: PreparedData, length: int, config: RunConfig, run: RunDirectory) -> PreparedData:
    """`data`. Raises UsageError if it has other settings than the run, or another length."""
    if not data.is_of(_recipe(config, run, length)):
        raise UsageError(
            f"{run.data(length)} was prepared from other settings or another tokenizer than this run has; put "
            "back what was there, or start a new run"
        )
    return data


def prepare_other(
    config: RunConfig, run: RunDirectory, length: int, source: str, language: str | None, directory: Path
) -> PreparedData:
    """Prepares all documents of `source` in `directory` with the run's settings, in processes of this machine.
    `language`: that of `source`; None: the run's first. Raises UsageError as `prepare` does."""
    here = PreparationConfig(processes=config.preparation.processes)
    _check_means(config.data, here)
    language = language or config.data.languages[0]
    config = config.of_source(source, language)
    # An evaluation uses one sequence a row, also after packed training.
    data = config.data.uncurated().replace(held_out=0.0, dupe_factor=1, packed=False)
    recipe = _recipe(config.replace(data=data), run, length)
    corpus = open_corpus(recipe.data)
    show([read_corpus(corpus, recipe.data)])
    (new_data,) = prepare(corpus, {directory: recipe}, here)
    return new_data


def is_outdated(prepared: PreparedData, config: RunConfig, run: RunDirectory, text: Callable[[], str]) -> bool:
    """Whether settings or text differ from those of the prepared set, so that it has to be prepared again.

    If the text is missing, only settings are compared. `text` returns the hash of the whole text; it is called only if
    the files have other names or contents than at the preparation.
    """
    if prepared.fingerprint != _recipe(config, run, prepared.length).fingerprint():
        return True
    return _has_text_of([prepared], config, text) is False


def _has_text_of(prepared: Sequence[PreparedData], config: RunConfig, text: Callable[[], str]) -> bool | None:
    """Whether the text of `config` is that of one of the prepared sets; None if the text is missing. `text` is as for
    `is_outdated`."""
    content = text_content(config.data)
    if content is None:
        return None
    return content in {data.corpus for data in prepared} or text() in {data.text for data in prepared}


def _text_of(config: RunConfig, run: RunDirectory) -> str:
    """Hash of the whole text, equal to that of the preparation."""
    corpus = open_text(config, run)
    with stage("Comparing the text with what was prepared", corpus.total, corpus.unit) as progress:
        chunks = cut_corpus(corpus, config.data, lambda: progress.advance(corpus.position - progress.done))
        return content_hash([(chunk.source, chunk.crc32) for chunk in chunks])


def _prepare(
    config: RunConfig, run: RunDirectory, lengths: Sequence[int], text: Callable[[], str]
) -> Iterator[PreparedData]:
    """Prepares the data sets of `lengths` together; yields each once it is finished and uploaded. Raises UsageError if
    a run under way would get other text than at its start. `text` is as for `is_outdated`.

    New shards of a length that the run had before must have the hash in the run's manifest. The text must have the same
    hash as in the run's data sets of other lengths.
    """
    if not lengths:
        return
    folders = [*map(run.data, lengths)]
    refuse_links(run.path / "data", *folders, *(folder / "chunks" for folder in folders))
    other_text = UsageError(
        f"{config.data.described} gives other text than {run.path} began with; put the text back, "
        "or start a new run with another --workdir"
    )
    others = [data for data in map(PreparedData.unchecked, run.path.glob("data/*")) if data]
    if run.under_way and others and not _has_text_of(others, config, text):
        raise other_text
    written = _written_shards(config, run, lengths) if run.under_way else {}
    copies = {length: _unpublished(length, config, run, text) for length in lengths}
    recipes = {run.data(length): _recipe(config, run, length) for length in lengths if not copies[length]}
    prepared = prepare(open_text(config, run), recipes, config.preparation) if recipes else iter(())
    for length in lengths:
        new_data = copies[length] or next(prepared)
        has_other_text = any(other.text != new_data.text for other in others)
        if run.under_way and (has_other_text or written.get(length, new_data.shards_hash) != new_data.shards_hash):
            discard(new_data.directory)
            raise other_text
        publish_prepared(run.data(length))
        if length == lengths[0]:  # the pieces are the same at all lengths
            seen = new_data.train
            unknown = f"{seen.unknown_character_share:.2%} of the characters, {seen.unknown_share:.2%} of the pieces"
            unknown_pieces = [Fact(name="unknown", value=unknown)]
            run.keep(Reading(subject="corpus in pieces of the vocabulary", facts=unknown_pieces))
        yield new_data


def _unpublished(length: int, config: RunConfig, run: RunDirectory, text: Callable[[], str]) -> PreparedData | None:
    """The finished local copy of a data set in a bucket, to which an earlier process didn't upload it to the end; None
    if there is none, or if it is damaged or of other settings or text. `text` returns the hash of the whole text."""
    if not in_bucket(run.data(length)):
        return None
    try:
        copy = PreparedData.unchecked(local_path(run.data(length)))
    except (RunError, UsageError):  # damaged, or of another release
        return None
    if copy is None or is_outdated(copy, config, run, text) or copy.damaged_file():
        return None
    return copy


def _written_shards(config: RunConfig, run: RunDirectory, lengths: Sequence[int]) -> dict[int, str]:
    """The hash of the shards, from the run's manifest, of each of `lengths` for which the run had data before.

    Raises RunError if the manifest lacks a length that the run was trained with.
    """
    written = {int(length): shards_hash for length, shards_hash in run.manifest.readable().data.items()}
    step = run.newest_step or 0
    begun = (number for number in range(len(config.phases)) if config.steps_of(number).start < step)
    trained = {config.phases[number].length for number in begun}
    for length in lengths:
        if length in trained and length not in written:
            raise RunError(
                f"{run.manifest.path} lacks the checksum of the data of length {length}; without it nobody can tell "
                f"whether data prepared anew are those that the run began with: put back {run.data(length)}, or start "
                "a new run with another --workdir"
            )
    return written


def _recipe(config: RunConfig, run: RunDirectory, length: int) -> Recipe:
    return Recipe(config.data, length, config.seed, run.tokenizer_directory, config.objective.pair)
