"""BERT: embeddings, encoder, pooler and the two pretraining heads; and ELECTRA's two models with one set of tables.

Letters in shapes and einsum strings, here and everywhere:

    B batch          T query positions    S key positions     L layers
    D width          H heads              K head width        F feed-forward width
    V vocabulary     P predicted slots    R chosen places     N sequences that a row may hold
    E table width
"""

import functools
import math
from collections.abc import Callable, Collection, Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int, Key

from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import ExecutionConfig
from bert_jax.layout import Tokens, TokenSequence, lay_out_sequences
from bert_jax.model.attention import at_places
from bert_jax.model.attention_pattern import AttentionPattern
from bert_jax.model.dropout import split
from bert_jax.model.embeddings import Embeddings
from bert_jax.model.encoder import UNTRAINED, Encoder
from bert_jax.model.heads import MaskedLanguageHead, NextSentenceHead, Pooler, ReplacedTokenHead, TokenLogits
from bert_jax.model.positions import SCHEMES
from bert_jax.model.relatives.characters import CharacterEmbeddings, Spelling
from bert_jax.model.relatives.lstm import LstmEncoder
from bert_jax.model.relatives.relative_positions import query_vectors, with_query_stream

Parameters = dict[str, Any]
"""A nested dict of float32 arrays. A block's parameters carry a leading layer axis."""

_OF_BERT = ("bert/pooler", "masked_lm", "next_sentence")
PART_NAMES = {
    "bert/pooler": "pooler",
    "masked_lm": "masked-language head",
    "next_sentence": "head for pairs",
    "replaced": "discriminator's head",
    "generator": "generator",
}
"""The names of OPTIONAL_PARTS in messages."""
OPTIONAL_PARTS = tuple(PART_NAMES)
"""Parts that a model may lack as a whole. The rest is the encoder."""
_UNSHARED = ("projection",)
"""Parts of the embeddings that a generator and its discriminator never share."""
DISENTANGLED_TABLES = ("word", "position")
"""The tables of a discriminator that may be the generator's plus a difference (`shared_embeddings`)."""
TEACHER = "teacher"
"""Name of the teacher's parameters in a training's parameter tree. No step changes them."""


_ENCODERS: dict[str, type[Encoder] | type[LstmEncoder]] = {"attention": Encoder, "lstm": LstmEncoder}
"""The stack of layers, by the setting model.layer."""


class Encoded(NamedTuple):
    """The encoder's output for B rows."""

    tokens: Float[Array, "B R D"]
    """The last layer's vector at the chosen places, by default at every token."""
    pooled: Float[Array, "B N D"] | None
    """One vector a sequence; None if the parameters have no pooler."""
    layers: Float[Array, "_ B T D"] | None
    """If requested, L + 1 arrays: the embeddings, then every layer's vectors."""
    attention: Float[Array, "L B H T T"] | None
    """If requested, every layer's attention probabilities."""


class BertEncoder(nn.Module):
    """Embeddings, blocks and pooler: the part of the model that is kept after pretraining."""

    config: ModelConfig
    execution: ExecutionConfig = UNTRAINED
    frozen_layers: int | None = None
    """Number of blocks, from the first, that get no gradient; the embeddings get none either, even for 0. None: all
    parameters get gradients."""

    def setup(self):
        if self.config.character_filters:
            self.spelling = Spelling(self.config)
            self.embeddings: CharacterEmbeddings | Embeddings = CharacterEmbeddings(self.config, self.spelling)
        else:
            self.embeddings = Embeddings(self.config)
        self.encoder = _ENCODERS[self.config.layer](self.config, self.execution, self.frozen_layers)
        self.pooler = Pooler(self.config)

    def __call__(
        self,
        tokens: Tokens,
        dropout_keys: Key[Array, "B N"] | None = None,
        places: Int[Array, "B R"] | None = None,
        return_layers: bool = False,
        return_attention: bool = False,
        ranks: Int[Array, "B T"] | None = None,
        positions: Float[Array, "B R D"] | None = None,
    ) -> Encoded:
        """The vectors of B rows of tokens.

        `dropout_keys` holds one key a sequence; None means no dropout. With `places` the result's `tokens` are the
        vectors at these places of each row. Their values are the same, and they take less work unless layers or
        attention are requested. Ids must lie within the vocabulary; batches are checked where they are read.

        With `ranks`, each token's place in the order of prediction (-1: it isn't predicted), the vectors at `places`
        are those of the query stream, which see only tokens of lower ranks. In the result's `layers` and `attention`,
        the query stream follows the T tokens.

        With `positions`, a vector of each place's absolute position, the vectors at `places` are the mask decoder's
        (`Encoder`).
        """
        config, ends = self.config, pooled_places(self.config, tokens)
        in_embeddings, in_encoder = (None, None) if dropout_keys is None else split(dropout_keys, 2)
        embedded = self.embeddings(tokens, in_embeddings)
        pattern = AttentionPattern.of(tokens, config.causal, SCHEMES[config.positions].segments(config, tokens))
        if ranks is not None:
            assert places is not None, "the query stream needs places"
            stream = query_vectors(self.embeddings.mask, config, tokens, places, in_embeddings)
            embedded, pattern = jnp.concatenate([embedded, stream], axis=1), with_query_stream(pattern, places, ranks)
            places = jnp.broadcast_to(tokens.ids.shape[1] + jnp.arange(places.shape[1]), places.shape)
        if self.frozen_layers is not None:
            embedded = jax.lax.stop_gradient(embedded)
        if places is None:
            x, layers, attention = self.encoder(embedded, pattern, in_encoder, None, return_layers, return_attention)
            at_ends = at_places(x, ends)
        elif positions is not None:
            assert isinstance(self.encoder, Encoder), "a mask decoder needs attention"
            decoded = places, positions
            at_ends, layers, attention = self.encoder(embedded, pattern, in_encoder, ends, decoded=decoded)
            at_ends, x = jnp.split(at_ends, [ends.shape[1]], axis=1)
        else:
            places = jnp.concatenate([ends, places], axis=1)
            x, layers, attention = self.encoder(embedded, pattern, in_encoder, places, return_layers, return_attention)
            at_ends, x = jnp.split(x, [ends.shape[1]], axis=1)
        if layers is not None:  # both directions of LSTM layers read the embeddings
            layers = jnp.concatenate([jnp.tile(embedded, config.hidden_size // config.input_size)[None], layers])
        has_pooler = self.is_initializing() or self.has_variable("params", "pooler")
        return Encoded(x, self.pooler(of_ends(config, at_ends)) if has_pooler else None, layers, attention)


def pooled_places(config: ModelConfig, tokens: Tokens, left_out: int | Int[Array, "B N"] = 0) -> Int[Array, "B M"]:
    """The places in the row of each sequence's pooled tokens (`config.pooled_ends`: first, last, or both), sequence
    after sequence. The first token of a sequence is the one after its `left_out` leading tokens."""
    ends = {"first": tokens.begin + left_out, "last": tokens.begin + jnp.maximum(tokens.length - 1, 0)}
    return jnp.stack([ends[end] for end in config.pooled_ends], axis=-1).reshape(len(tokens.begin), -1)


def of_ends(config: ModelConfig, x: Float[Array, "B M ..."]) -> Float[Array, "B N ..."]:
    """The vector of each sequence, from those at its `pooled_places`. Of two places, each gives the features of one
    direction."""
    ends = len(config.pooled_ends)
    shares = x.reshape(len(x), -1, ends, math.prod(x.shape[2:]) // config.hidden_size, ends, config.hidden_size // ends)
    return jnp.stack([shares[:, :, end, :, end] for end in range(ends)], axis=3).reshape(len(x), -1, *x.shape[2:])


class BertForPretraining(nn.Module):
    """The encoder with both heads. Its parameters may lack the pooler and the head for pairs."""

    config: ModelConfig
    execution: ExecutionConfig = UNTRAINED

    def setup(self):
        self.bert = BertEncoder(self.config, self.execution)
        self.masked_lm = MaskedLanguageHead(self.config)
        self.next_sentence = NextSentenceHead(self.config)

    def __call__(self, *arguments: Any, **options: Any) -> tuple[Float[Array, "B Q V"], Float[Array, "B N 2"] | None]:
        """The results of `predict`, with the logits over the vocabulary as one array."""
        logits, pairs = self.predict(*arguments, **options)
        return logits.whole(), pairs

    def predict(
        self,
        tokens: Tokens,
        places: Int[Array, "B P"] | None = None,
        dropout_keys: Key[Array, "B N"] | None = None,
        ranks: Int[Array, "B T"] | None = None,
    ) -> tuple[TokenLogits, Float[Array, "B N 2"] | None]:
        """Float32 logits over the padded vocabulary at `places` of each row (None: at all), and logits of each pair
        (None without a head for pairs). With `ranks`, the order of prediction, the query stream predicts
        (`BertEncoder`). There is a slot (Q) for each place; with LSTM layers there are two, first that of the forwards
        direction, then that of the backwards direction."""
        places, positions = self._decoded(tokens, places)
        encoded = self.bert(tokens, dropout_keys, places, ranks=ranks, positions=positions)
        has_pairs = self.is_initializing() or self.has_variable("params", "next_sentence")
        pairs = None
        if has_pairs:
            assert encoded.pooled is not None, "a head for pairs needs a pooler"
            pairs = self.next_sentence(encoded.pooled)
        predicting = encoded.tokens.reshape(len(encoded.tokens), -1, self.config.input_size)
        return self.masked_lm(predicting, self.bert.embeddings.word), pairs

    def encode(
        self,
        tokens: Tokens,
        return_layers: bool = False,
        return_attention: bool = False,
        ranks: Int[Array, "B T"] | None = None,
        for_masks: bool = False,
    ) -> Encoded:
        """The encoder alone, at every token and without dropout: `model.apply(variables, ..., method="encode")`. With
        `ranks`, the order of prediction, the vectors are those of the query stream; with `for_masks`, they are those
        from which the head predicts tokens."""
        places, positions = None, None
        if ranks is not None:
            places = jnp.broadcast_to(jnp.arange(ranks.shape[1]), ranks.shape)
        if for_masks:
            places, positions = self._decoded(tokens, places)
        return self.bert(tokens, None, places, return_layers, return_attention, ranks, positions)

    def _decoded(
        self, tokens: Tokens, places: Int[Array, "B P"] | None
    ) -> tuple[Int[Array, "B P"] | None, Float[Array, "B P D"] | None]:
        """The places of the tokens to predict, and the mask decoder's vectors of their positions; without a decoder
        `places` and None."""
        if not self.config.mask_decoder:
            return places, None
        if places is None:
            places = jnp.broadcast_to(jnp.arange(tokens.ids.shape[1]), tokens.ids.shape)
        return places, self.masked_lm.positions(tokens, places)


class Discriminator(nn.Module):
    """The encoder with the head that classifies tokens as original or replaced (Clark et al. 2020, section 2)."""

    config: ModelConfig
    execution: ExecutionConfig = UNTRAINED

    def setup(self):
        self.bert = BertEncoder(self.config, self.execution)
        self.replaced = ReplacedTokenHead(self.config)

    def __call__(self, tokens: Tokens, dropout_keys: Key[Array, "B N"] | None = None) -> Float[Array, "B T"]:
        """Float32 logits that each token was replaced."""
        return self.replaced(self.bert(tokens, dropout_keys).tokens)


@functools.partial(jax.jit, static_argnums=0)
def init(config: ModelConfig, key: Key[Array, ""]) -> Parameters:
    """Initial parameters of encoder and heads. `config.vocabulary_size` must be set. Equal keys give equal values.

    A discriminator has its head and, where `config.generator_divisor` is set, the generator's own parameters; neither
    has a pooler. This function is jitted, since compiling each operation by itself would take seconds.
    """
    if not config.discriminator:
        params = BertForPretraining(config).init(key, one_token(), jnp.zeros((1, 1), jnp.int32))["params"]
        return without(params, {*_OF_BERT} - _optional_parts(config))
    in_discriminator, in_generator = jax.random.split(key)
    params = without(Discriminator(config).init(in_discriminator, one_token())["params"], _OF_BERT)
    if config.generator:
        own = without(init(config.generator, in_generator), ("bert/pooler", "next_sentence"))
        theirs, embeddings = params["bert"]["embeddings"], own["bert"].pop("embeddings")
        if config.shared_embeddings == "all":
            embeddings = {name: part for name, part in embeddings.items() if name in _UNSHARED}
        elif config.shared_embeddings == "disentangled":
            tables = embeddings.keys() & DISENTANGLED_TABLES
            params["bert"]["embeddings"] = theirs | {name: embeddings[name] for name in tables}
        params["generator"] = own | {"bert": own["bert"] | ({"embeddings": embeddings} if embeddings else {})}
    return params


def generator_parameters(params: Parameters) -> Parameters:
    """The parameters of a discriminator's generator as a model of its own, whose config is `ModelConfig.generator`.
    Embeddings that the generator lacks are the discriminator's; both models use and train these (Clark et al. 2020,
    section 3.2)."""
    own = params["generator"]
    shared = {name: part for name, part in params["bert"]["embeddings"].items() if name not in _UNSHARED}
    embeddings = {**shared, **own["bert"].get("embeddings", {})}
    return {**own, "bert": {**own["bert"], "embeddings": embeddings}}


def one_token() -> Tokens:
    """A row of one token to initialise modules with; its content doesn't affect the parameters."""
    return jax.tree.map(jnp.asarray, lay_out_sequences([TokenSequence([0], 1)], (1, 1), pad_id=0))


def parameter_shapes(config: ModelConfig, absent: Collection[str] = ()) -> Parameters:
    """The tree of `init`, without the parts `absent`, as shapes and types; nothing is allocated."""
    return without(shapes_of(init, config), absent)


def shapes_of(initialise: Callable[..., Parameters], *arguments: Hashable) -> Parameters:
    """The tree of `initialise(*arguments, key)` as shapes and types. Equal calls are traced once in a process."""
    return jax.tree.map(lambda leaf: leaf, _traced_shapes(initialise, *arguments))  # new dicts, which may be changed


@functools.lru_cache(maxsize=16)
def _traced_shapes(initialise: Callable[..., Parameters], *arguments: Hashable) -> Parameters:
    return jax.eval_shape(lambda: initialise(*arguments, jax.random.key(0)))


def without(params: Parameters, absent: Collection[str]) -> Parameters:
    """`params` without some of OPTIONAL_PARTS."""
    encoder = {name: part for name, part in params["bert"].items() if f"bert/{name}" not in absent}
    return {name: part for name, part in params.items() if name not in absent} | {"bert": encoder}


def split_teacher(params: Parameters) -> tuple[Parameters, Parameters]:
    """`params` without the teacher's, and the teacher's alone (empty without a teacher)."""
    own = {name: part for name, part in params.items() if name != TEACHER}
    return own, {name: part for name, part in params.items() if name == TEACHER}


def completed(params: Parameters, others: Parameters) -> Parameters:
    """`params` with those parts of `others` that `params` lacks."""
    return {**others, **params, "bert": {**others["bert"], **params["bert"]}}


def absent_parts(params: Parameters, config: ModelConfig) -> frozenset[str]:
    """The members of OPTIONAL_PARTS that a model of `config` has and `params` lacks."""
    return frozenset(_optional_parts(config)) - {*params, *(f"bert/{name}" for name in params["bert"])}


def _optional_parts(config: ModelConfig) -> set[str]:
    """The members of OPTIONAL_PARTS that a pretrained model of `config` has."""
    if config.discriminator:
        return {"replaced", "generator"} if config.generator else {"replaced"}
    return {*_OF_BERT} if config.has_pair_head else {"masked_lm"}
