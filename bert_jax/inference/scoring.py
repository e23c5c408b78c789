"""Scores of texts: the log probabilities of their tokens.

A model that sees both sides of a token gives the pseudo-log-likelihood: each token is masked in turn and predicted from
all others (Salazar et al. 2020, arXiv:1910.14659, section 2.1). With the method `word` the later pieces of the same
word are masked too (Kauf and Ivanova 2023, arXiv:2305.10588, PLL-word-l2r), so that the rest of a rare word doesn't
give its beginning away. A causal model gives the log-likelihood.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice, tee
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bert_jax.batching.grouping import Group, ahead, grouped, in_input_order, usual_lengths
from bert_jax.config.objective import ScoreMethod
from bert_jax.inference.batches import Text, text_pieces
from bert_jax.inference.features import BatchedModel, one_of
from bert_jax.inference.filling import check_token_head
from bert_jax.layout import Tokens, lay_out
from bert_jax.model.bert import BertForPretraining, Parameters
from bert_jax.model.kernels.cross_entropy import cross_entropy
from bert_jax.pretraining.masking import neighbours, next_tokens
from bert_jax.system.errors import Setting, UsageError
from bert_jax.system.json_file import JsonObject
from bert_jax.system.progress import say
from bert_jax.training.devices import compiling_tokens, tokens_at_once

_LARGEST = 700.0
"""Nats a token above which the perplexity would be no finite number."""
_WINDOW_GROUPS = 64
"""Size of the sorting window, in groups. It takes little memory, as the masked copies of a text share its ids."""
_SHORT, _STEP = 64, 2
"""Padded lengths up to _SHORT tokens are multiples of _STEP. So many lengths are worth compiling, because the masked
copies of a few texts fill a batch. On BLiMP 91% of the tokens are real, so packed rows could save no more than a tenth.
"""


class ScoredText(NamedTuple):
    """A text with the log probabilities of its tokens."""

    text: str
    ids: list[int]
    """The n tokens that are predicted: all but the special ones around the text."""
    logs: Float[np.ndarray, " n"] | None
    """The log probability of each token in nats; None if the text is empty or longer than the model's positions."""

    @property
    def score(self) -> float | None:
        """The sum of the log probabilities, summed in float64; None without them."""
        return None if self.logs is None else float(self.logs.sum(dtype=np.float64))


@dataclass
class ScoreTotals:
    """Sums over scored texts."""

    texts: int = 0
    scored: int = 0
    """The number of texts with a score. The other sums are over these."""
    tokens: int = 0
    characters: int = 0
    """The number of characters that aren't spaces, as in pretraining's `bits_per_character`."""
    score: float = 0.0

    def add(self, scored: ScoredText) -> None:
        """Counts a text."""
        self.texts += 1
        if scored.score is not None:
            self.scored += 1
            self.tokens += len(scored.ids)
            self.characters += len(scored.text) - scored.text.count(" ")
            self.score += scored.score

    @property
    def content(self) -> JsonObject:
        """The sums, the `perplexity` and the `bits_per_character`; these two are None without a scored text,
        and the bits also without a character that isn't a space.

        The perplexity is exp(- score / tokens); for a model that masks, it is the pseudo-perplexity (Salazar et al.
        2020).
        """
        perplexity = math.exp(min(-self.score / self.tokens, _LARGEST)) if self.scored else None
        bits = -self.score / math.log(2) / self.characters if self.characters else None
        return asdict(self) | {"perplexity": perplexity, "bits_per_character": bits}


_Span = tuple[Int[np.ndarray, " T"], int, int]
"""What one row of a batch computes of a text: ids, `begin` and `end` (exclusive). A model that masks predicts the token
at `begin`, with all tokens from `begin` to `end` masked; a causal model predicts each token from `begin` to `end`."""


class _Row(NamedTuple):
    """A text, the ids of the tokens that are predicted, and what is computed of it."""

    text: str
    ids: list[int]
    spans: list[_Span]
    """At least one: a text without a score has a span whose result isn't used, so that the number of texts that are
    read ahead is bounded."""
    obstacle: str = ""
    """Why the text has no score."""


class Scorer:
    """Scores any number of texts in batches of similar length, in bounded memory.

    With a query stream, the masked tokens are also hidden from the query. With LSTM layers, the log probability of a
    token is the mean of those by the two directions.
    """

    def __init__(self, model: BatchedModel):
        """Raises UsageError for a model without a head that predicts tokens."""
        check_token_head(model, "predicts tokens")
        self._model, self._vocabulary = model, model.tokenizer.vocabulary
        self._starts_word = model.tokenizer.starts_word
        self._sees_both = not model.config.one_sided
        network = BertForPretraining(model.config)
        self._compute = jax.jit(partial(log_probabilities, network, self._vocabulary.mask_id))

    def method(self, method: str | None) -> ScoreMethod | None:
        """The method that is used; None for models that don't mask. Raises UsageError for an unknown method, and for
        any method if the model doesn't mask."""
        if self._sees_both:
            return one_of("method", method or "token", ScoreMethod)
        if method:
            raise UsageError(
                f"{Setting('method', method)} is for models that mask, and {self._model.config.one_sided} a token; "
                "leave it out: the score is the log-likelihood"
            )
        return None

    def stream(self, texts: Iterable[Text], method: ScoreMethod | None) -> Iterator[ScoredText]:
        """Yields each text with its log probabilities, in input order and bounded memory. `method`: what `self.method`
        returned. At the end a message says how many texts have no score. Raises UsageError for an element that isn't a
        text, and if probabilities aren't finite."""
        rows, read = tee(self._rows(texts, method))
        found = self._computed(span for row in rows for span in row.spans)
        counts = Counter[str]()
        for row in read:
            counts[row.obstacle] += 1
            logs = np.concatenate([*islice(found, len(row.spans))])
            if not np.isfinite(logs).all():
                raise UsageError(
                    "the model gives probabilities that aren't finite, so its training diverged; give another step"
                )
            yield ScoredText(row.text, row.ids, None if row.obstacle else logs)
        if unscored := sorted(obstacle for obstacle in counts if obstacle):
            reasons = ", ".join(f"{counts[obstacle]:,} {obstacle}" for obstacle in unscored)
            say(f"{counts.total() - counts['']:,} of {counts.total():,} texts have no score: {reasons}")

    def _rows(self, texts: Iterable[Text], method: ScoreMethod | None) -> Iterator[_Row]:
        before, after = self._vocabulary.frame.single
        longest = self._model.config.max_positions
        for text, pieces in text_pieces(texts, self._model.tokenizer, longest + 1):
            ids = np.array([*before, *pieces, *after], np.int32)
            # Nothing stands before the first token of all, so a causal model doesn't predict it.
            begin, end = max(len(before), int(not self._sees_both)), len(ids) - len(after)
            if end <= begin:
                yield _Row(text, [], [(np.array([self._vocabulary.pad_id], np.int32), 0, 0)], "empty")
            elif len(ids) > longest:
                yield _Row(text, [], [(ids[:longest], 0, 0)], f"longer than the model's {longest:,} positions")
            else:
                spans = self._masked(ids, begin, end, method) if method else [(ids, begin, end)]
                yield _Row(text, ids[begin:end].tolist(), spans)

    def _masked(self, ids: Int[np.ndarray, " T"], begin: int, end: int, method: ScoreMethod) -> list[_Span]:
        """A span for each token from `begin` to `end`, with the later pieces of its word if the method masks them."""
        places = np.arange(begin, end)
        ends = places + 1
        if method == "word":
            starts = 1 + begin + np.flatnonzero(self._starts_word[ids[begin + 1 : end]])
            ends = np.append(starts, end)[np.searchsorted(starts, places, side="right")]
        return [(ids, *span) for span in zip(places.tolist(), ends.tolist(), strict=True)]

    def _computed(self, spans: Iterable[_Span]) -> Iterator[Float[np.ndarray, " _"]]:
        """Yields the log probabilities of the tokens that each span predicts, in input order."""
        config = self._model.config
        short = range(_STEP, min(_SHORT, config.max_positions), _STEP)
        lengths, compiling = sorted({*short, *usual_lengths(config.max_positions)}), compiling_tokens(config)
        groups = grouped(spans, lambda span: len(span[0]), lengths, tokens_at_once(), compiling, _WINDOW_GROUPS)
        return in_input_order((group.places, scores) for group, scores in ahead(self._of_group, groups))

    def _of_group(self, group: Group[_Span]) -> Iterable[Float[np.ndarray, " _"]]:
        ids, begins, ends = zip(*group.items, strict=True)
        lengths, free = np.array([*map(len, ids)]), (0, group.shape[0] - len(ids))
        tokens = lay_out(np.concatenate(ids), lengths, lengths, group.shape, pad_id=self._vocabulary.pad_id)
        spans = (np.pad(np.array(each, np.int32), free) for each in (begins, ends))
        found = jax.device_get(self._compute(self._model.params, tokens, *spans))
        if self._sees_both:
            return found
        return [logs[begin:end] for logs, begin, end in zip(found, begins, ends, strict=False)]


def log_probabilities(
    network: BertForPretraining,
    mask_id: int,
    params: Parameters,
    tokens: Tokens,
    begin: Int[Array, " B"],
    end: Int[Array, " B"],
) -> Float[Array, "B _"]:
    """The log probabilities of tokens of each row, in nats.

    For a model that masks, [B, 1]: that of the token at `begin`, with the tokens from `begin` to `end` (exclusive)
    masked. For a causal model, [B, T]: that of each token given the tokens before it; 0 for the first token. With LSTM
    layers, [B, T]: the mean of that and of the log probability given the tokens after it, which is 0 for the last
    token.
    """
    both = network.config.layer == "lstm"
    if network.config.one_sided:
        predicted = (neighbours if both else next_tokens)(tokens)
        logits, _ = network.apply({"params": params}, tokens, None)
        logs = -cross_entropy(logits, predicted.labels)[0] * predicted.weights
        if not both:
            return jnp.pad(logs[:, :-1], ((0, 0), (1, 0)))
        after, before = logs[:, ::2], logs[:, 1::2]
        return (jnp.pad(after[:, :-1], ((0, 0), (1, 0))) + jnp.pad(before[:, 1:], ((0, 0), (0, 1)))) / 2
    at, places = jnp.arange(tokens.ids.shape[1]), begin[:, None]
    hidden = (at >= places) & (at < end[:, None])
    labels = jnp.take_along_axis(tokens.ids, places, axis=1)
    masked = tokens._replace(ids=jnp.where(hidden, mask_id, tokens.ids))
    ranks = jnp.where(hidden, 0, -1) if network.config.has_query_stream else None
    logits, _ = network.apply({"params": params}, masked, places, ranks=ranks)
    return -cross_entropy(logits, labels)[0]
