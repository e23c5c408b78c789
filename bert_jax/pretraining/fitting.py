"""Fits the settings of a run to a published model, to the text and to this machine, and warns of what could harm it."""

import itertools
import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from bert_jax.config.data import VocabularyConfig
from bert_jax.config.fitted import AdaptConfig, FittedConfig, ScratchConfig, heads_of
from bert_jax.config.model import ModelConfig
from bert_jax.config.prediction import MASKED_TOKENS
from bert_jax.config.run import RunConfig, prediction_of
from bert_jax.config.training import Phase
from bert_jax.config.wording import counted
from bert_jax.interchange.relatives import RELATIVES
from bert_jax.model.sharding import batch_sharding, check_batch_size, make_mesh, placed, row_shards
from bert_jax.model.size import num_parameters, step_memory, train_flops
from bert_jax.pretraining.distillation import TEACHER_LOSS
from bert_jax.pretraining.evaluation import MEAN_COSINE
from bert_jax.pretraining.mixture import SourceShare
from bert_jax.pretraining.objective import expected_vocabulary_size, pretraining_trainer
from bert_jax.pretraining.teacher import with_named_teacher
from bert_jax.pretraining.vocabulary import tokenizer_of_file
from bert_jax.records.corpus import open_corpus
from bert_jax.records.sample import read_sample
from bert_jax.run.hosts import of_first, wait_for_all
from bert_jax.run.opened_models import OpenedModels
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.trained_model import TrainedModel
from bert_jax.system.errors import Setting, UsageError, command_line, is_out_of_memory
from bert_jax.system.figures import gigabytes, three_digits
from bert_jax.system.progress import say
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.vocabulary import PAD, SPECIAL_PIECES
from bert_jax.text.vocabulary_training import FAIRSEQ_PIECES
from bert_jax.training.optimizer import make_optimizer

GENTLE_RATE = 5e-4
"""Peak learning rate for a trained encoder in batches of 2,048 tokens: of the rates tried, 3e-4 taught all-MiniLM-L6-v2
less, and 1e-3 brought the vectors of texts closer together (docs/experiments.md)."""
_HARSH = 10
"""A learning rate of this many times GENTLE_RATE, or more, harms a trained encoder."""
_FEWEST_EPOCHS = 0.1
_SLOWER = 1.1
"""A larger batch isn't taken if its rows take this many times as long."""
_WANTED_STEPS, _LARGEST_BATCH = 1000, 256
"""Within a budget of minutes the batch is doubled, up to _LARGEST_BATCH rows, while _WANTED_STEPS steps or more remain.
"""
_TIMED_STEPS = 3
_EVALUATIONS, _MOST_BETWEEN = 4, 250
"""Least number of evaluations of an adapted model after its first step, the last among them, and most steps from one to
the next."""
_COLLAPSED = 0.99
"""Mean cosine of the vectors of different texts; at this value or above, the vectors hardly differ."""
_HALFWAY = 0.5
"""From this share of the steps on, a held-out loss above that of the beginning ends the training."""


class TextShape(NamedTuple):
    """The sizes of a model and its vocabulary for a text."""

    words: float
    """Least number of words of the text."""
    layers: int
    width: int
    pieces: int
    passes: float
    """Number of times that the text is seen."""

    @property
    def settings(self) -> dict[str, int]:
        """The settings of the model; without the number of heads for a width that heads of about 64 don't divide."""
        heads, inner = heads_of(self.width), round(self.width * 8 / 3 / 16) * 16
        sizes = {"num_layers": self.layers, "hidden_size": self.width, "feedforward_size": inner}
        return sizes | ({"num_heads": heads} if heads else {})


_SIZES = (
    TextShape(12e6, 6, 384, 16_384, 10),
    TextShape(1e6, 4, 256, 8_192, 10),
    TextShape(2e5, 3, 192, 4_096, 30),
    TextShape(0, 2, 128, 2_048, 100),
)
"""Models by the words of the text, the largest first. The passes over the shortest texts were measured ("Passes over a
small text" in docs/experiments.md); the sizes are initial values."""
MOST_PASSES = 100
"""A budget of minutes is filled with at most this many passes. With 56,000 words of text, 300 passes gave a worse model
than 100 did."""
_CHARACTERS_A_WORD, _UNSPACED = 10, 2
"""Largest mean number of characters of a word. A text above it is taken to have no spaces between words, and
_UNSPACED of its characters count as one word."""
_PIECES_A_WORD = 1.5
"""Rough number of pieces of a word in a vocabulary that is trained on the text."""
_PIECES_A_CHARACTER = 3
"""A vocabulary has at least this many pieces for each character of the text, of which a WordPiece needs up to two."""
_WORDS_A_PIECE, _VOCABULARY_SIZES = 100, (2_048, 32_768)
"""Words of text for each piece of a vocabulary that replaces a model's, and its least and most pieces. Initial values,
to be checked by the suite small_language."""


def shape_of_words(words: float) -> TextShape:
    """The sizes of a model that is trained from scratch on a text of `words` words."""
    return next(shape for shape in _SIZES if words >= shape.words)


def pieces_of_words(words: float) -> int:
    """The size of a vocabulary that replaces a published model's, for a text of `words` words: a power of two."""
    least, most = _VOCABULARY_SIZES
    return min(max(2 ** int(math.log2(max(words / _WORDS_A_PIECE, 1))), least), most)


def fitted(
    config: RunConfig,
    opened: OpenedModels,
    run: RunDirectory | None = None,
) -> RunConfig:
    """The settings of the run that `config` describes: `config` itself unless it is a FittedConfig.

    `run`: the run's directory, whose model and phases are kept once it is under way. Raises UsageError if the model or
    the text can't be opened, or if the settings don't fit the model.
    """
    if not isinstance(config, FittedConfig):
        return config
    values = {name: getattr(config, name) for name in RunConfig.model_fields}
    if run and run.under_way:
        return RunConfig(**values | _as_begun(config, run))
    if isinstance(config, AdaptConfig):
        values |= _adapted(config, opened)
    if isinstance(config, ScratchConfig):
        values |= _sized(config)
    settings = RunConfig(**values)
    if config.minutes is not None:
        rows = sum(phase.steps * phase.batch_size for phase in settings.phases)
        most = rows if isinstance(config, ScratchConfig) else math.inf
        settings = with_named_teacher(settings, opened)  # its time is a part of each step
        settings = _within_minutes(settings, config.minutes, most, opened)
    if isinstance(config, AdaptConfig):
        every = min(math.ceil(settings.steps / _EVALUATIONS), _MOST_BETWEEN)
        settings = settings.replace(**_cadences(config, {"evaluation": every, "checkpoints": every}))
    return settings


def _cadences(config: AdaptConfig, every: Mapping[str, int]) -> dict[str, Any]:
    """The groups of settings that `every` names, with its numbers of steps for those that `config` doesn't give."""
    groups = {name: getattr(config, name) for name in every}
    return {
        name: group if "every" in group.model_fields_set else group.replace(every=every[name])
        for name, group in groups.items()
    }


def _as_begun(config: FittedConfig, run: RunDirectory) -> dict[str, Any]:
    """The settings that were fitted when the run began, from the run's own settings, so that the model and the text
    needn't be on this machine. As in every run, other changed settings of `config` are refused or adopted."""
    there = run.files.pretraining_config
    vocabulary = config.vocabulary.replace(exchange=there.vocabulary.exchange)
    phases = tuple(_shortened(config.phases, there.model.max_positions))
    if (isinstance(config, ScratchConfig) or vocabulary.exchange) and "size" not in vocabulary.model_fields_set:
        vocabulary = vocabulary.replace(size=there.vocabulary.size)
    if isinstance(config, ScratchConfig) or config.minutes is not None:
        phases = _with_steps(phases, there.phases, config.minutes is not None)
        last = Setting(f"phases.{len(phases) - 1}.steps", "MORE")
        longer = command_line("bert-jax", "pretrain", run.path, "--workdir", run.path, last)
        say(
            f"{counted(there.steps, 'steps')} were fitted when the run began, and are kept; to train longer, give the "
            f"run in place of the config, with more than {phases[-1].steps:,} steps in its last phase: {longer}"
        )
    cadences: dict[str, Any] = {}
    if isinstance(config, AdaptConfig):
        cadences = _cadences(config, {"evaluation": there.evaluation.every, "checkpoints": there.checkpoints.every})
    model = there.model.replace(**_overrides(config.model))
    objective = config.objective.replace(predict=there.objective.predict)
    return {"model": model, "vocabulary": vocabulary, "phases": phases, "objective": objective, **cadences}


def _with_steps(phases: Sequence[Phase], there: Sequence[Phase], batches: bool) -> tuple[Phase, ...]:
    """`phases`, each with the steps of the phase of the same number in `there`, and with its batch size if `batches`.
    Phases that `there` lacks are unchanged."""
    fitted_names = ("steps", "batch_size") if batches else ("steps",)
    same = (
        phase.replace(**{name: getattr(before, name) for name in fitted_names})
        for phase, before in zip(phases, there, strict=False)
    )
    return (*same, *phases[len(there) :])


def _adapted(config: AdaptConfig, opened: OpenedModels) -> dict[str, Any]:
    """The settings that follow from the published model."""
    if config.init is None:
        raise UsageError(
            f"adapt needs {Setting('init')} as well: a run, a checkpoint, the folder of a published model, or its name "
            "on the hub"
        )
    initial = opened.model(config.init)
    of_file: Tokenizer | None = None
    if config.vocabulary.file:
        theirs = opened.tokenizer(config.teacher) if config.teacher else None
        of_file, _ = tokenizer_of_file(config.vocabulary, theirs, initial.config, opened)
    vocabulary = _vocabulary(config.vocabulary, initial, of_file)
    model = _model(config.model, initial.config, vocabulary, of_file)
    if config.init_layers:
        model = model.replace(num_layers=len(config.init_layers))
    if vocabulary.exchange and not vocabulary.file and "size" not in vocabulary.model_fields_set:
        words, characters = _words_and_characters(config)
        vocabulary = _of_size(vocabulary, pieces_of_words(words), characters)
        say(f"about {three_digits(words)} words: a vocabulary of {vocabulary.size:,} pieces replaces the model's")
    phases = tuple(_shortened(config.phases, model.max_positions))
    if phases != config.phases:
        say(f"the model has {model.max_positions} positions: sequences are no longer than that")
    if vocabulary.exchange:
        pieces = len(of_file.vocabulary) if of_file else vocabulary.size
        say(_size_of_exchanged(config, phases[-1], initial.config, model.replace(vocabulary_size=pieces)))
    return {
        "vocabulary": vocabulary,
        "model": model,
        "objective": config.objective.replace(predict=prediction_of(model)),
        "phases": phases,
    }


def _size_of_exchanged(config: AdaptConfig, phase: Phase, before: ModelConfig, after: ModelConfig) -> str:
    """A line with the sizes of the model `before` and `after` the exchange of its vocabulary: parameters, and memory
    and FLOPs of a step of `phase`, by formula."""
    mesh, optimizer = make_mesh(config.mesh), make_optimizer(config.optimizer)
    predictions, packed = config.slots(phase.length), config.data.sequences_a_row(phase.length)
    figures = []
    for model in (before, after):
        words = three_digits(model.num_word_rows * model.table_size)
        memory = step_memory(
            config.execution, model, mesh, phase, optimizer, predictions=predictions, packed=packed
        ).total
        flops = phase.batch_size * train_flops(model, phase.length, predictions)
        figures.append(
            f"{three_digits(num_parameters(model))} parameters ({words} of them in the table of words), "
            f"{gigabytes(memory)} and {three_digits(flops / 1e9)} GFLOPs a step"
        )
    return f"with its own vocabulary the model has {figures[0]}; with the new one {figures[1]}"


def _sized(config: ScratchConfig) -> dict[str, Any]:
    """The settings that follow from the words of the text."""
    words, characters = _words_and_characters(config)
    size, given = shape_of_words(words), _overrides(config.model)
    if "hidden_size" in given:
        size = size._replace(width=config.model.hidden_size)
    sizes = {name: value for name, value in size.settings.items() if name not in given}
    vocabulary = config.vocabulary
    if not vocabulary.file and "size" not in vocabulary.model_fields_set:
        vocabulary = _of_size(vocabulary, size.pieces, characters)
    model = config.model.replace(**sizes)
    planned = sum(phase.steps * phase.batch_size * phase.length for phase in config.phases)
    passes = config.passes or (size.passes if config.minutes is None else MOST_PASSES)
    times = passes * words * _PIECES_A_WORD / planned
    phases = [phase.replace(steps=max(1, round(phase.steps * times))) for phase in config.phases]
    steps = sum(phase.steps for phase in phases)
    bound, named = "at most" if config.minutes else "about", "pass" if passes == 1 else "passes"
    say(
        f"about {three_digits(words)} words: {model.num_layers} layers of width {model.hidden_size}, "
        f"{vocabulary.file or f'{vocabulary.size:,} pieces'}, "
        f"{counted(steps, 'steps')} for {bound} {passes:g} {named}"
    )
    return {"model": model, "vocabulary": vocabulary, "phases": tuple(phases)}


def _of_size(vocabulary: VocabularyConfig, pieces: int, characters: int) -> VocabularyConfig:
    """`vocabulary` with `pieces` pieces, or more if the text's `characters` different characters need them."""
    least = 0 if vocabulary.kind == "byte_bpe" else _PIECES_A_CHARACTER * characters
    return vocabulary.replace(size=max(pieces, least))


def _words_and_characters(config: FittedConfig) -> tuple[float, int]:
    """The estimated number of words of the text, and the number of different characters that are pieces of its
    vocabulary, from a sample that the first host has read: how much is read depends on the clock."""
    words, occurrences = 0.0, Counter[str]()
    for source in open_corpus(config.data).parts:
        sample = read_sample(source)
        lines = [line for document in sample.documents for line in document]
        characters, count = sum(map(len, lines)), sum(len(line.split()) for line in lines)
        if characters > _CHARACTERS_A_WORD * count:
            count = characters // _UNSPACED
        words += count * sample.text_bytes / max(sample.kept_bytes, 1)
        occurrences.update("".join(lines))
    covered = config.vocabulary.character_coverage * occurrences.total()
    before = itertools.accumulate((count for _, count in occurrences.most_common()), initial=0)
    needed = sum(1 for _ in itertools.takewhile(lambda total: total < covered, before))
    wait_for_all("words counted")  # collectives of CPUs and GPUs give up waiting for a host that still reads
    words, needed = of_first((words, needed))
    return float(words), int(needed)


def _shortened(phases: Sequence[Phase], most: int) -> Iterator[Phase]:
    """The phases with sequences of at most `most` tokens."""
    for phase in phases:
        yield phase.replace(length=min(phase.length, most))


def _overrides(model: ModelConfig) -> dict[str, Any]:
    """The settings of the model that were given, in a file or as flags."""
    return {name: value for name, value in model if name in model.model_fields_set}


def _vocabulary(vocabulary: VocabularyConfig, initial: TrainedModel, of_file: Tokenizer | None) -> VocabularyConfig:
    """The settings of the vocabulary. A file with other pieces than the model's vocabulary replaces it, and so does a
    size or a kind that was set. `of_file`: the tokenizer of the file."""
    if not vocabulary.file and vocabulary.model_fields_set & {"size", "kind"}:
        return vocabulary.replace(exchange=True)
    if of_file and not vocabulary.exchange:
        pieces = initial.tokenizer.vocabulary.pieces
        if of_file.vocabulary.pieces[: len(pieces)] != pieces:
            say(f"{vocabulary.file} has other pieces than the model: it takes the place of the model's vocabulary")
            return vocabulary.replace(exchange=True)
    return vocabulary


def _model(
    settings: ModelConfig, theirs: ModelConfig, vocabulary: VocabularyConfig, of_file: Tokenizer | None
) -> ModelConfig:
    """The settings `theirs` of the initial model, replaced by those of `settings` that a file or flags set. `of_file`:
    the tokenizer of `vocabulary.file`."""
    changes = _overrides(settings)
    changes["compute_dtype"] = settings.compute_dtype  # an imported model has float32, the type of its files
    if vocabulary.exchange or vocabulary.file:
        changes["vocabulary_size"] = None
    if vocabulary.exchange:
        padding, relative = _padding_id(vocabulary, of_file), RELATIVES[theirs.model_type]
        fixed = relative.fixed.get("pad_token_id", padding)
        if fixed != padding:
            raise UsageError(
                f"padding is piece {padding} of the vocabulary, and every {relative.title} has piece {fixed}; give "
                f"{Setting('vocabulary.kind', 'byte_bpe')}, or keep the model's own vocabulary"
            )
        changes["word_rows"] = None
        if theirs.first_position:  # positions are numbered after the padding, as in RoBERTa
            changes["first_position"] = padding + 1
    return theirs.replace(**changes)


def _padding_id(vocabulary: VocabularyConfig, of_file: Tokenizer | None) -> int:
    if of_file:
        return of_file.vocabulary.pad_id
    return FAIRSEQ_PIECES.index("<pad>") if vocabulary.kind == "byte_bpe" else SPECIAL_PIECES.index(PAD)


def _within_minutes(config: RunConfig, minutes: float, most_rows: float, opened: OpenedModels) -> RunConfig:
    """`config` with a batch size and steps that take `minutes` on this machine, of at most `most_rows` rows in all."""

    def rows_in(row_seconds: float) -> float:
        return min(minutes * 60 / row_seconds, most_rows)

    size = expected_vocabulary_size(config, opened)
    batch_size, row_seconds = _batch_in_memory(config, size)
    largest = _LARGEST_BATCH if batch_size == config.phases[-1].batch_size else batch_size
    while rows_in(row_seconds) >= 2 * batch_size * _WANTED_STEPS and 2 * batch_size <= largest:
        of_larger = _row_seconds_in_memory(config, size, 2 * batch_size)
        if of_larger is None or of_larger > _SLOWER * row_seconds:  # no memory, or it doesn't fit into a CPU's caches
            break
        row_seconds, batch_size = of_larger, 2 * batch_size
    rows, planned = rows_in(row_seconds), sum(phase.steps for phase in config.phases)
    steps = [max(1, round(rows / batch_size * phase.steps / planned)) for phase in config.phases]
    phases = [
        phase.replace(batch_size=batch_size, steps=count) for phase, count in zip(config.phases, steps, strict=True)
    ]
    taken, enough = f"{minutes:g} minutes", rows * row_seconds / 60
    if enough < minutes:
        taken = f"{three_digits(enough)} of the {minutes:g} minutes, since more passes over so little text don't help"
    say(
        f"a step of {batch_size} rows takes {row_seconds * batch_size:.3g} s here; "
        f"{' and '.join(f'{count:,}' for count in steps)} steps take {taken}"
    )
    return config.replace(phases=tuple(phases))


def _batch_in_memory(config: RunConfig, vocabulary_size: int) -> tuple[int, float]:
    """The batch size of the last phase, or the first half, quarter, ... of it for which there is memory, and its
    measured seconds a row. Raises UsageError if the devices don't divide it, or have no memory for any."""
    mesh, accumulation = make_mesh(config.mesh), config.execution.accumulation
    batch_size, least = config.phases[-1].batch_size, accumulation * row_shards(mesh)
    check_batch_size(batch_size, accumulation, mesh)
    while (row_seconds := _row_seconds_in_memory(config, vocabulary_size, batch_size)) is None:
        if not (smaller := batch_size // 2 // least * least):
            raise UsageError(
                f"there is no memory for a step of {counted(batch_size, 'rows')}; give a smaller model or a smaller "
                f"{Setting('phases.0.length')}"
            )
        batch_size = smaller
    return batch_size, row_seconds


def _row_seconds_in_memory(config: RunConfig, vocabulary_size: int, batch_size: int) -> float | None:
    """What `_row_seconds` measures; None, with a line, if there is no memory for such a step."""
    try:
        return _row_seconds(config, vocabulary_size, batch_size)
    except jax.errors.JaxRuntimeError as error:
        if not is_out_of_memory(error) or jax.process_count() > 1:  # the other processes would wait
            raise
        say(f"no memory for batches of {batch_size} rows")
        return None


def _row_seconds(config: RunConfig, vocabulary_size: int, batch_size: int) -> float:
    """Measured seconds a row with `batch_size` rows a step: the mean over the phases, weighted by their steps."""
    phases = tuple(phase.replace(batch_size=batch_size) for phase in config.phases)
    config = config.replace(phases=phases)
    say(f"timing a step of {counted(batch_size, 'rows')}, to fit the training to the minutes")
    mesh = make_mesh(config.mesh)
    trainer = pretraining_trainer(config, mesh, vocabulary_size)
    state, total = trainer.initial_state(), 0.0
    for number, phase in enumerate(phases):
        step = trainer.train_step(number)
        batch = placed(trainer.objective.random_batch(config.ids_shape(number)), batch_sharding(mesh), batch_size)
        seconds = []
        for _ in range(_TIMED_STEPS + 1):  # the first compiles
            began = time.perf_counter()
            state, measured = step(state, batch)
            jax.block_until_ready(measured)
            seconds.append(time.perf_counter() - began)
        total += min(seconds[1:]) * phase.steps
    return float(of_first(total / sum(phase.steps for phase in phases) / batch_size))


def harms(config: RunConfig, shares: Sequence[SourceShare]) -> Iterator[str]:
    """Yields warnings about settings that can harm the model that the run begins with."""
    if not config.init:
        return
    rate = config.optimizer.peak_learning_rate
    if rate >= _HARSH * GENTLE_RATE:
        yield (
            f"{Setting('optimizer.peak_learning_rate', f'{rate:g}')} is {rate / GENTLE_RATE:.0f} times the rate that "
            f"suits a trained encoder, and can destroy it; about {GENTLE_RATE:g} is gentle"
        )
    epochs = max(share.epochs for share in shares)
    if epochs < _FEWEST_EPOCHS:
        text = "the text" if len(shares) == 1 else "any source, at most"
        yield (
            f"the training sees {epochs:.1%} of {text}: most of the text teaches the model nothing; train for longer, "
            "or give less text"
        )


def harm_of(start: Mapping[str, float | None], now: Mapping[str, float], done: float) -> str | None:
    """A message if training has made its initial model worse, judged by the evaluation `now` after the share `done` of
    the steps; None if it hasn't. `start`: the evaluation before the first step."""
    cosine, before = now.get(MEAN_COSINE, 0.0), start.get(MEAN_COSINE)
    if before is not None and before < _COLLAPSED <= cosine:
        return (
            f"the vectors of different texts have a mean cosine of {cosine:.3f}, {before:.3f} before: the encoder has "
            "collapsed; give a lower --optimizer.peak-learning-rate or a longer --optimizer.warmup"
        )
    # The loss of masked tokens where there is one, since ELECTRA's sum of losses rises as its generator learns.
    name = "loss" if MASKED_TOKENS.loss not in now or TEACHER_LOSS in now else MASKED_TOKENS.loss
    loss = start.get(name)
    if loss is not None and done >= _HALFWAY and now[name] > loss:
        return (
            f"the held-out loss is {now[name]:.3f}, {loss:.3f} before the first step: the model gets worse; give a "
            "lower --optimizer.peak-learning-rate or more steps"
        )
    return None
