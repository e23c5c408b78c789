"""Shows a run's model on sentences: masks filled by the models of several saved steps, and attention weights."""

import base64
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from bert_jax.batching.sequences import joined
from bert_jax.inference.bert import Bert, bert_of
from bert_jax.inference.filling import masked_examples
from bert_jax.products.report.run_summary import RunSummary
from bert_jax.run.checkpoint_manifest import complete
from bert_jax.system.errors import first_line

_SENTENCES, _TOP = 5, 3
"""Number of sentences whose masks are filled, and of fills shown for each."""
_MOST_STEPS = 4
"""Number of saved steps whose models fill the sentences."""
_MOST_WEIGHTS = 400_000
"""Most attention weights in a page, a byte each. A sentence with more weights is shortened."""
_MOST_TOKENS = 32
"""Tokens of the sentence whose attention is shown: more rows don't fit on a screen."""


class Fills(NamedTuple):
    """One sentence with a mask, filled by the model of several saved steps."""

    text: str
    word: str
    """The masked word."""
    step_fills: dict[int, list[tuple[str, float]]]
    """By saved step: the likeliest pieces with their probabilities."""


class Attention(NamedTuple):
    """The attention weights of one sentence."""

    tokens: list[str]
    layers: int
    heads: int
    weights: str
    """Base64 of [L, H, T, T] bytes: weights times 255, by layer, head, attending token and attended token."""


class ModelViews(NamedTuple):
    """Fills and attention of a model. Each is empty or None if it can't be computed."""

    fills: list[Fills] = []
    attention: Attention | None = None
    problem: str = ""
    """Why the model could not be used; empty if it was used."""


def model_views(summary: RunSummary) -> ModelViews:
    """Opens the run's model and uses it. Where that fails, `problem` of the result says why."""
    if jax.process_count() > 1:
        return ModelViews(problem="The model is not shown: it is spread over several processes.")
    if summary.run.newest_step is None:
        return ModelViews(problem="There is no finished checkpoint yet.")
    sentences = [sentence for data in summary.prepared.values() for sentence in data.example_sentences]
    views = ModelViews()
    try:
        bert = bert_of(summary.run.files)
        views = views._replace(fills=_fills(summary, bert, sentences))
        return views._replace(
            attention=_attention(bert, sentences or [str(mistake.text) for mistake in summary.results.errors or ()])
        )
    except Exception as error:  # whatever a damaged model causes, the rest of the page is still written
        return views._replace(problem=f"The model can't be shown: {first_line(error)}")


def _fills(summary: RunSummary, bert: Bert, sentences: Sequence[str]) -> list[Fills]:
    """Fills held-out sentences with the models of saved steps from the first to the last; empty for a one-sided or a
    fine-tuned model."""
    if bert.config.one_sided or summary.is_task:
        return []
    examples = masked_examples(sentences, bert.tokenizer, bert.config.max_positions - 2)[:_SENTENCES]
    if not examples:
        return []
    saved = [int(path.name) for path in complete(summary.run.checkpoints)]
    chosen = {saved[place] for place in np.linspace(0, len(saved) - 1, _MOST_STEPS).round().astype(int)}
    step_fills = {}
    for step in sorted(chosen):
        model = bert if bert.steps == (step,) else bert_of(summary.run.files, step)
        step_fills[step] = model.fill_mask([text for text, _ in examples], _TOP)
    return [
        Fills(text, word, {step: filled[number][0] for step, filled in step_fills.items()})
        for number, (text, word) in enumerate(examples)
    ]


def _attention(bert: Bert, sentences: Sequence[str]) -> Attention | None:
    """The attention weights of the longest of a few sentences that fits; if none fits, of the beginning of the first.
    None for LSTM layers."""
    if not sentences or bert.config.layer == "lstm":
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
