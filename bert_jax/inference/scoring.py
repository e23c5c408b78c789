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

DEFAULT_METHOD: ScoreMethod = "word"
"""The method of models that mask."""
_LARGEST_LOSS = 700.0
"""Nats a token from which on the perplexity is no finite number."""
_WINDOW_GROUPS = 256
"""Size of the sorting window, in groups: masked copies of one text share its ids, so they take little memory."""
_SHORT, _STEP = 64, 4
"""Up to _SHORT tokens, padded lengths are multiples of _STEP, as the masked copies of few texts fill a batch."""


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
        self._method, self._texts, self._scored = method, 0, 0
        self._score, self._tokens, self._characters = 0.0, 0, 0

    def add(self, scored: ScoredText) -> None:
        """Counts a text."""
        self._texts += 1
        if scored.score is not None:
            self._scored += 1
            self._score += scored.score
            self._tokens += len(scored.ids)
            self._characters += len(scored.text)

    @property
    def content(self) -> JsonObject:
        """The totals by name. `perplexity` is exp(- score / tokens), of a model that masks the pseudo-perplexity of
        Salazar et al. (2020), section 2.1; None without a scored text, and where it is no finite number."""
        counts = {"texts": self._texts, "scored": self._scored, "tokens": self._tokens, "characters": self._characters}
        loss = -self._score / max(self._tokens, 1)
        bits = -self._score / math.log(2) / max(self._characters, 1)
        known = self._scored > 0 and loss < _LARGEST_LOSS
        perplexity = {"perplexity": math.exp(loss) if known else None, "bits_per_character": bits if known else None}
        return {"method": self._method, **counts, "score": self._score, **perplexity}


class _Row(NamedTuple):
    """A text with its special tokens; the tokens from `begin` to `end` (exclusive) are predicted, or none is."""

    text: str
    ids: Int[np.ndarray, " T"]
    begin: int
    end: int
    obstacle: str = ""
    """Why the text has no score."""


class _Span(NamedTuple):
    """What one row of a batch computes of a text. A model that masks predicts the token at `begin`, and doesn't see
    those up to `end` (exclusive); a causal one predicts all of them."""

    ids: Int[np.ndarray, " T"]
    begin: int
    end: int


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
        return (method or DEFAULT_METHOD) if self._sees_both else None  # type: ignore[return-value]

    def stream(self, texts: Iterable[Text], method: str | None = None) -> Iterator[ScoredText]:
        """Yields each text with its log probabilities, in input order and bounded memory; reads texts ahead.

        At the end one line says how many texts have no score. Raises UsageError at once as `method` does, and later for
        an element that is no text.
        """
        return self._scored(texts, self.method(method))

    def _scored(self, texts: Iterable[Text], method: ScoreMethod | None) -> Iterator[ScoredText]:
        rows, read = tee(self._rows(texts))
        found = self._computed(span for row in rows for span in self._spans(row, method))
        count, unscored = 0, Counter[str]()
        for row in read:
            count += 1
            logs = np.concatenate([*islice(found, max(row.end - row.begin, 1) if method else 1)])
            if row.obstacle:
                unscored[row.obstacle] += 1
                yield ScoredText(row.text, [], None)
            else:
                of_tokens = logs if method else logs[row.begin : row.end]
                yield ScoredText(row.text, row.ids[row.begin : row.end].tolist(), of_tokens)
        if unscored:
            reasons = ", ".join(f"{number:,} {obstacle}" for obstacle, number in sorted(unscored.items()))
            say(f"{unscored.total():,} of {count:,} texts have no score: {reasons}")

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
            return [_Span(row.ids, row.begin, row.end)]
        places = np.arange(row.begin, row.end)
        ends = places + 1
        if method == "word":
            starts = 1 + row.begin + np.flatnonzero(self._starts_word[row.ids[row.begin + 1 : row.end]])
            ends = np.append(starts, row.end)[np.searchsorted(starts, places, side="right")]
        return (_Span(row.ids, begin, end) for begin, end in zip(places.tolist(), ends.tolist(), strict=True))

    def _computed(self, spans: Iterable[_Span]) -> Iterator[Float[np.ndarray, " _"]]:
        """Yields the log probabilities of each span's row, in input order."""
        config = self._model.config
        lengths = sorted({*range(_STEP, _SHORT, _STEP), *usual_lengths(config.max_positions)})
        lengths = [length for length in lengths if length <= config.max_positions]
        groups = grouped(
            spans, lambda span: len(span.ids), lengths, tokens_at_once(), compiling_tokens(config), _WINDOW_GROUPS
        )
        waiting: dict[int, Any] = {}
        next_place = 0
        for group, found in ahead(self._of_group, groups):
            waiting.update(zip(group.places, found, strict=False))
            while next_place in waiting:
                yield waiting.pop(next_place)
                next_place += 1

    def _of_group(self, group: Group[_Span]) -> Float[np.ndarray, "B _"]:
        rows, lengths = group.shape[0], np.array([len(span.ids) for span in group.items])
        ids = np.concatenate([span.ids for span in group.items])
        tokens = lay_out(ids, lengths, lengths, group.shape, pad_id=self._vocabulary.pad_id)
        ends = np.zeros((2, rows), np.int32)
        ends[:, : len(lengths)] = np.array([(span.begin, span.end) for span in group.items]).T
        return jax.device_get(self._compute(self._model.params, tokens, *ends))


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
    asked = (neighbours if both else next_tokens)(tokens)
    logits, _ = network.apply({"params": params}, tokens, None)
    logs = -cross_entropy(logits, asked.labels)[0] * asked.weights
    if not both:
        return jnp.pad(logs[:, :-1], ((0, 0), (1, 0)))
    after, before = logs[:, ::2], logs[:, 1::2]
    return (jnp.pad(after[:, :-1], ((0, 0), (1, 0))) + jnp.pad(before[:, 1:], ((0, 0), (0, 1)))) / 2
