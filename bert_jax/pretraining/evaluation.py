"""Evaluates a model, and a baseline that knows only frequencies, on held-out documents."""

import contextlib
import itertools
import math
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config.objective import HELD_OUT_MASKS, Units
from bert_jax.config.operation import MeshConfig
from bert_jax.config.prediction import TAGS
from bert_jax.config.run import RunConfig
from bert_jax.instances.prepared_data import HELD_OUT, TRAIN, PreparedData
from bert_jax.instances.shards import InstanceSource
from bert_jax.instances.treebank import TaggedSource, Treebank
from bert_jax.model.bert import Parameters
from bert_jax.model.embeddings import vocabulary_size
from bert_jax.model.kernels.platform import for_inference
from bert_jax.model.sharding import batch_sharding, local_rows, make_mesh, on_mesh, placed, row_shards, tree_shardings
from bert_jax.pretraining.dataset import prepare_other, prepared_for, treebanks_of
from bert_jax.pretraining.objective import PretrainingTrainer, pretraining_trainer
from bert_jax.run.measurement import Means
from bert_jax.run.recorded_config import is_elsewhere
from bert_jax.run.results import Results
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.trained_model import TrainedModel
from bert_jax.system.content import content_hash
from bert_jax.system.errors import Setting, UsageError
from bert_jax.system.progress import say, warn
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.training.batch import Batch, read_ahead
from bert_jax.training.compiled_programs import keep_compiled_programs
from bert_jax.training.input import BatchSource, InOrder
from bert_jax.training.step import example_keys, make_evaluation_step

MEAN_COSINE = "mean_cosine"
"""Mean cosine of the mean vectors of different held-out texts; 1 if the encoder no longer tells texts apart."""
BITS = "bits_per_character"
"""The mean loss of a predicted token in bits, times the text's number of tokens for each character that isn't a space.
It is comparable between vocabularies for the same text, objective and share of predicted tokens."""


class HeldOut:
    """The sequences of one prepared set for evaluation, with fixed masks. Rows of weight 0 fill up the last batches.

    Several languages are measured one by one. The total is their mean, weighted by the shares of training; without
    shares it is the mean over all sequences.
    """

    def __init__(
        self,
        trainer: PretrainingTrainer,
        phase: int,
        data: PreparedData,
        split: str,
        max_sequences: int | None,
        treebank: Treebank | None = None,
    ):
        """The sequences of `split` for evaluation in phase number `phase`. `max_sequences`: about how many, divided
        evenly among the sources if several languages are measured; None: all. The held-out sentences of `treebank` are
        measured, too."""
        config, languages = trainer.config, trainer.config.data.languages
        instances = InstanceSource(data, split, config.input.damaged_records)
        self._objective, self._seed = trainer.objective.in_phase(phase), config.seed
        self._sharding = batch_sharding(trainer.mesh)
        largest = max(each.batch_size for each in config.phases if each.length == data.length)
        rows = row_shards(trainer.mesh)
        self._batch_size = -(-largest // rows) * rows
        self._step = jax.jit(on_mesh(trainer.mesh, make_evaluation_step(self._objective, seed=self._seed)))
        self._cosine = None
        """Computes the mean cosine of a batch's texts; None unless the run watches how its initial model changes."""
        if config.init and config.evaluation.watch and not config.model.discriminator:
            self._cosine = jax.jit(on_mesh(trainer.mesh, self._objective.mean_cosine))
        counted = data.held_out if split == HELD_OUT else data.train
        # The factor from a loss in nats a token to bits a character.
        self._bits_a_character = counted.tokens / counted.characters / math.log(2) if counted.characters else None

        self._several = split == HELD_OUT and len({*languages}) > 1
        self._shares = _shares_of_languages(config, phase, data) if self._several else {}
        """The share of each language in training; empty without shares."""
        if self._several:
            orders = _orders(languages, data.records[split], max_sequences)
            if lacking := {*languages} - {language for language, _ in orders}:
                names = ", ".join(language for language in dict.fromkeys(languages) if language in lacking)
                warn(f"nothing is held out of {names}, and nothing is measured there; give more text")
        else:
            orders = _orders(languages[:1], [len(instances)], max_sequences)
        self.sequences = sum(order.reads for _, order in orders)
        self._parts = [(language, self._batches(instances, order, data.length)) for language, order in orders]
        """Pairs of a language and the batches of one of its sources."""
        self._tagged: BatchSource | None = None
        """The held-out sentences of the treebank."""
        if treebank and treebank.held_out.sequences:
            self._guessed_tags = treebank.guessed_accuracy
            tagged = TaggedSource(data, split, treebank.held_out, config.input.damaged_records)
            order = InOrder(len(tagged.tagged), len(tagged.tagged), tagged.tagged.start)
            self._tagged = self._batches(tagged, order, data.length)
        self.measured_on = self._measured_on(config, data, split)
        """What the measurements depend on besides the model: measurements with equal values here can be compared."""

    def _measured_on(self, config: RunConfig, data: PreparedData, split: str) -> dict[str, Any]:
        return {
            "records": content_hash(sorted(file for file in data.shards.items() if file[0].startswith(f"{split}-"))),
            "sequences": self.sequences,
            "length": data.length,
            "vocabulary_size": vocabulary_size(self._objective.model),
            "seed": config.seed,
            "shares": self._shares,
            **config.objective.model_dump(mode="json", include={"predict", *HELD_OUT_MASKS}),
        }

    def _batches(self, instances: InstanceSource, order: InOrder, length: int) -> BatchSource:
        return BatchSource(
            instances,
            order,
            batch_size=self._batch_size,
            length=length,
            vocabulary_size=vocabulary_size(self._objective.model),
            num_batches=-(-order.reads // self._batch_size),
            rows=local_rows(self._sharding, self._batch_size),
        )

    def evaluate(self, params: Parameters, between: Callable[[], None] = lambda: None) -> Results:
        """The loss and all measurements; with several languages also those of each language, such as `hi/mlm_loss`.

        `between` is called before each batch, and may raise to end the evaluation.
        """
        whole, parts = self._means(lambda batch: self._step(params, batch), between)
        if self._tagged:
            _, parts_of_tags = self._means(lambda batch: self._step(params, batch), between, [("", self._tagged)])
            tags = _mean(parts_of_tags[""])
            whole |= {name: tags[name] for name in (TAGS.loss, TAGS.accuracy)}
        values = self._with_loss(whole)
        if self._bits_a_character and not self._several:
            values[BITS] = whole[self._objective.token_question.loss] * self._bits_a_character
        if self._cosine:
            first = (next(iter(read_ahead(source))) for _, source in self._parts)
            cosines = [self._cosine(params, placed(batch, self._sharding, self._batch_size)) for batch in first]
            values[MEAN_COSINE] = _mean([{MEAN_COSINE: cosine} for cosine in jax.device_get(cosines)])[MEAN_COSINE]
        if self._several:
            for language, means in parts.items():
                values |= {f"{language}/{name}": value for name, value in self._with_loss(_mean(means)).items()}
        return Results.model_validate(values)

    def _with_loss(self, values: dict[str, float]) -> dict[str, float]:
        """`values` with the loss, the weighted sum over the questions that were measured. Tags aren't measured for a
        single language, nor without the treebank."""
        losses = self._objective.losses.items()
        return {"loss": sum(weight * values[name] for name, weight in losses if name in values)} | values

    def baseline(self, data: PreparedData, measured: dict[str, float]) -> tuple[dict[str, float], dict[str, int]]:
        """The measurements of the objective's baseline, which knows the frequencies of pieces in `data` and of labels;
        and counts by name.

        With several languages, the measurements include the baseline of each language, and the counts are each
        language's numbers of sequences and of predicted tokens. Otherwise there are no counts. `measured`: the
        measurements of `evaluate`, from which the frequency of replaced tokens comes.
        """
        piece_counts = data.piece_counts + 1
        log_share = jnp.log(piece_counts / np.sum(piece_counts))

        @jax.jit
        def step(batch: Batch) -> Means:
            targets = self._objective.targets(batch, example_keys(self._seed, "evaluation", 0, batch.ordinal))
            return self._objective.guess(batch, targets, log_share)

        whole, parts = self._means(step)
        values, counts = self._objective.baseline(whole, measured), {}
        if self._tagged:
            values[TAGS.accuracy] = self._guessed_tags
        for language, means in parts.items() if self._several else ():
            own = {name: measured.get(f"{language}/{name}", value) for name, value in measured.items()}
            of_language = self._objective.baseline(_mean(means), own)
            values |= {f"{language}/{name}": value for name, value in of_language.items()}
            # "random" is the mean over pairs' labels, which counts each sequence once.
            for name, mean in (("sequences", "random"), ("predicted_tokens", self._objective.token_question.loss)):
                counts[f"{language}/{name}"] = round(sum(float(part[mean].count) for part in means))
        return values, counts

    def _means(
        self,
        step: Callable[[Any], Means],
        between: Callable[[], None] = lambda: None,
        sources: Sequence[tuple[str, BatchSource]] | None = None,
    ) -> tuple[dict[str, float], dict[str, list[Means]]]:
        """The means over all batches, weighted by the languages' shares, and the means of each language's batches.
        `sources`: pairs of a language and its batches; None: those of the text."""
        parts: dict[str, list[Means]] = {}
        for language, source in self._parts if sources is None else sources:
            for batch in read_ahead(source):
                between()
                means = jax.device_get(step(placed(batch, self._sharding, self._batch_size)))
                parts.setdefault(language, []).append(means)
        whole = _mean([means for of_language in parts.values() for means in of_language])
        if drawn := sum(self._shares.get(language, 0.0) for language in parts):
            by_language = {language: _mean(means) for language, means in parts.items()}
            for name in whole:
                weighted = (self._shares[language] * means[name] for language, means in by_language.items())
                whole[name] = sum(weighted) / drawn
        return whole, parts


def _orders(languages: Sequence[str], counts: Sequence[int], most: int | None) -> list[tuple[str, InOrder]]:
    """The language of each source with records, and the order in which its records are read. `counts`: the number of
    records of each source. `most`: about how many are read, divided evenly among the sources; None: all."""
    each = max(counts) if most is None else -(-most // max(1, sum(map(bool, counts))))
    sources = zip(languages, counts, itertools.accumulate(counts), strict=True)
    return [(language, InOrder(count, min(count, each), end - count)) for language, count, end in sources if count]


def _shares_of_languages(config: RunConfig, phase: int, data: PreparedData) -> dict[str, float]:
    """The share of each language in the training of phase number `phase`; empty without shares."""
    of_sources, shares = config.shares(phase, data.sources), dict[str, float]()
    if of_sources:
        for language, share in zip(config.data.languages, of_sources, strict=True):
            shares[language] = shares.get(language, 0.0) + share
    return shares


def held_out_sequences(
    trainer: PretrainingTrainer, phase: int, data: PreparedData, treebank: Treebank | None = None
) -> HeldOut | None:
    """The held-out sequences of `data` and of `treebank`, for evaluation in phase number `phase`. None, with a printed
    line, if nothing of `data` is held out."""
    held_out = HeldOut(trainer, phase, data, HELD_OUT, trainer.config.evaluation.max_sequences, treebank)
    if not held_out.sequences:
        say("no held-out documents: nothing will be evaluated; raise --data.held-out or give more text")
        return None
    return held_out


def evaluate_run(
    run: RunDirectory,
    source: str | None = None,
    language: str | None = None,
    step: int | None = None,
    average: int | None = None,
    words: str | None = None,
    dtype: str | None = None,
    units: Units | None = None,
) -> Results:
    """Evaluates the newest checkpoint of `run`; returns the same measurements as pretraining. Changes nothing in the
    run.

    By default the model is evaluated on the run's held-out documents, and on the held-out sentences of the treebank
    `objective.tags` if its file is on this machine and unchanged. With `source`, written as in `data.source`, it is
    evaluated on all documents of that source instead. They are prepared in a temporary directory with the run's
    settings, at the length of the checkpoint's phase.

    `language`: the language of `source`; None: the run's first. `step` and `average`: the parameters (see
    `TrainedModel.load`); the result names the steps of an average as `averaged_steps`. `words`: the run's `data.words`,
    to be given with `source` if it is a Python function, because a module that only config.json names isn't imported.
    `dtype`: the type of the matrix products (see `for_inference`). `units`: units of masking; None: the run's.

    Raises UsageError if the run has no checkpoint, no such step, no data or no masked-language head, if `words` isn't
    the run's, if `source` has too little text, or if the run masks no tokens or its data lack the marks of `units`.
    """
    keep_compiled_programs()
    config, tokenizer = _evaluated_config(run, words, dtype, units), run.files.tokenizer
    # Uses this machine's devices, because the run may come from another machine.
    trainer = pretraining_trainer(config, make_mesh(MeshConfig()), tokenizer.vocabulary)
    treebanks = _treebanks(config, tokenizer, source)
    trained, params = _evaluated_model(run, trainer, bool(treebanks), step, average)
    phase = config.phase_of(trained.step)  # sets the base of rotary positions, too
    length = config.phases[phase].length
    with contextlib.ExitStack() as stack:
        if source:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            prepared = prepare_other(config, run, length, source, language, folder)
            sequences: HeldOut | None = HeldOut(trainer, phase, prepared, TRAIN, max_sequences=None)
        else:
            prepared = prepared_for(config, run, length)
            sequences = held_out_sequences(trainer, phase, prepared, treebanks.get(length))
        results = measurements(trainer, trained.step, params, prepared, sequences)
    if average:
        results = results.updated({"averaged_steps": list(trained.provenance.steps)})
    # The vocabulary was made for the run's own text and may lack the pieces of another.
    return results.updated({"unknown_share": prepared.train.unknown_share}) if source else results


def _evaluated_config(run: RunDirectory, words: str | None, dtype: str | None, units: Units | None) -> RunConfig:
    """The settings of `run` for an evaluation; see `evaluate_run`."""
    config = run.files.pretraining_config
    if words is not None and words != config.data.words:
        there = f"with {config.data.words}; give that" if config.data.words else "without such a program; leave it out"
        raise UsageError(f"words={words} names a program that finds words, and {run.path} was prepared {there}")
    if units and not config.objective.chooses_units:
        raise UsageError(f"units={' '.join(units)}: {run.path} predicts every token and masks none; leave it out")
    if name := config.objective.class_name:
        say(f"{Setting('objective.class_name', name)} is a class of a program; its own measurements are left out")
    data = config.data.replace(words=words or config.data.words)
    objective = config.objective.replace(units=units or config.objective.units)
    return config.replace(data=data, objective=objective, model=for_inference(config.model, dtype), teacher=None)


def _evaluated_model(
    run: RunDirectory, trainer: PretrainingTrainer, with_tags: bool, step: int | None, average: int | None
) -> tuple[TrainedModel, Parameters]:
    """The model of `run` that is evaluated and its parameters, those of the head for tags too if `with_tags`. Raises
    UsageError if it has another vocabulary than the run, or no head that predicts tokens."""
    head = {"tag": trainer.objective.parameter_shapes["tag"]} if with_tags else None
    trained, params = TrainedModel.load(
        run.files, lambda shapes: tree_shardings(shapes, trainer.mesh), step, average, head
    )
    if trained.tokenizer.vocabulary.pieces != run.files.tokenizer.vocabulary.pieces:
        raise UsageError(
            f"{run.tokenizer_directory} isn't the tokenizer that its model was trained with; put that one back"
        )
    if "masked_lm" not in trained.shapes and "generator" not in trained.shapes:
        raise UsageError(f"{run.path} is an encoder without a masked-language head; there is nothing to measure")
    return trained, params


def _treebanks(config: RunConfig, tokenizer: Tokenizer, source: str | None) -> dict[int, Treebank]:
    """The treebank `objective.tags` of a run that is evaluated, by the length of the phases; {}, with a printed reason,
    if its sentences can't be measured. `source`: the text on which the run is evaluated instead of its own."""
    path = config.objective.tags
    if not path:
        return {}
    if source:
        reason = "text has none; without --data the held-out sentences of the treebank are measured"
    elif is_elsewhere(path):
        reason = f"{path} isn't on this machine, and a run's file may not name a place elsewhere"
    else:
        try:
            treebanks = treebanks_of(config, tokenizer)
            if all(treebank.held_out.sequences for treebank in treebanks.values()):
                return treebanks
            reason = f"no sentence of {path} is held out by {Setting('data.held_out', config.data.held_out)}"
        except UsageError as error:
            reason = str(error)
    say(f"tags aren't measured: {reason}")
    return {}


def measurements(
    trainer: PretrainingTrainer,
    step: int,
    params: Parameters,
    prepared: PreparedData,
    sequences: HeldOut | None,
    evaluation: Results | None = None,
) -> Results:
    """The measurements of the model and of the baseline on `sequences` of `prepared`; without `sequences`, only the
    step and the seed.

    `evaluation`: the model's measurements, if they are known already.
    """
    results = Results(task="pretraining", steps=step, seeds=[trainer.config.seed])
    if not sequences:
        return results
    measured, judged = (evaluation or sequences.evaluate(params)).logged, trainer.objective.main_question
    baseline, counts = sequences.baseline(prepared, measured)
    of_model = {"metric": judged.accuracy, "score": measured[judged.accuracy], **measured, **counts}
    return results.updated(
        of_model
        | {
            "baseline": baseline,
            "beats_baseline": measured[judged.loss] < baseline[judged.loss],
            "held_out_sequences": sequences.sequences,
            "measured_on": sequences.measured_on,
        }
    )


def _mean(parts: Sequence[Means]) -> dict[str, float]:
    """The means over all parts, from sums in float64."""
    return {
        name: sum(float(part[name].total) for part in parts) / max(sum(float(part[name].count) for part in parts), 1)
        for name in parts[0]
    }
