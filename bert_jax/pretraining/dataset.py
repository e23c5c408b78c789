"""The second step of a run: its sequences."""

import json
from pathlib import Path

from bert_jax.config.run import RunConfig
from bert_jax.data.chunk_worker import Recipe
from bert_jax.data.corpus import corpus_stamp, open_corpus
from bert_jax.data.preparation import prepare
from bert_jax.data.prepared_data import PreparedData, discard, fingerprint, publish_prepared
from bert_jax.pretraining.initial import InitialModel
from bert_jax.pretraining.vocabulary import given_tokenizer
from bert_jax.system.copies import fetched, worked_on
from bert_jax.system.errors import UsageError
from bert_jax.system.files import write_json
from bert_jax.system.progress import say
from bert_jax.text.extension import replaced_pieces
from bert_jax.training.run_directory import RunDirectory


def check_sources(config: RunConfig, run: RunDirectory) -> None:
    """Raises UsageError where a corpus, vocabulary or model that the run needs isn't there. Writes nothing."""
    if not run.under_way:
        initial, tokenizer = InitialModel.open(config), given_tokenizer(config)
        if initial:
            replaced_pieces(initial.trained.tokenizer, tokenizer)
    if all(PreparedData.open(run.data(phase.length)) for phase in config.phases):
        return  # here or on another machine
    open_corpus(config.data)


def prepare_lengths(config: RunConfig, run: RunDirectory) -> dict[int, PreparedData]:
    """The data set of each length that a phase has: what is there already if it is the same, or a new one.

    Raises UsageError where a run under way would get other data than it began with.
    """
    prepared = {}
    for length in dict.fromkeys(phase.length for phase in config.phases):
        found = PreparedData.open(run.data(length))
        if found and run.under_way:
            found = prepared_for(config, run, length)
        elif found and _outdated(found, config, run):
            open_corpus(config.data)  # refused before anything is deleted
            say(f"{run.data(length)} is of other settings or other text: it is prepared anew")
            discard(run.data(length))
            found = None
        prepared[length] = found or _prepare(config, run, length)
    return prepared


def prepared_for(config: RunConfig, run: RunDirectory, length: int) -> PreparedData:
    """The data set of `length` that is there. Raises UsageError where there is none or it is not this run's."""
    found = PreparedData.open(run.data(length))
    if not found:
        raise UsageError(
            f"{run.path} has no prepared data of length {length}; bert-jax prepare makes it from a config's text, and "
            "an imported model has none"
        )
    if found.fingerprint != fingerprint(_recipe(config, run, length)):
        raise UsageError(
            f"{run.data(length)} was prepared from other settings or another tokenizer than this run has; put back "
            "what was there, or start a new run"
        )
    return found


def prepare_other(
    config: RunConfig, run: RunDirectory, length: int, source: str, language: str | None, directory: Path
) -> PreparedData:
    """All documents of `source`, in `directory`, as those of the run were prepared. Raises UsageError as `prepare`."""
    language = language or config.data.languages[0]
    own = {"source": source, "weights": None, "language": language, "held_out": 0.0, "dupe_factor": 1}
    recipe = _recipe(config.replace(data=config.data.replace(**own)), run, length)
    return prepare(open_corpus(recipe.data), recipe, directory, config.preparation.processes)


def _outdated(found: PreparedData, config: RunConfig, run: RunDirectory) -> bool:
    of_other_text = corpus_stamp(config.data) not in (None, found.corpus)
    return of_other_text or found.fingerprint != fingerprint(_recipe(config, run, found.length))


def _prepare(config: RunConfig, run: RunDirectory, length: int) -> PreparedData:
    """Prepares a data set; the checksums of its files, kept outside it, tell whether a later one is the same."""
    recipe = _recipe(config, run, length)
    other_text = UsageError(
        f"{config.data.described} gives other text than {run.path} began with; put the text back, "
        "or start a new run with another --workdir"
    )
    others = [found.corpus for found in map(PreparedData.read, run.path.glob("data/*")) if found]
    if run.under_way and others and corpus_stamp(config.data) not in others:
        raise other_text
    made = prepare(open_corpus(config.data), recipe, worked_on(run.data(length)), config.preparation.processes)
    publish_prepared(run.data(length))
    record = run.path / f"data-{length}.json"
    sums = json.loads(json.dumps(made.shards))
    if not (run.under_way and record.exists()):  # a phase added to a run may be the first of its length
        write_json(record, sums)
    elif json.loads(record.read_text(encoding="utf-8")) != sums:
        raise other_text
    return made


def _recipe(config: RunConfig, run: RunDirectory, length: int) -> Recipe:
    return Recipe(config.data, length, config.seed, fetched(run.tokenizer), config.objective.pair)
