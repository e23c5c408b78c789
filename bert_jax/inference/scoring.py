"""Scores of texts: the log probabilities of their tokens.

A model that sees both sides of a token gives the pseudo-log-likelihood: each token is masked in turn and predicted from
all others (Salazar et al. 2020, arXiv:1910.14659, section 2.1). With the method `word` the later pieces of the same
word are masked too (Kauf and Ivanova 2023, arXiv:2305.10588, PLL-word-l2r), so that the rest of a rare word doesn't
give its beginning away. A causal model gives the log-likelihood.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice, tee
from typing import Any, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bert_jax.batching.grouping import Group, ahead, grouped, usual_lengths
from bert_jax.config.objective import ScoreMethod
from bert_jax.inference.batches import Text, text_pieces
from bert_jax.inference.features import BatchedModel
from bert_jax.inference.filling import check_token_head
from bert_jax.layout import Tokens, lay_out
from bert_jax.model.bert import BertForPretraining, Parameters
from bert_jax.pretraining.masking import neighbours, next_tokens
from bert_jax.system.errors import Setting, UsageError
from bert_jax.system.json_file import JsonObject
from bert_jax.system.progress import say
from bert_jax.training.cross_entropy import cross_entropy
from bert_jax.training.devices import compiling_tokens, tokens_at_once

_LARGEST = 700.0
"""Nats a token from which on the perplexity is no finite number."""
_WINDOW_GROUPS = 64
"""Size of the sorting window, in groups: masked copies of one text share its ids, so they take little memory."""
_SHORT, _STEP = 64, 2
"""Up to _SHORT tokens, padded lengths are multiples of _STEP, as the masked copies of few texts fill a batch: on BLiMP
91% of the tokens are real, so packed rows could save no more than a tenth."""


class ScoredText(NamedTuple):
    """A text with the log probabilities of its tokens."""

    text: str
    ids: list[int]
    """The n tokens that are predicted: all without the special tokens round the text."""
    logs: Float[np.ndarray, " n"] | None
    """The log probability of each token in nats; None if the text is empty or longer than the model's positions."""

    @property
    def score(self) -> float | None:
        """The sum of the log probabilities, summed in float64; None without them."""
        return None if self.logs is None else float(self.logs.sum(dtype=np.float64))


class ScoreTotals:
    """Sums over scored texts, and the perplexity and the bits a character that they give."""

    def __init__(self, method: str):
        """`method`: how the scores were computed, in a word."""
        self._method, self._sums = method, Counter[str]()

    def add(self, scored: ScoredText) -> None:
        """Counts a text."""
        self._sums["texts"] += 1
        if scored.score is not None:
            self._sums.update(scored=1, tokens=len(scored.ids), characters=len(scored.text))
            self._sums["score"] += scored.score  # type: ignore[assignment]  # a Counter adds any numbers

    @property
    def content(self) -> JsonObject:
        """The totals by name; `perplexity` and `bits_per_character` are None without a scored text.

        The perplexity is exp(- score / tokens), of a model that masks the pseudo-perplexity (Salazar et al. 2020).
        """
        names = ("texts", "scored", "tokens", "characters", "score")
        content: JsonObject = {"method": self._method} | {name: self._sums[name] for name in names}
        nats, known = -self._sums["score"], self._sums["scored"] > 0
        content["perplexity"] = math.exp(min(nats / self._sums["tokens"], _LARGEST)) if known else None
        content["bits_per_character"] = nats / math.log(2) / self._sums["characters"] if known else None
        return content


class _Row(NamedTuple):
    """A text with its special tokens; the tokens from `begin` to `end` (exclusive) are predicted, or none is."""

    text: str
    ids: Int[np.ndarray, " T"]
    begin: int
    end: int
    obstacle: str = ""
    """Why the text has no score."""


_Span = tuple[Int[np.ndarray, " T"], int, int]
"""What one row of a batch computes of a text: ids, `begin` and `end`. A model that masks predicts the token at `begin`,
and doesn't see those up to `end` (exclusive); a causal one predicts them all."""


class Scorer:
    """Scores any number of texts in batches of similar length, in bounded memory.

    A model with a query stream masks nothing: the stream predicts a token and sees all others. With LSTM layers a
    token's log probability is the mean of the two directions' ones.
    """

    def __init__(self, model: BatchedModel):
        """Raises UsageError for a model without a head that predicts tokens."""
        check_token_head(model, "predicts tokens")
        self._model, self._vocabulary = model, model.tokenizer.vocabulary
        self._starts_word = model.tokenizer.starts_word
        self._sees_both = not model.config.one_sided
        compute = masked_log_probabilities if self._sees_both else one_sided_log_probabilities
        self._compute = jax.jit(partial(compute, BertForPretraining(model.config), self._vocabulary.mask_id))

    def method(self, method: str | None) -> ScoreMethod | None:
        """The method that is used; None for models that don't mask.

        Raises UsageError for an unknown method, and for any if the model doesn't mask.
        """
        if method not in (None, *get_args(ScoreMethod)):
            raise UsageError(
                f"{Setting('method')}={method!r} is unknown; choose from {', '.join(get_args(ScoreMethod))}"
            )
        if method and not self._sees_both:
            raise UsageError(
                f"{Setting('method', method)} says what is masked, and {self._model.config.one_sided} a token; leave "
                "it out: the score is the log-likelihood"
            )
        return (method or "token") if self._sees_both else None  # type: ignore[return-value]

    def stream(self, texts: Iterable[Text], method: str | None = None) -> Iterator[ScoredText]:
        """Yields each text with its log probabilities, in input order and bounded memory; reads texts ahead.

        At the end one line says how many texts have no score. Raises UsageError at once as `method` does, and later for
        an element that is no text.
        """
        return self._scored(texts, self.method(method))

    def _scored(self, texts: Iterable[Text], method: ScoreMethod | None) -> Iterator[ScoredText]:
        rows, read = tee(self._rows(texts))
        found = self._computed(span for row in rows for span in self._spans(row, method))
        counts = Counter[str]()
        for row in read:
            counts[row.obstacle] += 1
            logs = np.concatenate([*islice(found, max(row.end - row.begin, 1) if method else 1)])
            logs = logs if method else logs[row.begin : row.end]
            if not np.isfinite(logs).all():
                raise UsageError(
                    "the model gives probabilities that aren't finite, so its training diverged; give another step"
                )
            yield ScoredText(row.text, row.ids[row.begin : row.end].tolist(), None if row.obstacle else logs)
        if unscored := sorted(obstacle for obstacle in counts if obstacle):
            reasons = ", ".join(f"{counts[obstacle]:,} {obstacle}" for obstacle in unscored)
            say(f"{counts.total() - counts['']:,} of {counts.total():,} texts have no score: {reasons}")

    def _rows(self, texts: Iterable[Text]) -> Iterator[_Row]:
        before, after = self._vocabulary.frame.single
        longest = self._model.config.max_positions
        for text, pieces in text_pieces(texts, self._model.tokenizer, longest + 1):
            ids = np.array([*before, *pieces, *after], np.int32)
            # Nothing stands before the first token of all, so a causal model doesn't predict it.
            begin, end = max(len(before), int(not self._sees_both)), len(ids) - len(after)
            if end <= begin:
                yield _Row(text, np.array([self._vocabulary.pad_id], np.int32), 0, 0, "empty")
            elif len(ids) > longest:
                yield _Row(text, ids[:longest], 0, 0, f"longer than the model's {longest:,} positions")
            else:
                yield _Row(text, ids, begin, end)

    def _spans(self, row: _Row, method: ScoreMethod | None) -> Iterable[_Span]:
        """What is computed of a row. Each has at least one span, so that texts without a score are read no further
        ahead than others."""
        if method is None or row.obstacle:
            return [(row.ids, row.begin, row.end)]
        places = np.arange(row.begin, row.end)
        ends = places + 1
        if method == "word":
            starts = 1 + row.begin + np.flatnonzero(self._starts_word[row.ids[row.begin + 1 : row.end]])
            ends = np.append(starts, row.end)[np.searchsorted(starts, places, side="right")]
        return ((row.ids, begin, end) for begin, end in zip(places.tolist(), ends.tolist(), strict=True))

    def _computed(self, spans: Iterable[_Span]) -> Iterator[Float[np.ndarray, " _"]]:
        """Yields the log probabilities of each span's row, in input order."""
        config = self._model.config
        lengths = sorted(
            {*range(_STEP, min(_SHORT, config.max_positions), _STEP), *usual_lengths(config.max_positions)}
        )
        compiling = compiling_tokens(config)
        groups = grouped(spans, lambda span: len(span[0]), lengths, tokens_at_once(), compiling, _WINDOW_GROUPS)
        waiting: dict[int, Any] = {}
        next_place = 0
        for group, found in ahead(self._of_group, groups):
            waiting.update(zip(group.places, found, strict=False))
            while next_place in waiting:
                yield waiting.pop(next_place)
                next_place += 1

    def _of_group(self, group: Group[_Span]) -> Float[np.ndarray, "B _"]:
        ids, begins, ends = zip(*group.items, strict=True)
        lengths, free = np.array([*map(len, ids)]), (0, group.shape[0] - len(ids))
        tokens = lay_out(np.concatenate(ids), lengths, lengths, group.shape, pad_id=self._vocabulary.pad_id)
        spans = (np.pad(np.array(each, np.int32), free) for each in (begins, ends))
        return jax.device_get(self._compute(self._model.params, tokens, *spans))


def masked_log_probabilities(
    network: BertForPretraining,
    mask_id: int,
    params: Parameters,
    tokens: Tokens,
    begin: Int[Array, " B"],
    end: Int[Array, " B"],
) -> Float[Array, "B 1"]:
    """The log probability of the token at `begin` of each row, if the tokens from there to `end` aren't seen."""
    at, places = jnp.arange(tokens.ids.shape[1]), begin[:, None]
    hidden = (at >= places) & (at < end[:, None])
    labels = jnp.take_along_axis(tokens.ids, places, axis=1)
    masked = tokens._replace(ids=jnp.where(hidden, mask_id, tokens.ids))
    ranks = jnp.where(hidden, 0, -1) if network.config.has_query_stream else None
    logits, _ = network.apply({"params": params}, masked, places, ranks=ranks)
    return -cross_entropy(logits, labels)[0]


def one_sided_log_probabilities(
    network: BertForPretraining,
    mask_id: int,
    params: Parameters,
    tokens: Tokens,
    begin: Int[Array, " B"],
    end: Int[Array, " B"],
) -> Float[Array, "B T"]:
    """The log probability of each token of each row after those before it; with LSTM layers, the mean of that and of
    its log probability before those after it. The first token's is 0, with LSTM layers also the last one's."""
    both = network.config.layer == "lstm"
    predicted = (neighbours if both else next_tokens)(tokens)
    logits, _ = network.apply({"params": params}, tokens, None)
    logs = -cross_entropy(logits, predicted.labels)[0] * predicted.weights
    if not both:
        return jnp.pad(logs[:, :-1], ((0, 0), (1, 0)))
    after, before = logs[:, ::2], logs[:, 1::2]
    return (jnp.pad(after[:, :-1], ((0, 0), (1, 0))) + jnp.pad(before[:, 1:], ((0, 0), (0, 1)))) / 2
