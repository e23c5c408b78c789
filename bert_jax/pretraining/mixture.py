"""The sources of a run: opens their text, and computes how often a training sees each."""

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from bert_jax.config.run import RunConfig
from bert_jax.config.wording import counted
from bert_jax.instances.prepared_data import PreparedData
from bert_jax.records.corpus import Mixture, open_corpus
from bert_jax.records.curation import curated
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system import figures
from bert_jax.system.errors import Setting, UsageError
from bert_jax.system.figures import Figures
from bert_jax.system.files import refuse_links, remove_directory
from bert_jax.training.input import MixedOrder


def open_text(config: RunConfig, run: RunDirectory, marked: bool = True) -> Mixture:
    """Opens the corpora of `config.data` without the documents and lines that the settings drop.

    What is dropped is decided first, unless an earlier decision is in the run. `marked`: whether the text has the marks
    of `data.spans`. Raises UsageError as `open_corpus` and `curated` do.
    """
    corpus = open_corpus(config.data)
    drops = None
    if config.data.is_curated:
        drops = curated(corpus, config.data, config.preparation, run.curation)
    elif run.curation.exists():  # by earlier settings
        refuse_links(run.curation.parent, run.curation)
        remove_directory(run.curation)
    if not marked:
        corpus = corpus.unmarked()
    corpus.drops = drops
    return corpus


class SourceShare(Figures):
    """One source in all phases of a training, or in the phases of one length."""

    source: str
    language: str
    sequences: int
    """Number of training sequences, over all lengths."""
    tokens: int
    """Number of tokens of these sequences."""
    unknown: Annotated[float, figures.Unit("{:.2%}".format), "unknown pieces"]
    """Share of the source's pieces that are unknown to the vocabulary."""
    share: figures.Percentage
    """The source's share of the tokens, including padding, that these phases draw."""
    epochs: Annotated[float, figures.Unit("{:,.3g}".format), "times seen"]
    """Average number of times that these phases see the source's text."""

    def __str__(self) -> str:
        times = f"seen {self.epochs:,.3g} times"
        counts = counted(self.sequences, "sequences")
        return f"{self.source} ({self.language}): {counts}, {self.share:.1%} of the draws, {times}"


def source_shares(config: RunConfig, prepared: Mapping[int, PreparedData]) -> Iterator[SourceShare]:
    """Yields the share of each source in the phases whose length is one of those in `prepared`."""
    drawn, epochs = draws(config, {length: data.sources for length, data in prepared.items()})
    for source, (name, language) in enumerate(zip(config.data.source, config.data.languages, strict=True)):
        seen = [data.of_sources[source] for data in prepared.values()]
        yield SourceShare(
            source=name,
            language=language,
            sequences=sum(counts.instances for counts in seen),
            tokens=sum(counts.instance_tokens for counts in seen),
            unknown=seen[0].unknown_share,
            share=drawn[source],
            epochs=epochs[source],
        )


def draws(config: RunConfig, rows: Mapping[int, Sequence[int]]) -> tuple[list[float], list[float]]:
    """Each source's share of the tokens, including padding, that the phases of the lengths in `rows` draw, and how
    often they see its text. `rows`: the number of training rows of each source, by length."""
    drawn = [0.0] * len(config.data.source)
    epochs = list(drawn)
    for number, phase in enumerate(config.phases):
        if phase.length in rows:
            counts = rows[phase.length]
            for source, (share, count) in enumerate(zip(_shares(config, number, counts), counts, strict=True)):
                of_source = share * config.text_share * phase.steps * phase.batch_size
                drawn[source] += of_source * phase.length
                epochs[source] += of_source / max(count, 1) * config.data.dupe_factor
    total = sum(drawn) or 1.0
    return [tokens / total for tokens in drawn], epochs


def steps_at_words(config: RunConfig, prepared: Mapping[int, PreparedData]) -> dict[int, int]:
    """The numbers of words in `checkpoints.keep_at_words`, by the first step after which the training has seen so many.
    Numbers past the end of the training are left out. Each step counts with the mean number of words of its phase.

    Raises UsageError if the data was prepared by an earlier version, which didn't count words.
    """
    wanted = config.checkpoints.keep_at_words
    if wanted and not all(data.train.words for data in prepared.values()):
        raise UsageError(
            f"{Setting('checkpoints.keep_at_words')} needs the number of words of the text, which the prepared data "
            "doesn't have; prepare it anew in a new --workdir, or leave the setting out"
        )
    steps: dict[int, int] = {}
    seen = 0.0
    for number, phase in enumerate(config.phases):
        words_each = words_a_step(config, number, prepared[phase.length])
        first, end = config.steps_of(number).start, seen + words_each * phase.steps
        steps |= {first + math.ceil((words - seen) / words_each): words for words in wanted if seen < words <= end}
        seen = end
    return steps


def words_a_step(config: RunConfig, number: int, prepared: PreparedData) -> float:
    """Mean number of words of the text, split at blanks, in a step of phase `number`, whose data is `prepared`; 0 if
    it was prepared by a version that didn't count words."""
    shares = _shares(config, number, prepared.sources)
    words = [seen.words * config.data.dupe_factor / max(seen.rows, 1) for seen in prepared.of_sources]
    return config.text_share * config.phases[number].batch_size * sum(map(operator.mul, shares, words))


def _shares(config: RunConfig, number: int, rows: Sequence[int]) -> list[float]:
    """Each source's share of the rows that phase `number` draws. `rows`: the number of training rows of each source."""
    if shares := config.shares(number, rows):
        return [places / MixedOrder.BLOCK for places in MixedOrder.places(shares)]
    return [count / max(sum(rows), 1) for count in rows]


def check_epochs(config: RunConfig, shares: Sequence[SourceShare]) -> None:
    """Raises UsageError if a source is seen more often than `data.most_epochs` allows."""
    most = config.data.most_epochs
    often = max(shares, key=lambda share: share.epochs)
    if most is not None and often.epochs > most:
        raise UsageError(
            f"{Setting('data.most_epochs')}={most:g}: the text of {often.source} would be seen {often.epochs:,.3g} "
            f"times; raise it or {Setting('data.smoothing')}, lower the source's weight, or train for fewer steps"
        )
