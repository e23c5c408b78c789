"""What a run's model makes of sentences: fills over its saved steps, attention, and the vectors of one word."""

import base64
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from bert_jax.batching.sequences import joined
from bert_jax.inference.bert import Bert, load
from bert_jax.inference.examples import masked_examples
from bert_jax.instances.shards import HELD_OUT
from bert_jax.instances.store import InstanceSource
from bert_jax.layout import WORD_START
from bert_jax.report.facts import RunFacts
from bert_jax.run.manifest import complete
from bert_jax.system.errors import first_line
from bert_jax.text.spelling import Speller
from bert_jax.text.tokenizer import Tokenizer

_SENTENCES, _TOP = 5, 3
"""Sentences that are filled, and fills of each that are shown."""
_MOST_STEPS = 4
"""Saved steps that the sentences are filled by."""
_MOST_WEIGHTS = 400_000
"""Attention weights in a page, a byte each; the sentence is shortened to that."""
_MOST_TOKENS = 32
"""Tokens of the sentence whose attention is shown: more rows don't fit on a screen."""
_RECORDS = 2000
"""Held-out records that are searched for a word."""
_WORDS, _FEWEST_USES, _MOST_USES = 6, 12, 40
"""Words that are compared, and how often each must occur and is encoded."""
_AROUND = 12
"""Tokens of context on each side of the word."""
_SHORTEST = 4
"""Least letters of the word, unless it is an ideograph."""


class Fills(NamedTuple):
    """One sentence with a mask, filled by the model of several saved steps."""

    text: str
    word: str
    """The masked word."""
    by_step: dict[int, list[tuple[str, float]]]
    """By saved step: the likeliest pieces with their probabilities."""


class Attention(NamedTuple):
    """The attention weights of one sentence."""

    tokens: list[str]
    layers: int
    heads: int
    weights: str
    """Base64 of [L, H, T, T] bytes: each weight as a share of 255, the attending token first."""


class Use(NamedTuple):
    """One use of a word in a held-out text."""

    context: str
    x: float
    y: float
    """Coordinates on the two principal components of the word's vectors."""
    group: int
    """1 or 2, by 2-means."""


class ModelViews(NamedTuple):
    """What a model makes of sentences. Parts are empty or None where they can't be had."""

    fills: list[Fills] = []
    attention: Attention | None = None
    word: str = ""
    """The word of `uses`."""
    uses: list[Use] = []
    problem: str = ""
    """Why the model could not be used; empty if it could."""


def model_views(facts: RunFacts) -> ModelViews:
    """Opens the run's model and uses it. Where that fails, `problem` of the result says why."""
    if jax.process_count() > 1:
        return ModelViews(problem="The model is not shown: it is spread over several processes.")
    if facts.run.newest_step is None:
        return ModelViews(problem="There is no finished checkpoint yet.")
    sentences = [sentence for data in facts.prepared.values() for sentence in data.example_sentences]
    views = ModelViews()
    try:
        bert = load(facts.run.path)
        views = views._replace(fills=_fills(facts, bert, sentences))
        views = views._replace(attention=_attention(bert, sentences or [error["text"] for error in facts.errors]))
        word, uses = _senses(facts, bert)
        return views._replace(word=word, uses=uses)
    except Exception as error:  # whatever a damaged model causes: the page is needed the more
        return views._replace(problem=f"The model can't be shown: {first_line(error)}")


def _fills(facts: RunFacts, bert: Bert, sentences: Sequence[str]) -> list[Fills]:
    """The fills of held-out sentences by saved steps from the first to the last; none of a causal or a task's model."""
    if bert.config.causal or facts.is_task:
        return []
    examples = masked_examples(sentences, bert.tokenizer, bert.config.max_positions - 2)[:_SENTENCES]
    if not examples:
        return []
    saved = [int(path.name) for path in complete(facts.run.checkpoints)]
    chosen = {saved[place] for place in np.linspace(0, len(saved) - 1, _MOST_STEPS).round().astype(int)}
    by_step = {}
    for step in sorted(chosen):
        model = bert if bert.steps == (step,) else load(facts.run.path, step=step)
        by_step[step] = model.fill_mask([text for text, _ in examples], _TOP)
    return [
        Fills(text, word, {step: filled[number][0] for step, filled in by_step.items()})
        for number, (text, word) in enumerate(examples)
    ]


def _attention(bert: Bert, sentences: Sequence[str]) -> Attention | None:
    """The attention of the longest of a few sentences that fit whole, or of the beginning of one that doesn't."""
    if not sentences:
        return None
    heads = bert.config.num_layers * bert.config.num_heads
    most = min(_MOST_TOKENS, bert.config.max_positions, math.isqrt(_MOST_WEIGHTS // heads)) - 2
    encoded = [(bert.tokenizer.encode_spans(text), text) for text in sentences[:_SENTENCES]]
    encoded = [(spans, text) for spans, text in encoded if spans]
    if most < 1 or not encoded:
        return None
    fitting = [(spans, text) for spans, text in encoded if len(spans) <= most]
    spans, text = max(fitting or encoded[:1], key=lambda each: len(each[0]))
    text = text[: spans[:most][-1].end]
    weights = bert.attention(text)
    vocabulary, count = bert.tokenizer.vocabulary, weights.shape[-1]
    ids = joined([bert.tokenizer.encode(text)], vocabulary, count).ids
    packed = base64.b64encode(np.clip(np.rint(weights * 255), 0, 255).astype(np.uint8).tobytes()).decode()
    return Attention([vocabulary.pieces[number] for number in ids], weights.shape[0], weights.shape[1], packed)


def _senses(facts: RunFacts, bert: Bert) -> tuple[str, list[Use]]:
    """The uses of the held-out word whose vectors fall most clearly into two groups; none if no word is frequent."""
    if not facts.prepared:
        return "", []
    best: tuple[float, str, list[Use]] = (0.0, "", [])
    for word, contexts in itertools.islice(_frequent_words(facts, bert.tokenizer), _WORDS):
        texts = [context for context, _ in contexts]
        vectors = [
            feature.vectors[_token_at(bert.tokenizer, context, begin)]
            for feature, (context, begin) in zip(bert.features(texts, layers=(-1,)), contexts, strict=True)
        ]
        clarity, uses = _grouped(np.stack(vectors), texts)
        best = max(best, (clarity, word, uses), key=lambda each: each[0])
    return best[1:]


def _frequent_words(facts: RunFacts, tokenizer: Tokenizer) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """Yields words that are one piece, by frequency, each with texts that it stands in and its place in these."""
    data = facts.prepared[max(facts.prepared)]
    source = InstanceSource(data.directory, HELD_OUT, "skip")
    found = source.read(range(min(len(source), _RECORDS)))
    if not len(found.ids) or found.ids.max() >= len(tokenizer.vocabulary):  # of another vocabulary
        return
    speller, special = Speller(tokenizer), np.isin(found.ids, list(tokenizer.vocabulary.special_ids))
    starts = (found.units & WORD_START) > 0
    whole = starts & np.append((starts | special)[1:], True) & ~special
    ids, counts = np.unique(found.ids[whole], return_counts=True)
    for number in ids[np.argsort(-counts, kind="stable")].tolist():
        places = np.flatnonzero(whole & (found.ids == number))
        if len(places) < _FEWEST_USES:
            return
        word = speller.plain(np.array([number]), np.array([True])).text
        if word.isalpha() and (len(word) >= _SHORTEST or "\u3400" <= word <= "\u9fff"):
            spread = places[np.linspace(0, len(places) - 1, min(len(places), _MOST_USES)).astype(int)]
            yield word, [_use(found.ids, special, int(place), speller) for place in spread]


def _use(ids: np.ndarray, special: np.ndarray, place: int, speller: Speller) -> tuple[str, int]:
    """The text around the word at `place` up to the next special tokens, and the word's place in it."""
    around = range(max(place - _AROUND, 0), min(place + _AROUND + 1, len(ids)))
    begin = max((at + 1 for at in around if at < place and special[at]), default=around.start)
    end = min((at for at in around if at > place and special[at]), default=around.stop)
    spelled = speller.plain(ids[begin:end], np.arange(end - begin) == 0)
    return spelled.text, int(spelled.places[place - begin])


def _token_at(tokenizer: Tokenizer, text: str, place: int) -> int:
    """The number of the token at character `place` of `text`, [CLS] counted."""
    spans = tokenizer.encode_spans(text)
    return next((number for number, span in enumerate(spans, 1) if span.begin <= place < span.end), 0)


def _grouped(vectors: Float[np.ndarray, "N D"], texts: Sequence[str]) -> tuple[float, list[Use]]:
    """The uses on the two principal components of their `vectors`, in two groups by 2-means that begins at both ends
    of the first component; and the share of the variance that the groups explain, 0 if one has fewer than three uses.
    """
    if not np.isfinite(vectors).all():
        return 0.0, []
    centred = vectors - vectors.mean(0)
    left, scale, _ = np.linalg.svd(centred, full_matrices=False)
    plane = left[:, :2] * scale[:2]
    group = plane[:, 0] > 0
    for _ in range(20):
        if group.all() or not group.any():
            break
        middles = np.stack([centred[~group].mean(0), centred[group].mean(0)])
        group = np.argmin(((centred[:, None] - middles) ** 2).sum(-1), axis=1) == 1
    explained = 0.0
    if 3 <= group.sum() <= len(group) - 3:
        within = sum(((centred[group == side] - centred[group == side].mean(0)) ** 2).sum() for side in (False, True))
        explained = 1 - float(within) / max(float((centred**2).sum()), 1e-9)
    return explained, [
        Use(text, round(float(x), 3), round(float(y), 3), 1 + int(side))
        for text, (x, y), side in zip(texts, plane, group, strict=True)
    ]
