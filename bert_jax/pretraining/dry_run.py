"""Describes what `pretrain` and `prepare` would do. Writes nothing to the run."""

from bert_jax.config.run import RunConfig
from bert_jax.instances.prepared_data import PreparedData
from bert_jax.pretraining.dataset import is_outdated
from bert_jax.pretraining.pretrain import plan_pretraining
from bert_jax.pretraining.sample_preparation import common_vocabulary, prepare_sample
from bert_jax.records.corpus import open_corpus
from bert_jax.records.sample import read_sample
from bert_jax.run.opened_models import OpenedModels
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.bucket import Place
from bert_jax.system.figures import Figure, figure_names, gigabytes, three_digits
from bert_jax.system.progress import say
from bert_jax.training.estimate import (
    Estimate,
    Lines,
    checkpoints_line,
    memory_line,
    read_as,
    run_beginning,
    steps_in_words,
)

_WORKERS = (1, 10, 100)
"""Numbers of workers for which a dry run states the time."""


def pretraining_estimates(config: RunConfig, workdir: Place, opened: OpenedModels) -> Lines:
    """Yields what `bert-jax pretrain` would do in `workdir`. Raises UsageError if it would refuse to start."""
    run = RunDirectory(workdir)
    plan = plan_pretraining(config, run, opened)
    config, trainer, mesh = plan.config, plan.trainer, plan.mesh
    yield from run_beginning(config, run, mesh)
    yield "vocabulary", _vocabulary(config, run, trainer.objective.model.vocabulary_size)
    if trainer.objective.teacher:
        yield "teacher", f"{config.teacher}: {trainer.objective.teacher.description}"
    prepared = plan.inputs.prepared
    for length in config.lengths:
        yield f"data, length {length}", _data(config, run, prepared.get(length))
    if len(prepared) < len(config.lengths):
        yield from _sources(config)
    yield from read_as(plan.inputs.readings)
    memories = [trainer.objective.memory(phase, mesh) for phase in config.phases]
    done = run.newest_step or 0
    for number, phase in enumerate(config.phases):
        products = Estimate(work=f"phase {number}", flops=trainer.flops(number) * phase.steps, basis="formula")
        done_here = max(0, done - config.steps_of(number).start)
        yield products.line(steps_in_words(phase, done_here, config.batch_in_words(number)))
    steps = zip(config.phases, memories, strict=True)
    yield from dict.fromkeys(memory_line(phase, memory, mesh) for phase, memory in steps)
    yield checkpoints_line(config, workdir, memories[0], mesh)


def _vocabulary(config: RunConfig, run: RunDirectory, pieces: int | None) -> str:
    if run.under_way:
        source = f"there: {run.tokenizer_directory}"
    elif config.vocabulary_origin:
        source = f"read from {config.vocabulary_origin}"
    else:
        source = f"{config.vocabulary.kind}, trained on the text if {run.tokenizer_directory} doesn't hold it yet"
    return f"{pieces:,} pieces, {source}"


def _data(config: RunConfig, run: RunDirectory, prepared: PreparedData | None) -> str:
    outdated = False
    if prepared and not run.under_way and run.tokenizer_directory.exists():
        # Text in other files isn't read: it counts as changed. Without a tokenizer nothing is compared.
        outdated = is_outdated(prepared, config, run, lambda: "")
    if prepared and not outdated:
        kind = "packed training rows" if config.data.packed else "training sequences"
        size = gigabytes(sum(shard.size for shard in prepared.shards.values()))
        return f"there: {sum(prepared.sources):,} {kind}, {prepared.held_out.rows:,} sequences held out, {size}"
    corpus = open_corpus(config.data)
    replaced = "; what is there was prepared from other text or with other settings, and is deleted" if outdated else ""
    sources = " ".join(config.data.source)
    size = "" if corpus.unit == "%" else f": {corpus.total:,.4g} {corpus.unit}"
    return f"to be prepared from {sources}{size}{replaced}"


def _sources(config: RunConfig) -> Lines:
    """Yields the size of each source and its share in each phase; nothing for a single source.

    Without weights, the shares are estimated from the sizes, because the true shares depend on the numbers of
    sequences, which are known only after preparation. If the sizes also have no common unit, no shares are given.
    """
    sources = [part.source for part in open_corpus(config.data).parts]
    if len(sources) == 1:
        return
    sizes = [source.total for source in sources]
    known = config.data.weights or len({source.unit for source in sources}) == 1
    shares = [config.shares(phase, sizes) or config.data.shares(sizes) for phase in range(len(config.phases)) if known]
    estimated = "" if config.data.weights else ", estimated from the sizes"
    yield "sources", "size" + (f", and share of the sequences in each phase{estimated}" if known else "")
    for place, source in enumerate(sources):
        percentages = ", ".join(f"{of_phase[place]:.1%}" for of_phase in shares)
        size = f"{three_digits(source.total)} {source.unit}"
        yield (
            f"{config.data.source[place]} ({config.data.languages[place]})",
            f"{size}; {percentages}".removesuffix("; "),
        )


def preparation_estimates(config: RunConfig, opened: OpenedModels) -> Lines:
    """Yields what a preparation would take, after a trial on a sample of each source. Raises UsageError if a source
    can't be read, or holds no or too little text."""
    parts, names = open_corpus(config.data).parts, config.data.source
    samples = [read_sample(part, sources=len(parts), name=name) for part, name in zip(parts, names, strict=True)]
    common = common_vocabulary(config, samples, opened)
    times, tokenizer = ([common.time], common.tokenizer) if common else ([], None)
    for name, language, sample in zip(names, config.data.languages, samples, strict=True):
        say(f"Preparing a sample of {name}")
        times.append(prepare_sample(sample, config.of_source(name, language), opened, tokenizer).time)
    total = sum(times[1:], start=times[0])
    for name, sample in zip(names, samples, strict=True):
        yield name, f"{gigabytes(sample.text_bytes)}, {sample.described} looked at ({sample.share:.0%})"
    if config.data.is_curated:
        yield "dropped", "not estimated: the figures are of all documents"
    lengths = " and ".join(map(str, config.lengths))
    details = {
        "chunks": f" of about {config.data.chunk_megabytes:g} MB of text",
        "shuffled_bytes": " (not with Spark)",
        "shard_bytes": f" of sequences of {lengths}",
    }
    for name in figure_names(type(total)):
        figure = Figure(type(total), name)
        yield figure.heading, figure.text(getattr(total, name)) + details.get(name, "")
    yield "rate, measured", f"{total.shuffled_bytes / total.work_seconds / 1e6:,.3g} MB of text a second and worker"
    yield from (total.with_workers(workers).line() for workers in _WORKERS)
