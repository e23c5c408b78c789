"""Pairs of texts for learning vectors of texts (Reimers and Gurevych 2019, arXiv:1908.10084)."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from bert_jax.batching.sequences import joined, unpooled_tokens
from bert_jax.config.task import TaskConfig
from bert_jax.config.vectors import MANY_CUT, PASSAGE_ROLES, Prompt
from bert_jax.finetuning.columns import list_or_value, number, text
from bert_jax.finetuning.retrieval import (
    ranked,
    retrieval_baselines,
    retrieval_errors,
    retrieval_metrics,
    retrieval_of,
    similarity_baselines,
    similarity_errors,
    similarity_metrics,
)
from bert_jax.finetuning.task import CUT, EMPTY, Example, Outcome, Prediction, Task
from bert_jax.layout import TokenSequence
from bert_jax.records.record import Record
from bert_jax.run.results import Mistake, Results
from bert_jax.system.errors import Setting, UsageError, listed, quoted
from bert_jax.system.progress import warn
from bert_jax.text.tokenizer import Tokenizer

_USUAL_COLUMNS = (("query", "positive"), ("a", "b"))
"""Columns of a pair's two texts in files that lack the columns of task.texts."""
_METRICS = {True: ("spearman", "pearson"), False: ("ndcg@10", "recall@1", "recall@10")}
"""Metrics of pairs with scores (True) and of other pairs (False). The first metric is the score."""
_EQUAL_NEGATIVES = "negatives equal to a text of their pair, left out"


class TextPair(NamedTuple):
    """The texts of a row."""

    first: str
    second: str
    negatives: list[str]
    """Texts that don't match the first one."""
    score: float | None
    """How similar the two texts are. None: the row has no score, so the texts match."""


class PromptedText(NamedTuple):
    """A text and the prompt that is put before it."""

    text: str
    prompt: Prompt


class VectorsTask(Task[float | None]):
    """Maps texts to vectors; learns from pairs that match or have a score of similarity."""

    def __init__(self, config: TaskConfig, tokenizer: Tokenizer):
        super().__init__(config, tokenizer)
        self._word_baselines: tuple[Sequence[Record], dict[str, dict[str, float]]] | None = None
        """The dev rows that were measured last, and the baselines on them."""

    @classmethod
    def with_labels(cls, config: TaskConfig, records: Sequence[Record]) -> TaskConfig:
        """`config` with `scored` set: whether the pairs have scores. Pairs with scores have no negatives."""
        scored = pair_of(config, records[0]).score is not None
        return config.replace(scored=scored, most_negatives=0 if scored else config.most_negatives)

    def with_example_sizes(self, examples: Sequence[Example]) -> TaskConfig:
        """The config with the largest number of negatives in a row. Raises UsageError if nothing can be compared."""
        config, source = self.config, self.config.source or self.config.train
        firsts, seconds = ({tuple(one.sequences[side].ids) for one in examples} for side in (0, 1))
        most = max(len(one.sequences) for one in examples) - 2
        if len(examples) == 1:
            problem = "there is one pair to learn from"
        elif config.scored and len({one.target for one in examples}) == 1:
            problem = f"all pairs have the score {examples[0].target:g}"
        elif not config.scored and len(firsts) == 1 and not most:
            problem = "the first text is the same in all pairs"
        elif not config.scored and len(seconds) == 1 and not most:
            problem = "the second text is the same in all pairs"
        else:
            self._warn_of_cut(examples)
            return config.replace(most_negatives=most)
        raise UsageError(f"{source}: {problem}, and nothing can be compared; give pairs with others")

    def _warn_of_cut(self, examples: Sequence[Example]) -> None:
        sequences = [sequence for one in examples for sequence in one.sequences]
        cut = sum(sequence.cut for sequence in sequences)
        if cut > MANY_CUT * len(sequences):
            warn(
                f"{cut:,} of {len(sequences):,} texts to learn from are longer than {self.config.max_length} pieces, "
                "and what follows isn't learned; raise --task.max-length, or give shorter texts"
            )

    @classmethod
    def text_columns(cls, config: TaskConfig, record: Record) -> Sequence[str]:
        """The names of the columns of the two texts. Raises UsageError if the record lacks these columns."""
        possible = _USUAL_COLUMNS if config.texts in _USUAL_COLUMNS else (config.texts,)
        for columns in possible:
            if all("{" in name or name in record.values for name in columns):
                return columns
        raise UsageError(
            f"{record.place} has no pair of texts in {' and '.join(config.texts)}: there is "
            f"{listed(record.columns or record.values)}; rename the columns of the file, or name those that "
            "are there by --task.texts of bert-jax finetune"
        )

    @classmethod
    def columns(cls, config: TaskConfig, record: Record) -> list[str]:
        """All columns that are read. Pairs with scores have no negatives."""
        return [*super().columns(config, record), *([] if config.scored else [config.negatives])]

    @classmethod
    def is_measurable(cls, config: TaskConfig, record: Record) -> bool:
        """Whether the record has two texts. Rows without a score can be measured, too: their texts match."""
        return all(text.strip() for text in pair_of(config, record)[:2])

    def encode(self, records: Sequence[Record], repairs: Counter[str], train: bool) -> list[list[Example]]:
        """In training, one example for each record; otherwise, one for each text of a record.

        A training example has a sequence for each text: the first, the second and the negatives. Training skips a pair
        with an empty text.
        """
        texts = [self._texts(record, train) for record in records]
        pieces = iter(self._tokenizer.encode_batch([one.prompt.text + one.text for row in texts for one in row]))
        encoded = []
        for record, of_record in zip(records, texts, strict=True):
            segments = [next(pieces) for _ in of_record]
            sequences = [self._sequence(*each) for each in zip(of_record, segments, strict=True)]
            filled = all(segments) and all(one.text.strip() for one in of_record)
            repairs[EMPTY] += not filled
            repairs[CUT.format(self.config.max_length)] += sum(one.cut for one in sequences)
            if not train:
                encoded.append([Example((sequence,)) for sequence in sequences])
            elif filled:
                first, second = of_record[0].text, tuple(sequences[1].ids)
                different = [
                    sequence
                    for one, sequence in zip(of_record[2:], sequences[2:], strict=True)
                    if one.text != first and tuple(sequence.ids) not in (second, tuple(sequences[0].ids))
                ]
                repairs[_EQUAL_NEGATIVES] += len(sequences) - 2 - len(different)
                encoded.append([Example((*sequences[:2], *different), self.gold(record))])
            else:
                encoded.append([])
        return encoded

    def _texts(self, record: Record, train: bool) -> list[PromptedText]:
        """The texts of a record with their prompts.

        Pairs with scores have the default prompt, others the prompts of their roles.
        """
        if isinstance(record, SingleText):
            return [PromptedText(record.values["text"], record.values["prompt"])]
        pair = pair_of(self.config, record)
        scored = self.config.scored or pair.score is not None
        query, passage = (self.config.prompt(None if scored else role) for role in ("query", PASSAGE_ROLES[0]))
        others = pair.negatives[: self.config.most_negatives] if train else []
        return [PromptedText(pair.first, query), *(PromptedText(text, passage) for text in (pair.second, *others))]

    def _sequence(self, text: PromptedText, pieces: list[int]) -> TokenSequence:
        longest = self.config.max_length
        sequence = joined([pieces], self._tokenizer.vocabulary, longest)
        return sequence._replace(unpooled=unpooled_tokens(text.prompt, self._tokenizer, longest))

    def gold(self, record: Record) -> float | None:
        """The score of the pair; None if it has none."""
        return pair_of(self.config, record).score

    def answers(self, record: Record) -> list[float]:
        """The score of the pair; empty if it has none."""
        score = self.gold(record)
        return [] if score is None else [score]

    def predict(self, record: Record, examples: Sequence[Example], outputs: Sequence[np.ndarray]) -> Prediction:
        """The cosine of the vectors of the two texts."""
        first, second = map(unit_vectors, outputs)
        return {"predicted_similarity": float(first @ second)}

    def metric(self, golds: Sequence[float | None]) -> str:
        """The metric that task.metric names, by default `spearman` for pairs with scores and `ndcg@10` for others.

        Raises UsageError if these pairs have no such metric.
        """
        is_scored = _scores(golds) is not None
        possible = _METRICS[is_scored]
        if self.config.metric not in (None, *possible):
            kind = "have scores" if is_scored else "have no scores"
            raise UsageError(
                f"{Setting('task.metric', self.config.metric)} can't be measured, as the dev pairs {kind}; choose "
                f"from {', '.join(possible)}"
            )
        return self.config.metric or possible[0]

    def inputs(self, records: Sequence[Record]) -> list[Record]:
        """Each distinct text of the pairs, once."""
        texts = dict.fromkeys(one for record in records for one in self._texts(record, train=False))
        return [SingleText("", one._asdict()) for one in texts]

    def evaluate(
        self, records: Sequence[Record], golds: Sequence[float | None], outcomes: Iterable[Outcome]
    ) -> Results:
        """Every metric of the pairs, for whole vectors and for vectors cut to each of task.widths.

        `outcomes` has the vectors of the pairs' `inputs`. Pairs with scores are measured by the correlations of scores
        and cosines. Other pairs are measured by how well each first text finds its second text among the second texts
        of all pairs. The baselines tf-idf and BM25 have the same metrics.
        """
        vectors: dict[PromptedText, np.ndarray] = {}
        cut = 0
        for record, [example], [vector] in outcomes:
            vectors[PromptedText(**record.values)] = vector
            cut += example.sequences[0].cut
        pairs = [self._texts(record, train=False) for record in records]
        metrics, errors = _measured(pairs, golds, vectors, width=None)
        for width in self.config.widths:
            if width < len(vector):
                of_width, _ = _measured(pairs, golds, vectors, width)
                metrics |= {f"{width}/{name}": value for name, value in of_width.items()}
        if self._word_baselines is None or self._word_baselines[0] is not records:
            texts, scores = [(first.text, second.text) for first, second in pairs], _scores(golds)
            measured = similarity_baselines(texts, scores) if scores else retrieval_baselines(retrieval_of(texts))
            self._word_baselines = records, measured
        baselines, name = self._word_baselines[1], self.metric(golds)
        return Results.model_validate(
            {
                "metric": name,
                "score": metrics[name],
                **metrics,
                "baseline": baselines["BM25"],
                "baselines": baselines,
                "errors": errors,
                "cut_texts": {"texts": float(len(vectors)), "cut": float(cut), "pieces": float(self.config.max_length)},
            }
        )


class SingleText(Record):
    """A record that holds one `text` to encode, and its `prompt`."""


def unit_vectors(vectors: Float[np.ndarray, "*N D"]) -> Float[np.ndarray, "*N D"]:
    """The vectors divided by their Euclidean lengths, in float32."""
    vectors = vectors.astype(np.float32)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def _scores(golds: Sequence[float | None]) -> list[float] | None:
    """The scores of all pairs. None: the pairs have no scores, so their texts match."""
    return [score for score in golds if score is not None] or None


def _measured(
    pairs: Sequence[Sequence[PromptedText]],
    golds: Sequence[float | None],
    vectors: Mapping[PromptedText, np.ndarray],
    width: int | None,
) -> tuple[dict[str, float], list[Mistake]]:
    """The metrics of pairs and the worst errors, from the first `width` components of the vectors (None: from all)."""

    def of(texts: Iterable[PromptedText]) -> Float[np.ndarray, "n D"]:
        return unit_vectors(np.stack([vectors[text][:width] for text in texts]))

    texts = [(first.text, second.text) for first, second in pairs]
    if scores := _scores(golds):
        first, second = (of(side) for side in zip(*pairs, strict=True))
        cosines = np.sum(first * second, axis=1)
        return similarity_metrics(scores, cosines), similarity_errors(texts, scores, cosines)
    rows = retrieval_of(texts)
    query, passage = (side.prompt for side in pairs[0])
    queries = of(PromptedText(text, query) for text in rows.queries)
    candidates = of(PromptedText(text, passage) for text in rows.candidates)
    ranking = ranked(queries, candidates, rows.relevant, rows.query_copies)
    return retrieval_metrics(ranking), retrieval_errors(rows, ranking)


def pair_of(config: TaskConfig, record: Record) -> TextPair:
    """The texts and the score of a record, from the columns that `config` names, or query and positive, or a and b.

    Raises UsageError if the columns are missing or hold values of another type.
    """
    first, second = (text(record, column) for column in VectorsTask.text_columns(config, record))
    score = None
    if config.label in record.values and record.has(config.label):
        score = number(record, config.label)
        if config.score_range and not config.score_range[0] <= score <= config.score_range[1]:
            low, high = config.score_range
            raise UsageError(
                f"{record.place}: the score is {score:g}, and {Setting('task.score_range')} is {low:g} to {high:g}; "
                "correct the row or the range"
            )
    return TextPair(first, second, _negatives(config, record), score)


def _negatives(config: TaskConfig, record: Record) -> list[str]:
    """The texts in the column of negatives, which holds a list of texts or one text."""
    value = list_or_value(record, config.negatives) if config.negatives in record.values else None
    if value is None or value == "":
        return []
    negatives = [value] if isinstance(value, str) else value
    if not isinstance(negatives, list) or not all(isinstance(one, str) for one in negatives):
        raise UsageError(
            f"{record.place}: {config.negatives!r} is {quoted(value)}; give one text or, in JSON lines, a list of texts"
        )
    return [one for one in negatives if one.strip()]
