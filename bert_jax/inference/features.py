"""What inference computes of a batch: vectors of tokens and texts.

Vectors of chosen layers are for feature-based models (Devlin et al. 2019, section 5.3).
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from itertools import tee
from typing import Any, NamedTuple, TypeVar, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bert_jax.batching.grouping import WINDOW_GROUPS, ahead, grouped, usual_lengths
from bert_jax.config.model import ModelConfig
from bert_jax.config.vectors import NO_PROMPT, Join, Pool, Precision, Prompt
from bert_jax.inference.batches import Output, PlacedBatch, Text, in_order, token_sequences
from bert_jax.inference.vector_file import SAMPLED_NUMBERS, Origin, model_content
from bert_jax.layout import Tokens, TokenSequence, lay_out_sequences
from bert_jax.model.bert import BertForPretraining, Encoded, Parameters
from bert_jax.model.task import normalised, pooled
from bert_jax.system.errors import Setting, UsageError
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.training.devices import compiling_tokens, tokens_at_once

Computed = TypeVar("Computed", Encoded, Output)
_LAST = 4
"""Default number of layers, from the last: concatenated, they are the best choice in table 7 of Devlin et al. 2019."""


class Feature(NamedTuple):
    """The vectors of one text of T tokens."""

    text: Text
    pieces: list[str]
    """The T tokens, [CLS] and [SEP] included."""
    vectors: Float[np.ndarray, "..."]
    """Shape [T, X], or [X] if pooled. X is the width, or with join "concat" the width times the number of layers.

    With join "none" a vector has shape [layers, width]."""


class Choice(NamedTuple):
    """Which layers' vectors are computed, and how they are joined and pooled."""

    layers: tuple[int, ...]
    """Layer numbers in the order in which they are joined: 0 for the embeddings, 1 to L for the blocks."""
    join: Join
    pool: Pool
    dtype: Precision
    width: int | None = None
    """Number of leading components of a pooled vector that are kept and scaled to norm 1. None: all are kept, not
    scaled."""

    @classmethod
    def of(cls, layers: Iterable[int], join: str, pool: str, dtype: str, count: int) -> "Choice":
        """Checks the settings for a model of `count` blocks. Negative `layers` count from the last one, -1.

        Empty `layers` mean the last four, or all of a model that has fewer. Raises UsageError if a layer doesn't exist
        or is named twice, or if `join`, `pool` or `dtype` has an unknown value.
        """
        words = (one_of("join", join, Join), one_of("pool", pool, Pool), one_of("dtype", dtype, Precision))
        named = tuple(layers) if isinstance(layers, Iterable) else (None,)
        if not all(isinstance(layer, int | np.integer) for layer in named):
            raise UsageError(f"layers={layers!r} is no list of whole numbers; give one, as layers=[-2, -1]")
        layers = named or range(-1, -1 - min(_LAST, count), -1)
        if absent := [layer for layer in layers if not -count <= layer <= count]:
            raise UsageError(
                f"there is no layer {absent[0]}: the model has {count}, which are 1 to {count} or, from the last, -1 "
                f"to {-count}; 0 are the embeddings"
            )
        numbers = tuple(layer % (count + 1) for layer in layers)
        if len(set(numbers)) < len(numbers):
            raise UsageError(
                f"layers {' '.join(map(str, layers))} name one twice, as -1 and {count} would; leave one out"
            )
        return cls(numbers, *words)

    @property
    def described(self) -> str:
        """What is computed of each text, in words: "the mean over its tokens (layer 6; 384 numbers, normalised)"."""
        pools = {"none": "a vector of each token", "cls": "that of [CLS]", "max": "the maximum over its tokens"}
        layers = f"layer{'s' * (len(self.layers) > 1)} {' '.join(map(str, self.layers))}"
        joined = f" by {self.join}" if len(self.layers) > 1 else ""
        shape = f"; {self.width} numbers, normalised" if self.width else ""
        return f"{pools.get(self.pool, 'the mean over its tokens')} ({layers}{joined}{shape})"

    @property
    def vectors_a_token(self) -> int:
        """Most vectors of the model's width that are copied from the device per token; 1 if they are pooled."""
        return len(self.layers) if self.pool == "none" and self.join in ("concat", "none") else 1


def check_count(name: str, value: object) -> None:
    """Raises UsageError if `value` is no whole number of at least 1."""
    if not isinstance(value, int | np.integer) or value < 1:
        raise UsageError(f"{Setting(name, value)} is no whole number of at least 1; give one")


def one_of(name: str, value: str, allowed: Any) -> Any:
    """`value`. Raises UsageError if it isn't one of the literals `allowed`."""
    if value not in get_args(allowed):
        raise UsageError(f"{name}={value!r} is unknown; choose from {', '.join(get_args(allowed))}")
    return value


class BatchedModel:
    """A model that computes any number of texts in batches of similar length, in bounded memory."""

    def __init__(self, config: ModelConfig, params: Parameters, tokenizer: Tokenizer):
        self.config, self.params, self.tokenizer = config, params, tokenizer
        self._encode = jax.jit(
            partial(encode, BertForPretraining(config)), static_argnames=("return_attention", "mask_id")
        )
        self._features = jax.jit(partial(features, config), static_argnames="choice")

    def sequences(
        self, texts: Iterable[Text], longest: int | None = None, prompt: Prompt = NO_PROMPT, special: bool = False
    ) -> Iterator[TokenSequence]:
        """Yields texts or pairs as token ids, after `prompt` and cut to `longest` tokens; None: the model's positions.
        `special`: whether a special piece written in a text, such as [MASK], becomes that piece; otherwise it is read
        as ordinary characters.

        Raises UsageError for a text that isn't valid Unicode.
        """
        return token_sequences(texts, self.tokenizer, longest or self.config.max_positions, prompt, special)

    def encoded(
        self, sequences: Iterable[TokenSequence], return_attention: bool = False, for_masks: bool = False
    ) -> Iterator[tuple[PlacedBatch, Encoded]]:
        """Yields batches of sequences with their vectors and, if asked for, their attention weights. `for_masks`:
        whether only the vectors from which masks are filled are needed: those of a query stream or of a mask decoder,
        if the model has one."""
        differ = self.config.has_query_stream or self.config.mask_decoder  # otherwise one program serves both
        mask_id = self.tokenizer.vocabulary.mask_id if for_masks and differ else None
        return self._computed(sequences, partial(self._encode, return_attention=return_attention, mask_id=mask_id))

    def features(
        self, texts: Iterable[Text], choice: Choice, longest: int | None = None, prompt: Prompt = NO_PROMPT
    ) -> Iterator[Feature]:
        """Yields each text, in input order, with the vectors of a choice; `longest` and `prompt` as in `sequences`."""
        texts, inputs = tee(texts)
        rows, read = tee(self.sequences(texts, longest, prompt))
        window = max(WINDOW_GROUPS // choice.vectors_a_token, 1)
        pieces = self.tokenizer.vocabulary.pieces
        computed = in_order(self._computed(rows, partial(self._features, choice=choice), window))
        for output, row, text in zip(computed, read, inputs, strict=True):  # `computed` first: it drives the others
            vectors = output.tokens if choice.pool == "none" else output.pooled
            assert vectors is not None
            yield Feature(text, [pieces[number] for number in row.ids], vectors)

    def _computed(
        self,
        sequences: Iterable[TokenSequence],
        compute: Callable[[Parameters, Tokens], Computed],
        window: int = WINDOW_GROUPS,
    ) -> Iterator[tuple[PlacedBatch, Computed]]:
        """Yields each batch with its output as numpy arrays; the next batches are computed in the background.

        Sequences are padded to 16, 24, 32, 48, 64, ... tokens; within `window` batches they are sorted by length.
        """
        pad_id, lengths = self.tokenizer.vocabulary.pad_id, usual_lengths(self.config.max_positions)
        groups = grouped(
            sequences,
            lambda sequence: len(sequence.ids),
            lengths,
            tokens_at_once(),
            compiling_tokens(self.config),
            window,
        )
        batches = (PlacedBatch(group.places, lay_out_sequences(group.items, group.shape, pad_id)) for group in groups)
        return ahead(lambda batch: jax.device_get(compute(self.params, batch.tokens)), batches)

    @cached_property
    def _hashes(self) -> dict[str, str]:
        sampled = model_content(self.params, self.tokenizer, SAMPLED_NUMBERS)
        return {"model": sampled, "model_content": model_content(self.params, self.tokenizer)}

    def origin(self, choice: Choice, prompt: Prompt = NO_PROMPT) -> Origin:
        """Identifies the model, the layers and the prompt of vectors in a file, to refuse vectors of other models."""
        return Origin(**self._hashes, vectors=choice._replace(width=None).described, prompt=prompt.text)


def encode(
    network: BertForPretraining,
    params: Parameters,
    tokens: Tokens,
    return_attention: bool = False,
    mask_id: int | None = None,
) -> Encoded:
    """Encodes a batch with one sequence per row: `pooled` has shape [B, D]. With `mask_id`, the vectors are those from
    which the head predicts; those of a query stream see no token of this id."""
    for_masks = mask_id is not None
    ranks = jnp.where(tokens.ids == mask_id, 0, -1) if for_masks and network.config.has_query_stream else None
    encoded = network.bind({"params": params}).encode(
        tokens, return_attention=return_attention, ranks=ranks, for_masks=for_masks
    )
    return encoded if encoded.pooled is None else encoded._replace(pooled=encoded.pooled[:, 0])


def features(config: ModelConfig, params: Parameters, tokens: Tokens, choice: Choice) -> Output:
    """Computes the vectors of each token, or with pooling of each text, in a batch with one text per row.

    Blocks above the highest layer of `choice` aren't computed. With model.norm=pre one more block is computed, because
    the norm after the last block would otherwise be applied to a layer that isn't the last.
    """
    depth = max(*choice.layers, 1)
    if config.norm == "pre":
        depth = min(depth + 1, config.num_layers)
    encoder = params["bert"]["encoder"]
    # Blocks that share their parameters have a stack of one. A parameter that the first block lacks has one row less.
    blocks = jax.tree.map(lambda leaf: leaf[: max(len(leaf) - (config.num_layers - depth), 1)], encoder["layers"])
    variables = {"params": {**params, "bert": {**params["bert"], "encoder": {**encoder, "layers": blocks}}}}
    network = BertForPretraining(config.replace(num_layers=depth)).bind(variables)
    layers = network.encode(tokens, return_layers=True).layers
    assert layers is not None
    vectors = _joined([layers[number].astype(jnp.float32) for number in choice.layers], choice.join)
    if choice.pool == "none":
        return Output(vectors.astype(choice.dtype), None)
    of_texts = pooled(config, vectors, tokens, choice.pool)[:, 0]
    if choice.width:
        of_texts = normalised(of_texts, choice.width)
    return Output(None, of_texts.astype(choice.dtype))


def _joined(layers: list[Float[Array, "B T D"]], join: Join) -> Float[Array, "B T ..."]:
    if join == "concat":
        return jnp.concatenate(layers, axis=-1)
    stacked = jnp.stack(layers, axis=2)
    if join == "sum":
        return stacked.sum(axis=2)
    if join == "mean":
        return stacked.mean(axis=2)
    return stacked
