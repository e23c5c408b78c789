"""Approaches for a text: fine-tune a trained model as it is; adapt it to the text first, with its own vocabulary or one
of the text; or train a model from scratch. The thresholds below order the approaches."""

import contextlib
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from bert_jax.config.data import DataConfig
from bert_jax.config.fitted import ScratchConfig
from bert_jax.config.language import language_code, language_name
from bert_jax.config.model import ModelConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import Phase
from bert_jax.model.sharding import make_mesh
from bert_jax.model.size import step_memory, train_flops
from bert_jax.pretraining.fitting import pieces_of_words, shape_of_words
from bert_jax.pretraining.sample_preparation import trained_tokenizer
from bert_jax.records.corpus import Document
from bert_jax.records.filters import are_same_language
from bert_jax.run.config_files import load_config
from bert_jax.run.trained_model import TrainedModel
from bert_jax.system.bucket import Place
from bert_jax.system.errors import command_line
from bert_jax.system.figures import Figures, three_digits
from bert_jax.system.progress import print_line, say
from bert_jax.text.merged_letters import merged_letters
from bert_jax.text.scripts import letters_by_script, script_of
from bert_jax.text.text_spans import plain
from bert_jax.text.word_splits import MOST_UNKNOWN_CHARACTERS, word_splits
from bert_jax.training.estimate import Estimate
from bert_jax.training.optimizer import make_optimizer

FEWEST_SCRIPT_PIECES = 100
"""A model counts as knowing the text's script if at least this many of its pieces have a letter of it; English BERT has
88 of Arabic, all single letters. An initial value, to be checked by the suite small_language."""
MOST_TIMES_PIECES = 1.5
"""A model's vocabulary should be exchanged if it needs more than this many times the pieces per word of one that is
trained on the text. An initial value, to be checked by the suite small_language."""
MOST_TIMES_UNADAPTED = 2.1
"""The same for budgets that are too small for adaptation (UNADAPTED_UP_TO): multilingual-e5-small has 2.09 times the
pieces in Ancient Greek, and tagged it best as it is. Higher ratios were not measured."""
FEWEST_WHOLE = 0.6
"""A model that doesn't name its languages is taken to know that of the text if at least this share of the words are one
piece. XLM-R's vocabulary has 30% to 79% in its languages, and 33% in Maltese, which isn't one of them; English BERT's
has 95% in English and 56% in French. An initial value, to be checked by the suite small_language."""
ADAPTED_UP_TO = {"language": math.inf, "script": math.inf, "neither": 0}
"""Words of text up to which a model is adapted before one is trained from scratch, by what the model knows of the text:
its language, its script alone, or neither. Initial values, to be checked by the suite small_language."""

UNADAPTED_UP_TO = 1e15
"""FLOPs of pretraining up to which a model whose vocabulary fits the text is best fine-tuned as it is: about an hour of
two cores. Three languages were measured with budgets of up to about 1e14, ten minutes of a core for each approach
(MEASURED); larger ones were not."""
MEASURED = (
    "without adaptation multilingual-e5-small tagged 92.9% of the words right in Maltese, 86.9% in Uyghur and 94.3% in "
    "Ancient Greek; after minutes of adaptation 92.0%, 86.9% and 93.4%"
)
"""What the order for small budgets rests on (docs/experiments.md, "Approaches for a small language")."""
_TAGGING_RATE = "3e-4"
"""Peak learning rate with which the models of MEASURED were fine-tuned."""

_ADAPT, _SCRATCH = "adapt", "scratch_small"
"""The configs of the approaches."""
_TRAINING = Phase(steps=10_000, length=128, batch_size=32)
"""The training whose time and memory are compared."""
_JUDGED_CHARACTERS = 2e6
"""Characters of the sample on which vocabularies are compared, about."""
_BEFORE_SCRATCH, _FROM_SCRATCH, _AFTER_SCRATCH, _LAST = range(4)
"""First part of an approach's sort key."""
_AS_IT_IS, _OWN, _OF_TEXT = "as it is", "own vocabulary", "vocabulary of the text"
_ORDERS = {
    (True, True): (_AS_IT_IS, _OWN, _OF_TEXT),
    (True, False): (_OF_TEXT, _AS_IT_IS, _OWN),
    (False, True): (_OWN, _OF_TEXT, _AS_IT_IS),
    (False, False): (_OF_TEXT, _OWN, _AS_IT_IS),
}
"""The approaches with one model, best first, by whether the budget is small and whether the model's vocabulary fits the
text."""
_KNOWN = {"language": "the language", "script": "the script alone", "neither": "neither language nor script"}
"""What a model knows, in words."""
_NOT_WRITTEN = "not advised, as its vocabulary lacks the script or characters of the text"
_MOST_README = 1 << 16
"""Bytes of a README.md in which its front matter is looked for."""
_LANGUAGES = re.compile(r"\A---\n(?:(?!---\n).*\n)*?language:(.*(?:\n\s*- .*)*)")
"""The languages in the front matter of a README.md, which is YAML."""


class Approach(Figures):
    """A way to get a model for the text."""

    rank: int
    """1 for the best approach."""
    description: str
    reason: str
    model: str
    """The model that it begins with; empty for one from scratch."""
    knowledge: str
    """What this model knows of the text."""
    estimate: Estimate | None
    """Time and memory of the same steps of pretraining for all approaches; None for an approach without pretraining."""
    command: str


class _Candidate(NamedTuple):
    """An approach that has no rank yet: approaches are ordered by `key`."""

    key: tuple[float, ...]
    description: str
    reason: str
    shape: ModelConfig | None
    """The model that is pretrained; None if none is."""
    words: tuple[object, ...]
    """Words of the command after bert-jax; those of a pretraining are followed by its directory and text."""
    model: str = ""
    knowledge: str = ""


class _Budget(NamedTuple):
    """The pretraining for which the approaches are ordered."""

    minutes: float | None
    """Minutes on this machine; None for a small budget."""
    unadapted: float
    """Minutes that UNADAPTED_UP_TO takes on this machine."""

    @property
    def is_small(self) -> bool:
        return self.minutes is None or self.minutes <= self.unadapted


class _Suitability(NamedTuple):
    """How well a trained model suits the text."""

    knows: str
    """What it knows of the text: a key of ADAPTED_UP_TO."""
    times: float
    """The pieces a word of its vocabulary, divided by those of a vocabulary of the text."""
    writes: bool
    """Whether its vocabulary has the script and nearly all characters of the text."""
    merges: bool
    """Whether its tokenizer doesn't tell letters of the text apart."""
    vocabulary: str
    """A text with its pieces a word."""
    knowledge: str
    """What it knows, and which letters it doesn't tell apart, in words with the figures."""

    def fits(self, budget: _Budget) -> bool:
        """Whether its vocabulary splits the text well enough to be kept for this budget."""
        most_times = MOST_TIMES_UNADAPTED if budget.is_small else MOST_TIMES_PIECES
        return self.writes and self.times <= most_times and not self.merges


class ApproachFinder:
    """Lists and orders the approaches for one text."""

    def __init__(self, documents: Sequence[Document], words: int, language: str | None, config: RunConfig):
        """`documents`: a sample. `words`: the number of words of the whole text. `language`: its code if it is known.
        `config`: the settings of the text. Its vocabulary isn't used: one is trained on the text with the settings of
        the config scratch_small, since the printed commands use that config."""
        say("Comparing the approaches for the text")
        config = config.replace(vocabulary=load_config(_SCRATCH, ScratchConfig).vocabulary)
        self._num_words, self._language, self._config = words, language, config
        characters = sum(len(line) for document in documents for line in document)
        judged = documents[:: max(math.ceil(characters / _JUDGED_CHARACTERS), 1)]
        self._lines = [plain(line) for document in judged for line in document]
        self._words = Counter(word for line in self._lines for word in line.split())
        self._script = next(iter(letters_by_script("".join(self._words)).most_common(1)), ("", 0))[0]
        tokenizer = trained_tokenizer(documents, config, pieces_of_words(words))
        self._size, self._pieces_a_word = len(tokenizer.vocabulary), word_splits(tokenizer, self._words).pieces_a_word
        self._vocabulary = ("--vocabulary.size", self._size)

    def approaches(
        self,
        models: Mapping[str, TrainedModel],
        tags: str | None,
        time_of_flop: Estimate,
        minutes: float | None = None,
    ) -> list[Approach]:
        """The best approach first: up to three for each model, and one from scratch, or two if `tags` names a treebank.
        `time_of_flop`: the time of one FLOP on this machine. `minutes`: those that a pretraining may take on this
        machine; None: a small budget, up to UNADAPTED_UP_TO."""
        budget = _Budget(minutes, 60 * UNADAPTED_UP_TO * (time_of_flop.hours or 0.0))
        found = [approach for name, model in models.items() for approach in self._of_model(name, model, tags, budget)]
        found += self._from_scratch(tags)
        data = self._config.data
        languages = [self._language] if self._language else data.languages if len(set(data.languages)) > 1 else []
        given = ["--workdir", "RUN", "--data.source", *data.source]
        given += ["--data.language", *languages] if languages else []
        given += ["--data.weights", *(f"{weight:g}" for weight in data.weights)] if data.weights else []
        given += ["--data.smoothing", f"{data.smoothing:g}"] if data.smoothing is not None else []
        given += ["--data.layout", data.layout] if data.layout != DataConfig().layout else []
        given += [] if minutes is None else ["--minutes", f"{minutes:g}"]
        return [
            Approach(
                rank=rank,
                description=each.description,
                reason=each.reason,
                model=each.model,
                knowledge=each.knowledge,
                estimate=self._estimate(each.shape, time_of_flop) if each.shape else None,
                command=command_line("bert-jax", *each.words, *(given if each.shape else ())),
            )
            for rank, each in enumerate(sorted(found, key=lambda each: each.key), 1)
        ]

    def _from_scratch(self, tags: str | None) -> Iterator[_Candidate]:
        scratch = load_config(_SCRATCH, ScratchConfig)
        shape = scratch.model.replace(**shape_of_words(self._num_words).settings, vocabulary_size=self._size)
        words, description = (
            ("pretrain", _SCRATCH, *self._vocabulary),
            f"from scratch with a vocabulary of {self._size:,} pieces",
        )
        reason = f"{self._pieces_a_word:.2f} pieces a word; {self._num_words:,} words of text"
        if tags:
            learned, flags = f"{reason}; it learns the tags of {tags}, too", (*words, "--objective.tags", tags)
            yield _Candidate((_FROM_SCRATCH, 0), f"{description} and tags", learned, shape, flags)
        yield _Candidate((_FROM_SCRATCH, 1), description, reason, shape, words)

    def _of_model(self, name: str, trained: TrainedModel, tags: str | None, budget: _Budget) -> Iterator[_Candidate]:
        """The approaches with one model: fine-tune it as it is, if its vocabulary has the characters of the text; adapt
        it with its own vocabulary; adapt it with one of the text."""
        suited = self._suitability(trained)
        fits = suited.fits(budget)
        group, order = _group(suited, budget, self._num_words), _ORDERS[budget.is_small, fits]
        own = suited.vocabulary if suited.writes else _NOT_WRITTEN
        among_models = (list(ADAPTED_UP_TO).index(suited.knows), suited.times)
        start = ("pretrain", _ADAPT, "--init", name)
        if suited.writes:
            yield _Candidate(
                (group, *among_models, order.index(_AS_IT_IS)),
                f"fine-tune {name} as it is, without adapting it",
                f"{own}; {_of_unadapted(fits, budget)}",
                None,
                ("finetune", "tags", "--init", name, "--workdir", "RUN", *_rows(tags)),
                name,
                suited.knowledge,
            )
        yield _Candidate(
            (group if suited.writes else _LAST, *among_models, order.index(_OWN)),
            f"adapt {name} with its vocabulary",
            own,
            trained.config,
            start,
            name,
            suited.knowledge,
        )
        in_place_of = f" in place of {suited.times * self._pieces_a_word:.2f}" if suited.writes else ""
        yield _Candidate(
            (group, *among_models, order.index(_OF_TEXT)),
            f"adapt {name} with a vocabulary of {self._size:,} pieces, trained on the text",
            f"{self._pieces_a_word:.2f} pieces a word{in_place_of}",
            trained.config.replace(vocabulary_size=self._size, word_rows=None),
            (*start, *self._vocabulary),
            name,
            suited.knowledge,
        )

    def _suitability(self, trained: TrainedModel) -> _Suitability:
        tokenizer, pieces = trained.tokenizer, range(len(trained.tokenizer.vocabulary))
        splits = word_splits(tokenizer, self._words)
        of_script = sum(
            any(script_of(each) == self._script for each in tokenizer.piece_text(piece)) for piece in pieces
        )
        has_script = of_script >= FEWEST_SCRIPT_PIECES
        is_included, inclusion = self._inclusion(trained, splits.whole)
        knows = "neither" if not has_script else "language" if is_included else "script"
        times, merged = splits.pieces_a_word / self._pieces_a_word, merged_letters(self._lines, tokenizer.cleaned)
        return _Suitability(
            knows=knows,
            times=times,
            writes=has_script and splits.unknown <= MOST_UNKNOWN_CHARACTERS,
            merges=bool(merged),
            vocabulary=f"{splits.pieces_a_word:.2f} pieces a word, {times:.2f} times those of a vocabulary of the text",
            knowledge=(
                f"it knows {_KNOWN[knows]} ({of_script:,} of its {len(pieces):,} pieces in {self._script.title()}; "
                f"{inclusion}); {splits.unknown:.1%} of the characters unknown to its vocabulary"
                f"{f'; {merged}' if merged else ''}"
            ),
        )

    def _inclusion(self, trained: TrainedModel, whole: float) -> tuple[bool, str]:
        """Whether the model knows the language of the text, and in words how that is known. `whole`: the share of the
        words that are one piece."""
        codes, known_by = _stated_languages(trained)
        is_included, name = whole >= FEWEST_WHOLE, "the text's language"
        if self._language:
            name = language_name(self._language)
            is_included = any(are_same_language(code, self._language) for code in codes) if codes else is_included
        if not (codes and self._language):
            known = f"a language counts as known from {FEWEST_WHOLE:.0%} on"
            known_by = f"by an estimate: {whole:.0%} of the words are one piece, and {known}"
        return is_included, f"{name} is {'' if is_included else 'not '}among its languages, {known_by}"

    def _estimate(self, shape: ModelConfig, time_of_flop: Estimate) -> Estimate:
        config, phase = self._config, _TRAINING
        predictions, mesh = config.slots(phase.length), make_mesh(config.mesh)
        optimizer = make_optimizer(config.optimizer)
        memory = step_memory(config.execution, shape, mesh, phase, optimizer, predictions=predictions, packed=1)
        flops = float(phase.steps * phase.batch_size) * train_flops(shape, phase.length, predictions)
        return Estimate(
            work=f"{phase.steps:,} steps of {phase.batch_size} rows of {phase.length} tokens on this machine",
            flops=flops,
            memory=memory.total,
            hours=flops * (time_of_flop.hours or 0.0),
            basis=f"formula and {time_of_flop.basis}",
        )


def _group(suited: _Suitability, budget: _Budget, words: int) -> int:
    """Whether the approaches with a model rank before or after those from scratch, for a text of so many `words`."""
    is_strange = budget.is_small and suited.knows == "script" and not suited.fits(budget)
    return _AFTER_SCRATCH if is_strange or words > ADAPTED_UP_TO[suited.knows] else _BEFORE_SCRATCH


def _of_unadapted(fits: bool, budget: _Budget) -> str:
    """The reason for the rank of a model that is fine-tuned as it is."""
    limit = f"about {three_digits(budget.unadapted)} minutes of pretraining on this machine"
    if not fits:
        return "its vocabulary doesn't fit the text"
    return f"best for budgets up to {limit}{'' if budget.is_small else '; larger ones were not measured'}"


def _rows(tags: str | None) -> tuple[object, ...]:
    """Flags of a fine-tuning on a treebank, with a tenth of it as dev rows, or on ROWS."""
    rows = ("--task.train", tags, "--task.dev", "10%", "--task.label", "upos") if tags else ("--task.train", "ROWS")
    return (*rows, "--optimizer.peak-learning-rate", _TAGGING_RATE)


def _stated_languages(trained: TrainedModel) -> tuple[list[str], str]:
    """Codes of the languages that a model was trained on, and by what they are known: the settings of its run, if that
    began at random, or the README.md in its folder. [] if neither names them."""
    settings, readme = trained.provenance.settings, trained.path / "README.md"
    if isinstance(settings, RunConfig) and not settings.init and not trained.provenance.imported_from:
        return [*settings.data.languages], "by --data.language of its run"
    stated = _LANGUAGES.match(_beginning(readme)) if readme.is_file() else None
    codes = []
    for name in re.findall(r"[A-Za-z][\w-]*", stated[1] if stated else ""):
        with contextlib.suppress(ValueError):  # it isn't a language's, such as "multilingual"
            codes.append(language_code(name))
    return codes, "by its README.md"


def _beginning(readme: Place) -> str:
    with readme.open("rb") as file:
        return file.read(_MOST_README).decode("utf-8", "replace").replace("\r\n", "\n")


def print_approaches(approaches: Sequence[Approach]) -> None:
    """Prints each approach, and below it its reason, its time and memory, and its command; then what each model knows
    of the text, and what was measured of models as they are."""
    work = next(approach.estimate.work for approach in approaches if approach.estimate)
    print_line(f"Approaches for this text, the best first; time and memory of {work}")
    for approach in approaches:
        figures = approach.estimate.line()[1] if approach.estimate else "no pretraining"
        lines = f"{approach.rank}. {approach.description}", approach.reason, figures, approach.command
        print_line("\n   ".join(lines))
    if models := {approach.model: approach.knowledge for approach in approaches if approach.model}:
        print_line("What the models know of the text")
    for model, knowledge in models.items():
        print_line(f"- {model}: {knowledge}")
    if any(approach.estimate is None for approach in approaches):
        print_line(f"Measured, with minutes of training (docs/experiments.md): {MEASURED}.")
