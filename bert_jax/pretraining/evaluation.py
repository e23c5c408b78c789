"""Evaluation on held-out documents: of the model, and of a baseline that knows only frequencies."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.instances.prepared_data import PreparedData
from bert_jax.instances.shards import HELD_OUT
from bert_jax.instances.store import InstanceSource
from bert_jax.model.bert import Parameters
from bert_jax.model.embeddings import vocabulary_size
from bert_jax.model.sharding import batch_sharding, local_rows, on_mesh, placed, row_shards
from bert_jax.pretraining.objective import PretrainingTrainer
from bert_jax.records.text_source import short_hash
from bert_jax.run.measurement import Means
from bert_jax.system.progress import warn
from bert_jax.training.batch import Batch, read_ahead
from bert_jax.training.input import BatchSource, InOrder
from bert_jax.training.step import example_keys, make_evaluation_step

_OF_MASKS = {"predict", "units", "evaluated_share", "mask_probability", "random_probability", "replaced_by"}
"""The settings of the objective that determine a held-out sequence's masks."""


class HeldOut:
    """The sequences of one prepared set for evaluation, with fixed masks. Rows of weight 0 fill up the last batches.

    Several languages are measured one by one, and the whole is their mean by the shares that training draws from them;
    without shares it is the mean over all sequences.
    """

    def __init__(
        self, trainer: PretrainingTrainer, phase: int, data: PreparedData, split: str, max_sequences: int | None
    ):
        """The sequences of `split` for evaluation in phase number `phase`: all if `max_sequences` is None."""
        config, rows = trainer.config, row_shards(trainer.mesh)
        instances = InstanceSource(data.directory, split, config.input.damaged_records)
        largest = max(each.batch_size for each in config.phases if each.length == data.length)
        self._batch_size = -(-largest // rows) * rows
        self._method, self._seed = trainer.objective.in_phase(phase), config.seed
        self._sharding = batch_sharding(trainer.mesh)
        self._step = jax.jit(on_mesh(trainer.mesh, make_evaluation_step(self._method, seed=self._seed)))
        self._parts: list[tuple[str, BatchSource]] = []
        """A language and the batches of one of its sources."""
        self.sequences = 0
        self._several = split == HELD_OUT and len({*config.data.languages}) > 1
        self._shares: dict[str, float] = {}
        """The share of each language; empty without shares."""
        counts, languages = data.records[split], config.data.languages
        if self._several:
            for language, share in zip(languages, config.shares(phase, data.sources) or (), strict=False):
                self._shares[language] = self._shares.get(language, 0.0) + share
            measured = {language for language, count in zip(languages, counts, strict=True) if count}
            if lacking := [language for language in dict.fromkeys(languages) if language not in measured]:
                warn(f"nothing is held out of {', '.join(lacking)}, and nothing is measured there; give more text")
        else:
            counts, languages = [len(instances)], languages[:1]
        most = len(instances) if max_sequences is None else -(-max_sequences // max(1, sum(map(bool, counts))))
        for language, end, count in zip(languages, itertools.accumulate(counts), counts, strict=True):
            if count:
                order = InOrder(count, min(count, most), end - count)
                self._parts.append((language, self._batches(instances, order, data.length)))
                self.sequences += order.reads
        self.measured_on = {
            "records": short_hash(sorted(file for file in data.shards.items() if file[0].startswith(f"{split}-"))),
            "sequences": self.sequences,
            "length": data.length,
            "vocabulary_size": vocabulary_size(self._method.model),
            "seed": config.seed,
            "shares": self._shares,
            **config.objective.model_dump(mode="json", include=_OF_MASKS),
        }
        """What the measurements depend on besides the model: those with equal ones can be compared."""

    def _batches(self, instances: InstanceSource, order: InOrder, length: int) -> BatchSource:
        return BatchSource(
            instances,
            order,
            batch_size=self._batch_size,
            length=length,
            vocabulary_size=vocabulary_size(self._method.model),
            num_batches=-(-order.reads // self._batch_size),
            rows=local_rows(self._sharding, self._batch_size),
        )

    def evaluate(self, params: Parameters, between: Callable[[], None] = lambda: None) -> dict[str, float]:
        """The loss and all measurements; of several languages also those of each, as in `hi/mlm_loss`.

        `between` is called before each batch, and may raise to end the evaluation.
        """
        whole, parts = self._means(lambda batch: self._step(params, batch), between)
        values = self._with_loss(whole)
        if self._several:
            for language, means in parts.items():
                values |= {f"{language}/{name}": value for name, value in self._with_loss(_mean(means)).items()}
        return values

    def _with_loss(self, values: dict[str, float]) -> dict[str, float]:
        return {"loss": sum(weight * values[name] for name, weight in self._method.losses.items())} | values

    def baseline(self, data: PreparedData, measured: dict[str, float]) -> tuple[dict[str, float], dict[str, int]]:
        """The measurements of the method's baseline, which knows the frequencies of pieces in `data` and of labels.

        Of several languages also those of each, and the numbers of its sequences and predicted tokens.
        `measured`: the result of `evaluate`, for the frequency of replaced tokens."""
        piece_counts = data.piece_counts + 1
        log_share = jnp.log(piece_counts / np.sum(piece_counts))

        @jax.jit
        def step(batch: Batch) -> Means:
            targets = self._method.targets(batch, example_keys(self._seed, "evaluation", 0, batch.ordinal))
            return self._method.guess(batch, targets, log_share)

        whole, parts = self._means(step)
        values, counts = self._method.baseline(whole, measured), {}
        for language, means in parts.items() if self._several else ():
            own = {name: measured.get(f"{language}/{name}", value) for name, value in measured.items()}
            of_language = self._method.baseline(_mean(means), own)
            values |= {f"{language}/{name}": value for name, value in of_language.items()}
            for name, mean in (("sequences", "random"), ("predicted_tokens", self._method.token_question.loss)):
                counts[f"{language}/{name}"] = round(sum(float(part[mean].count) for part in means))
        return values, counts

    def _means(
        self, step: Callable[[Any], Means], between: Callable[[], None] = lambda: None
    ) -> tuple[dict[str, float], dict[str, list[Means]]]:
        """The means over all batches, weighted by the shares of the languages, and those of each one's batches."""
        parts: dict[str, list[Means]] = {}
        for language, source in self._parts:
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


def _mean(parts: Sequence[Means]) -> dict[str, float]:
    """The means over all parts, from sums in float64."""
    return {
        name: sum(float(part[name].total) for part in parts) / max(sum(float(part[name].count) for part in parts), 1)
        for name in parts[0]
    }
