"""Prepares a sample of a source, and estimates the figures of the whole: sequences, padding, pieces, time."""

import math
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import computed_field

from bert_jax.config.data import DataConfig
from bert_jax.config.operation import PreparationConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.wording import counted
from bert_jax.instances.held_out import training_documents
from bert_jax.instances.preparation import prepare
from bert_jax.instances.prepared_data import TRAIN, PreparedData, Recipe
from bert_jax.pretraining.vocabulary import existing_tokenizer, learned_tokenizer
from bert_jax.records.corpus import Document
from bert_jax.records.sample import SAMPLE_BYTES, SpreadSample, sample_mixture
from bert_jax.run.opened_models import OpenedModels
from bert_jax.system import figures
from bert_jax.system.figures import Figures
from bert_jax.system.progress import duration, say
from bert_jax.system.workers import available_cores
from bert_jax.text.merged_letters import merged_letters
from bert_jax.text.text_spans import plain
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.vocabulary import VocabularySizeError
from bert_jax.training.estimate import Estimate

LENGTHS = (128, 512)
"""Lengths of sequences that are tried besides those of the config, in tokens."""
_DOCUMENTS, _MOST_PASSES = 8_000, 8
"""A sample with fewer than _DOCUMENTS documents is cut into sequences in several passes, at most _MOST_PASSES. Each
pass draws which documents give short sequences, and a single draw among a few thousand documents is a poor estimate. A
text that is sampled as a whole is cut in as many passes as in the preparation."""
_ATTEMPTS = 4
"""Most vocabulary sizes that are tried: the wanted one, then those that the error for the last one proposes."""


class Cut(Figures):
    """The sequences that a text gives at one length."""

    length: int
    packed: bool
    sequences: int
    rows: int
    tokens: int
    """Tokens in sequences, with special tokens and without padding."""
    padding: figures.Percentage
    """Share of the positions of all rows that hold no token."""
    random_pairs: Annotated[float, figures.Unit("{:.1%}".format), "random second segments"]
    """Share of the sequences whose second segment doesn't follow the first; next sentence prediction wants a half."""


class Pieces(Figures):
    """How a vocabulary splits the text."""

    vocabulary: str
    pieces: int
    pieces_a_word: Annotated[float, figures.Unit("{:.3f}".format), "pieces a word"]
    """Mean number of pieces of a word. Words are split at blanks, as by wc."""
    unknown: Annotated[float, figures.Unit("{:.3%}".format), "unknown pieces"]


class PreparationTime(Figures):
    """The preparation of a source: its parts, and its time."""

    chunks: int
    shuffled_bytes: Annotated[figures.Traffic, "text sent to workers"]
    """Bytes of text that the reading process sends to the workers. Workers of Spark read their files themselves, twice.
    """
    shard_bytes: Annotated[figures.Traffic, "written"]
    """Bytes of the shards of the config's lengths."""
    vocabulary_seconds: Annotated[
        float, figures.Unit(lambda seconds: duration(seconds) if seconds else "given"), "vocabulary"
    ]
    """Time to read the text once and to train the vocabulary; 0 if a vocabulary is given."""
    work_seconds: Annotated[figures.Seconds, "sequences, one core"]
    """Time to read, split, encode and write the text on one core of this machine."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def seconds_here(self) -> Annotated[figures.Seconds, "both, on this machine's cores"]:
        """Time of vocabulary and sequences on all cores that the command may use."""
        return 3600 * (self.with_workers(available_cores()).hours or 0.0)

    def with_workers(self, workers: int) -> Estimate:
        """Time of vocabulary and sequences with `workers` workers, each as fast as a core of this machine.

        One process trains the vocabulary. For the sequences, at most as many workers are busy as there are chunks.
        """
        seconds = self.vocabulary_seconds + self.work_seconds / min(workers, self.chunks)
        return Estimate(work=counted(workers, "workers"), hours=seconds / 3600, basis="a trial on a sample")

    def __add__(self, other: "PreparationTime") -> "PreparationTime":
        return type(self)(**{name: getattr(self, name) + getattr(other, name) for name in type(self).model_fields})


@dataclass(frozen=True)
class SamplePreparation:
    """Figures of the whole source, estimated from the preparation of a sample."""

    sentences: int
    words: int
    """Number of words, split at blanks."""
    tokens: int
    """Number of pieces, without special tokens."""
    cuts: list[Cut]
    """The sequences at the lengths of the config and at LENGTHS, in rows of one sequence each and packed."""
    pieces: list[Pieces]
    """Figures of the given vocabulary, if there is one, and of a vocabulary trained on the sample."""
    vocabulary_size: int | None
    """The size of the trained vocabulary, if it isn't the configured size."""
    merged: str | None
    """A description of the words that the cleaning of the given vocabulary, or else of the trained one, changes apart
    from case (see `merged_letters`); None if it changes few."""
    time: PreparationTime


class _Shape(NamedTuple):
    """How text is cut into sequences."""

    length: int
    packed: bool


def prepare_sample(
    sample: SpreadSample, config: RunConfig, opened: OpenedModels, common: Tokenizer | None = None
) -> SamplePreparation:
    """Prepares a sample of the only source of `config` as `prepare` does, in a temporary folder.

    `common`: the vocabulary of a mixture to which the source belongs, whose training isn't a part of the source's time;
    without it one is trained on the sample.

    Raises UsageError if the vocabulary that the config names can't be read, or if there is too little text for a
    vocabulary or a sequence.
    """
    data, passes = config.data, config.data.dupe_factor
    # Bytes of the source's text for each byte of the sample; `scale` leaves out what the source would hold out.
    enlargement = scale = sample.text_bytes / sample.kept_bytes
    # A sample's documents don't show whether some documents or the ends of all would be held out.
    if not sample.has_all:
        scale, data = enlargement * (1 - data.held_out), data.replace(held_out=0.0)
        passes = min(math.ceil(_DOCUMENTS / len(sample.documents)), _MOST_PASSES)
    given, _ = existing_tokenizer(config, opened)
    size = len(given.vocabulary) if given else config.vocabulary.size
    began = time.perf_counter()
    trained = common or trained_tokenizer(sample.documents, config.replace(data=data), size)
    seconds = time.perf_counter() - began
    vocabulary_seconds = 0.0 if common else _of_all_text(seconds, sample.kept_bytes, sample.text_bytes, config)
    lines = [plain(line) for document in sample.documents for line in document]
    shapes = list(dict.fromkeys(_Shape(phase.length, data.packed) for phase in config.phases))
    lengths = {*LENGTHS, *(shape.length for shape in shapes)}
    # Packing takes long, and each pass fills rows to nearly the same share.
    passes_of = {
        _Shape(length, packed): 1 if packed else passes for length in sorted(lengths) for packed in (False, True)
    }
    prepared = _prepared(sample, config, data, given or trained, passes_of)
    first = prepared[shapes[0]].train
    pieces = [_pieces("given" if given else "trained on this text", given or trained, prepared[shapes[0]])]
    if given:
        (prepared_by_trained,) = _prepared(sample, config, data, trained, {shapes[0]: 1}).values()
        pieces.append(_pieces("trained on this text", trained, prepared_by_trained))
    work = [_Work.of(prepared[shape], config.data.dupe_factor / passes_of[shape]) for shape in shapes]
    return SamplePreparation(
        sentences=round(scale * first.sentences),
        words=round(sum(len(line.split()) for line in lines) * enlargement),
        tokens=round(scale * first.tokens),
        cuts=[
            _cut(
                shape, prepared[shape], prepared[_Shape(shape.length, False)], scale * config.data.dupe_factor / passes
            )
            for shape in passes_of
        ],
        pieces=pieces,
        vocabulary_size=len(trained.vocabulary) if not given and len(trained.vocabulary) != size else None,
        merged=merged_letters(lines, (given or trained).cleaned),
        time=_time(sample, data, scale, work, None if given else vocabulary_seconds),
    )


class _Work(NamedTuple):
    """What the sequences of one shape take, for the sample."""

    text_seconds: float
    """Time to split and encode the text, which all shapes share."""
    cutting_seconds: float
    shard_bytes: float

    @classmethod
    def of(cls, prepared: PreparedData, times: float) -> "_Work":
        """`times`: the passes of the training over the text for each pass of the preparation."""
        shards = sum(shard.size for name, shard in prepared.shards.items() if name.startswith(TRAIN))
        return cls(prepared.text_seconds, times * prepared.cutting_seconds, times * shards)


def _time(
    sample: SpreadSample, data: DataConfig, scale: float, work: Sequence[_Work], vocabulary_seconds: float | None
) -> PreparationTime:
    """The figures of preparing the whole source, whose training text is `scale` times that of the sample.

    `work`: for each shape of the config. `vocabulary_seconds`: the time to train a vocabulary after the text is
    read; None: a vocabulary is given.
    """
    reading_seconds = sample.text_bytes * sample.seconds / sample.bytes
    return PreparationTime(
        chunks=max(round(sample.text_bytes / data.chunk_bytes), 1),
        shuffled_bytes=round(sample.text_bytes),
        shard_bytes=round(scale * sum(each.shard_bytes for each in work)),
        vocabulary_seconds=0.0 if vocabulary_seconds is None else reading_seconds + vocabulary_seconds,
        work_seconds=reading_seconds + scale * (work[0].text_seconds + sum(each.cutting_seconds for each in work)),
    )


class CommonVocabulary(NamedTuple):
    """A vocabulary trained on samples of all sources of a mixture."""

    tokenizer: Tokenizer
    seconds: float
    """Estimated time to train it on the text of all sources, without reading it."""

    @property
    def time(self) -> PreparationTime:
        """Its part of the preparation."""
        return PreparationTime(
            chunks=0, shuffled_bytes=0, shard_bytes=0, vocabulary_seconds=self.seconds, work_seconds=0.0
        )


def common_vocabulary(
    config: RunConfig, samples: Sequence[SpreadSample], opened: OpenedModels
) -> CommonVocabulary | None:
    """A vocabulary trained on a sample of each source of `config`, with each source's share of the text; None if there
    is one source alone, or if the config names a vocabulary. Raises what `prepare_sample` does."""
    if len(samples) == 1 or any(existing_tokenizer(config, opened)):
        return None
    say("Training a vocabulary on all samples")
    shares = config.data.shares([sample.text_bytes for sample in samples])
    documents = [(number, each) for number, sample in enumerate(samples) for each in sample.documents]
    mixed = sample_mixture(documents, len(samples), lambda sizes: shares[: len(sizes)], SAMPLE_BYTES)
    began = time.perf_counter()
    tokenizer = trained_tokenizer([document for _, document in mixed.documents], config, config.vocabulary.size)
    seconds = time.perf_counter() - began
    kept, text = (sum(getattr(sample, name) for sample in samples) for name in ("kept_bytes", "text_bytes"))
    return CommonVocabulary(tokenizer, _of_all_text(seconds, min(kept, SAMPLE_BYTES), text, config))


def _of_all_text(seconds: float, sample_bytes: float, text_bytes: float, config: RunConfig) -> float:
    """The time to train a vocabulary on a text, if its training on a sample took `seconds`."""
    return seconds / sample_bytes * min(text_bytes, config.vocabulary.sample_megabytes * 1e6)


def trained_tokenizer(documents: Iterable[Document], config: RunConfig, size: int) -> Tokenizer:
    """A vocabulary trained on a sample, with `size` pieces or another number that the text can give. Raises
    VocabularySizeError if none is found."""
    kept = training_documents(((0, document) for document in documents), config.data)
    lines = [plain(line) for _, document in kept for line in document]
    for _ in range(_ATTEMPTS):
        try:
            return learned_tokenizer(lines, config.vocabulary.replace(size=size), config.data.languages)
        except VocabularySizeError as error:
            refusal, size = error, error.size
    raise refusal


def _prepared(
    sample: SpreadSample, config: RunConfig, data: DataConfig, tokenizer: Tokenizer, passes_of: dict[_Shape, int]
) -> dict[_Shape, PreparedData]:
    """The data set of each shape, from the number of passes over the sample that `passes_of` gives. The files of the
    data sets are deleted."""
    chunks = math.ceil(sample.kept_bytes / data.chunk_bytes)
    settings = PreparationConfig(processes=min(config.preparation.processes or available_cores(), chunks))
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(directory := Path(folder, "tokenizer"))
        recipes: dict[Path, Recipe] = {}
        for number, (shape, passes) in enumerate(passes_of.items()):
            cut = data.replace(packed=shape.packed, dupe_factor=passes)
            recipes[Path(folder, str(number))] = Recipe(
                cut, shape.length, config.seed, directory, config.objective.pair
            )
        return dict(zip(passes_of, prepare(sample.as_corpus(data.chunk_bytes), recipes, settings), strict=True))


def _cut(shape: _Shape, prepared: PreparedData, apart: PreparedData, scale: float) -> Cut:
    """The sequences of a text that is `scale` times as large. `apart`: the same sequences, one in each row."""
    seen, fill = apart.train, prepared.train.fill(shape.length)
    return Cut(
        length=shape.length,
        packed=shape.packed,
        sequences=round(scale * seen.instances),
        rows=round(scale * seen.instance_tokens / (fill * shape.length)),
        tokens=round(scale * seen.instance_tokens),
        padding=1 - fill,
        random_pairs=seen.random_share,
    )


def _pieces(name: str, tokenizer: Tokenizer, prepared: PreparedData) -> Pieces:
    seen = prepared.train
    return Pieces(
        vocabulary=name,
        pieces=len(tokenizer.vocabulary),
        pieces_a_word=seen.tokens / max(seen.words, 1),
        unknown=seen.unknown_share,
    )
