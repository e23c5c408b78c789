"""Diagnosis of a text: what it gives a pretraining, and what is wrong with it, by a spread sample."""

import math
from collections.abc import Sequence
from typing import Annotated

from bert_jax.config.run import RunConfig
from bert_jax.instances.treebank import read_treebank
from bert_jax.model.size import num_parameters, train_flops
from bert_jax.pretraining.fitting import MOST_PASSES
from bert_jax.pretraining.mixture import SourceShare, draws
from bert_jax.pretraining.sample_preparation import (
    CommonVocabulary,
    Cut,
    Pieces,
    PreparationTime,
    SamplePreparation,
    common_vocabulary,
    prepare_sample,
)
from bert_jax.products.doctor.approaches import Approach, ApproachFinder, print_approaches
from bert_jax.products.doctor.survey import Fault, Survey, TextShare
from bert_jax.records.corpus import open_corpus
from bert_jax.records.corpus_reading import reading_of_samples
from bert_jax.records.filters import are_same_language, is_identifiable
from bert_jax.records.sample import SpreadSample, read_sample
from bert_jax.run.opened_models import OpenedModels
from bert_jax.system import figures
from bert_jax.system.figures import Figures, figures_table, rows_table, three_digits
from bert_jax.system.progress import output, print_line, say
from bert_jax.system.reading import show
from bert_jax.text.identification import UNDETERMINED, UNSURE
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.training.estimate import Estimate, training_times

_TOKENS_A_PARAMETER, _TIMES_IN_ENCODERS = 20, (10, 100)
"""Training tokens for each parameter of the compute-optimal model: their number in causal models (Hoffmann et al.
2022), and the least and the largest factor by which encoders have more (Dervishi et al. 2025)."""
_MOST_EPOCHS_OF_CAUSAL, _HALF_WORTH = 40, 15.39
"""The epochs after which more repetition adds nothing, and the constant R* by which the worth of repeated tokens fades,
both of causal models (Muennighoff et al. 2023)."""


def most_epochs(config: RunConfig) -> int:
    """The epochs after which more repetition adds nothing. Masks are drawn anew in each epoch, so models that fill them
    gain from more epochs than causal models do ("Passes over a small text" in docs/experiments.md)."""
    return MOST_PASSES if config.objective.chooses_units else _MOST_EPOCHS_OF_CAUSAL


def _from_to(numbers: tuple[int, int]) -> str:
    """A range as text, with three digits, or the number that both ends are."""
    return " to ".join(dict.fromkeys(map(three_digits, numbers)))


class TextSize(Figures):
    """The text, and how much of it was looked at. Sizes and counts are of the whole, estimated from the sample."""

    source: str
    language: Annotated[str, "declared language"]
    text_bytes: Annotated[figures.Traffic, "text"]
    documents: int
    sentences: int
    words: int
    """Words, split at blanks, as by wc."""
    tokens: int
    """Pieces, without special tokens."""
    longest_line: Annotated[int, "characters of the longest line"]
    sample_bytes: Annotated[figures.Traffic, "looked at"]
    sample_share: Annotated[figures.Percentage, "share looked at"]
    sample: Annotated[str, "sample"]
    """Which part of the source the sample is."""


class EstimatedShare(SourceShare):
    """One source in the training on several, estimated from a sample."""

    pieces_a_word: Annotated[float, figures.Unit("{:.3f}".format), "pieces a word"]


class Training(Figures):
    """The training that the config describes, on this text."""

    parameters: int
    text_parameters: Annotated[tuple[int, int], figures.Unit(_from_to), "parameters that the text suffices for"]
    """The least and the most parameters of the compute-optimal model, if the text alone limits the compute: its tokens
    count as often as repeating them still helps."""
    text_parameters_basis: Annotated[str, "by"]
    """The tokens for each parameter, and where they were measured."""
    epochs: Annotated[float, figures.Unit(three_digits), "times the text is seen"]
    flops: Annotated[figures.Flops, "FLOPs"]


class Change(Figures):
    """Something to change."""

    reason: str
    change: str
    """What to do: a flag of bert-jax pretrain, or what to do to the text."""


class SourceDiagnosis(Figures):
    """The figures and faults of one source of text."""

    text: TextSize
    languages: list[TextShare]
    scripts: list[TextShare]
    faults: list[Fault]
    cuts: list[Cut]
    """Sequences of the whole text, by length."""
    pieces: list[Pieces]
    preparation: PreparationTime
    boilerplate_share: figures.Percentage
    """Share of the characters that is in lines of many documents."""
    vocabulary_size: int | None
    """The size of the vocabulary that the text gives, if it isn't the one that the config asks for."""
    whole: bool
    """Whether all of the text was looked at."""
    merged: str | None
    """The letters that the vocabulary merges, with examples."""


class Diagnosis(SourceDiagnosis):
    """The figures and faults of the only source, and the training on it."""

    training: Training
    hours: list[Estimate]
    approaches: list[Approach] = []


class MixtureDiagnosis(Figures):
    """The figures and faults of several sources, and the training on all of them."""

    sources: list[SourceDiagnosis]
    shares: list[EstimatedShare]
    preparation: PreparationTime
    training: Training
    hours: list[Estimate]
    approaches: list[Approach] = []
    vocabulary_size: int | None
    """The size of the common vocabulary, if it isn't the one that the config asks for."""


def diagnose(
    config: RunConfig,
    opened: OpenedModels,
    models: Sequence[str] = (),
    tags: str | None = None,
    minutes: float | None = None,
) -> Diagnosis | MixtureDiagnosis:
    """Examines the sources of `config`, and lists approaches for them: use one of `models` as it is, adapt it, or train
    a model from scratch, also on the treebank `tags`. `minutes`: those that a pretraining may take on this machine;
    None: a small budget. Raises UsageError if a model or the treebank can't be read, or if there is no or too little
    text."""
    by_name = {name: opened.model(name) for name in models}
    if tags:
        read_treebank(tags, "tags")  # raises now what the advised training would raise
    found, samples = _diagnosed(config, opened)
    sources = found.sources if isinstance(found, MixtureDiagnosis) else [found]
    languages, here = {*map(_language, sources)}, found.hours[0]
    finder = ApproachFinder(
        [document for sample in samples.values() for document in sample.documents],
        sum(source.text.words for source in sources),
        languages.pop() if len(languages) == 1 else None,
        config,
    )
    time_of_flop = Estimate(hours=(here.hours or 0.0) / found.training.flops, basis=here.basis)
    return found.model_copy(update={"approaches": finder.approaches(by_name, tags, time_of_flop, minutes)})


def _diagnosed(config: RunConfig, opened: OpenedModels) -> tuple[Diagnosis | MixtureDiagnosis, dict[str, SpreadSample]]:
    """The diagnosis without approaches, and the sample of each source."""
    corpus, names = open_corpus(config.data), config.data.source
    surveys = {name: Survey() for name in names}
    samples = {
        name: read_sample(part, surveys[name].add, sources=len(names), name=name)
        for name, part in zip(names, corpus.parts, strict=True)
    }
    show([reading_of_samples(corpus, config.data, samples)])
    if len(names) == 1:
        found, prepared = _of_source(config, samples[names[0]], surveys[names[0]], opened)
        training = _training(config, [prepared])
        hours = list(training_times(config.model, training.flops))
        return Diagnosis(**dict(found), training=training, hours=hours), samples
    common = common_vocabulary(config, list(samples.values()), opened)
    tokenizer = common.tokenizer if common else None
    of_sources = [
        _of_source(config.of_source(name, language), samples[name], surveys[name], opened, tokenizer)
        for name, language in zip(names, config.data.languages, strict=True)
    ]
    return _of_mixture(config, of_sources, common), samples


def _language(source: SourceDiagnosis) -> str | None:
    """The language of a source: the declared one if that can't be identified, since its text is taken for another
    language; otherwise the one identified in more than half of the text, or None."""
    declared = source.text.language
    if not is_identifiable(declared):
        return declared
    known = (share for share in source.languages if share.name not in (UNSURE, UNDETERMINED))
    first = next((share.name for share in known if share.share > 0.5), None)
    return declared if first and are_same_language(first, declared) else first


def _of_source(
    config: RunConfig, sample: SpreadSample, survey: Survey, opened: OpenedModels, common: Tokenizer | None = None
) -> tuple[SourceDiagnosis, SamplePreparation]:
    """The diagnosis of the only source of `config`, and its sample's preparation with the `common` vocabulary."""
    (name,) = config.data.source
    say(f"Identifying languages of {name}")
    languages, scripts = survey.languages()
    say(f"Preparing the sample of {name}")
    prepared = prepare_sample(sample, config, opened, common)
    found = SourceDiagnosis(
        text=TextSize(
            source=name,
            language=config.data.languages[0],
            text_bytes=round(sample.text_bytes),
            documents=round(sample.number / sample.share),
            sentences=prepared.sentences,
            words=prepared.words,
            tokens=prepared.tokens,
            longest_line=survey.longest_line,
            sample_bytes=sample.bytes,
            sample_share=sample.share,
            sample=sample.described,
        ),
        languages=languages,
        scripts=scripts,
        faults=list(survey.faults(sample.repairs)),
        cuts=prepared.cuts,
        pieces=prepared.pieces,
        preparation=prepared.time,
        boilerplate_share=survey.boilerplate_share,
        vocabulary_size=prepared.vocabulary_size,
        whole=sample.share == 1,
        merged=prepared.merged,
    )
    return found, prepared


def _of_mixture(
    config: RunConfig, of_sources: Sequence[tuple[SourceDiagnosis, SamplePreparation]], common: CommonVocabulary | None
) -> MixtureDiagnosis:
    found, prepared = zip(*of_sources, strict=True)
    copies = config.data.dupe_factor
    rows = {length: [_rows(config, each)[length] // copies for each in prepared] for length in config.lengths}
    drawn, epochs = draws(config, rows)
    training = _training(config, prepared)
    pieces = len(common.tokenizer.vocabulary) if common else config.vocabulary.size
    times = [each.preparation for each in found] + ([common.time] if common else [])
    return MixtureDiagnosis(
        sources=list(found),
        shares=[
            EstimatedShare(
                source=each.text.source,
                language=each.text.language,
                sequences=sum(cut.sequences for cut in own_cuts(config, each.cuts)),
                tokens=sum(cut.tokens for cut in own_cuts(config, each.cuts)),
                unknown=each.pieces[0].unknown,
                share=share,
                epochs=seen,
                pieces_a_word=each.pieces[0].pieces_a_word,
            )
            for each, share, seen in zip(found, drawn, epochs, strict=True)
        ],
        preparation=sum(times[1:], start=times[0]),
        training=training,
        hours=list(training_times(config.model, training.flops)),
        vocabulary_size=pieces if pieces != config.vocabulary.size else None,
    )


def own_cuts(config: RunConfig, cuts: Sequence[Cut]) -> list[Cut]:
    """Those of `cuts` that the config trains on."""
    return [cut for cut in cuts if cut.length in config.lengths and cut.packed == config.data.packed]


def _rows(config: RunConfig, prepared: SamplePreparation) -> dict[int, int]:
    return {cut.length: cut.rows for cut in own_cuts(config, prepared.cuts)}


def _training(config: RunConfig, prepared: Sequence[SamplePreparation]) -> Training:
    model = config.model.replace(vocabulary_size=prepared[0].pieces[0].pieces)
    rows = {length: sum(_rows(config, each)[length] for each in prepared) for length in config.lengths}
    tokens = sum(each.tokens for each in prepared)
    worth = 1 + _HALF_WORTH * (1 - math.exp((1 - _MOST_EPOCHS_OF_CAUSAL) / _HALF_WORTH))
    (least, most), basis = _tokens_a_parameter(config)
    return Training(
        parameters=num_parameters(model),
        text_parameters=(round(worth * tokens / most), round(worth * tokens / least)),
        text_parameters_basis=basis,
        epochs=config.data.dupe_factor
        * sum(phase.steps * phase.batch_size / max(rows[phase.length], 1) for phase in config.phases),
        flops=sum(
            float(phase.steps * phase.batch_size) * train_flops(model, phase.length, config.slots(phase.length))
            for phase in config.phases
        ),
    )


def _tokens_a_parameter(config: RunConfig) -> tuple[tuple[int, int], str]:
    """The least and the most training tokens for each parameter of the compute-optimal model, and what they rest on.

    Those of encoders begin at the ratio of causal models, as no law was found for small encoders (docs/experiments.md).
    """
    causal = f"{_TOKENS_A_PARAMETER} tokens for each in causal models (Hoffmann et al. 2022)"
    if not config.objective.chooses_units:
        return (_TOKENS_A_PARAMETER, _TOKENS_A_PARAMETER), causal
    low, high = _TIMES_IN_ENCODERS
    basis = f"{causal}, up to {high} times as many in encoders (Dervishi et al. 2025: {low} to {high} times)"
    return (_TOKENS_A_PARAMETER, high * _TOKENS_A_PARAMETER), basis


_SHARES_SHOWN = 8
_OF_SHARES = ("source", "language", "tokens", "pieces_a_word", "unknown", "share", "epochs")
_LEAST_SHOWN = 0.0005


def print_diagnosis(found: Diagnosis | MixtureDiagnosis, changes: Sequence[Change]) -> None:
    """Prints the tables of a diagnosis, the approaches, and the changes that are advised."""
    if isinstance(found, MixtureDiagnosis):
        output.print(rows_table("The sources, estimated from samples", found.shares, _OF_SHARES))
        for source in found.sources:
            if source.faults:
                output.print(rows_table(f"Faults in the sample of {source.text.source}", source.faults))
    else:
        _print_source(found)
    output.print(
        figures_table("Preparation, from rates measured on the sample", {"": found.preparation}),
        figures_table("The config's training", {"": found.training}),
        rows_table("Its time", found.hours),
        sep="\n",
    )
    print_approaches(found.approaches)
    print_line("What to change" if changes else "Nothing to change was found.")
    for change in changes:
        print_line(f"- {change.reason}: {change.change}")


def _print_source(found: Diagnosis) -> None:
    output.print(figures_table("The text, estimated from the sample", {"": found.text}))
    for title, shares in (("Languages", found.languages), ("Scripts", found.scripts)):
        shown = [share for share in shares if share.share >= _LEAST_SHOWN][:_SHARES_SHOWN]
        output.print(rows_table(title, shown))
    if found.faults:
        output.print(rows_table("Faults in the sample", found.faults))
    output.print(
        rows_table("Sequences of the whole text", found.cuts),
        rows_table("Vocabularies, on the sample", found.pieces),
        sep="\n",
    )
