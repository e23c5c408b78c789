"""Maps a function over the portions of a corpus, in processes of this machine or of Spark."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from bert_jax.config.operation import PreparationConfig
from bert_jax.records.corpus import Mixture
from bert_jax.system.progress import stage
from bert_jax.system.spark import connected
from bert_jax.system.workers import available_cores, map_in_processes

_MOST_READERS_FEED = 16
"""Most local processes that one reader feeds: it reads about 100 MB/s, and each process prepares about 5 MB/s."""

Item = TypeVar("Item")
Map = Callable[[Callable[[Item], Any], Sequence[Item], str], list[Any]]
"""Maps a function over items, one task for each item, and shows the progress under a name."""


def works_by_portions(corpus: Mixture, settings: PreparationConfig) -> bool:
    """Whether each worker reads its portions itself; otherwise this process reads for all workers.

    Workers read each portion twice. Local processes therefore do so only if there are many of them and at least two
    portions for each.
    """
    if settings.engine == "spark":
        return True
    processes = settings.processes or available_cores()
    return processes > _MOST_READERS_FEED and corpus.has_portions and len(corpus.files_portions()) >= 2 * processes


@contextlib.contextmanager
def engine(settings: PreparationConfig) -> Iterator[Map]:
    """Yields the map of the engine that the settings name."""
    if settings.engine == "spark":
        with connected(settings.spark, settings.processes) as spark:

            def mapped(function, items, name):
                with stage(name, len(items), "portions") as bar:
                    results = spark.map(function, items, lambda finished: bar.advance(max(finished - bar.done, 0)))
                    bar.advance(len(items) - bar.done)
                return results

            yield mapped
    else:

        def mapped_here(function, items, name):
            with stage(name, len(items), "portions") as bar:
                processes = settings.processes or available_cores()
                return list(bar.counted(map_in_processes(function, items, processes)))

        yield mapped_here
