"""The second step of a run: its sequences."""

import shutil

from bert_jax.config.run import RunConfig
from bert_jax.data.chunk_worker import Recipe
from bert_jax.data.corpus import open_corpus
from bert_jax.data.preparation import PreparedData, fingerprint, prepare
from bert_jax.system.errors import UsageError
from bert_jax.training.run_directory import RunDirectory


def prepare_lengths(config: RunConfig, run: RunDirectory) -> dict[int, PreparedData]:
    """The data set of each length that a phase has: what is there already if it is the same, or a new one.

    Raises UsageError where a run under way would get other data than it began with.
    """
    prepared = {}
    for length in dict.fromkeys(phase.length for phase in config.phases):
        directory = run.data(length)
        recipe = Recipe(config.data, length, config.seed, run.tokenizer)
        found = PreparedData.open(directory)
        if found and found.fingerprint != fingerprint(recipe):
            if run.under_way:
                raise UsageError(
                    f"{directory} was prepared from other settings or another tokenizer than this run has; put back "
                    "what was there, or start a new run"
                )
            shutil.rmtree(directory)
            found = None
        processes = config.preparation.processes
        prepared[length] = found or prepare(open_corpus(config.data), recipe, directory, processes)
    return prepared
