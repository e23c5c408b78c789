"""The parameters that a run begins with: those of a trained model, and the spelling of pieces."""

import functools
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.tree_util import KeyPath
from jaxtyping import Array, Bool, Float, Int, Key

from bert_jax.config.model import ModelConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.wording import counted
from bert_jax.instances.prepared_data import TRAIN, PreparedData
from bert_jax.instances.shards import InstanceSource
from bert_jax.model.bert import (
    DISENTANGLED_TABLES,
    PART_NAMES,
    Parameters,
    absent_parts,
    init,
    parameter_shapes,
    without,
)
from bert_jax.model.embeddings import padded_vocabulary_size, vocabulary_size
from bert_jax.model.parameters import PARAMETERS, parameter_at, path_of
from bert_jax.model.positions import SCHEMES
from bert_jax.model.relatives.characters import (
    BEGIN_SENTENCE,
    BEGIN_WORD,
    END_SENTENCE,
    END_WORD,
    LONGEST_PIECE,
    PADDING,
)
from bert_jax.model.sharding import tree_shardings
from bert_jax.pretraining.exchange import combinations
from bert_jax.run.opened_models import OpenedModels
from bert_jax.run.trained_model import TrainedModel
from bert_jax.system.errors import Setting, UsageError
from bert_jax.system.progress import say
from bert_jax.system.reading import Reading
from bert_jax.text.extension import check_extension
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.training.step import purpose_key

_NEVER = -100.0
"""Bias of the rows of a table that have no piece."""
_READ_FROM_PAIRS = ("bert/pooler", "next_sentence")
"""Parts that are trained on pairs of segments."""
_MAY_DIFFER = {
    *("causal", "rotary_base", "dropout", "attention_dropout", "initializer_range"),
    *("compute_dtype", "vocabulary_size"),
}
"""Settings that may differ between a model and its initial model: parameters learned with one value are a good start
for another. (Vocabularies are compared piece by piece.) Without a table of positions, `max_positions` may differ too.
"""


def open_initial(config: RunConfig, opened: OpenedModels) -> TrainedModel | None:
    """The model that `config.init` names, or None. Raises UsageError if the model is missing or doesn't fit
    `config.model`."""
    if config.init is None:
        return None
    trained = opened.model(config.init)
    if trained.task:
        say(
            f"{config.init} was fine-tuned for {trained.task.name}: only its encoder is used, without its head and "
            "pooling"
        )
    theirs, ours = (_shaping(model, config) for model in (trained.config, config.model))
    if config.init_layers:
        _check_layers(trained, config)
        theirs |= {name: ours[name] for name in ("num_layers", "generator_layers")}
    if _drops_segments(trained, config.model):
        theirs |= {name: ours[name] for name in ("num_segments", "pooler", "model_type")}
    if "pooler" not in trained.shapes["bert"]:  # the initial model has no pooler: a random one of any kind is added
        theirs["pooler"] = ours["pooler"]
    if "generator" not in trained.shapes:  # the initial model has no generator: a random one of any size is added
        theirs |= {name: ours[name] for name in ("generator_divisor", "generator_layers", "shared_embeddings")}
    # The initial model has no head: a random one of any kind is added.
    if not {"masked_lm", "generator"} & trained.shapes.keys():
        theirs |= {name: ours[name] for name in ("head_activation", "head", "tied_words", "mask_decoder")}
    if theirs != ours:
        differing = [name for name in ours if theirs[name] != ours[name]]
        differences = "; ".join(
            f"{Setting(f'model.{name}')} is {theirs[name]} there and {ours[name]} here" for name in differing
        )
        raise UsageError(
            f"the model of {Setting('init', config.init)} doesn't fit this config: {differences}; give the settings "
            "of that model, or its run in place of a config file"
        )
    return trained


def initial_parameters(
    trained: TrainedModel,
    config: RunConfig,
    tokenizer: Tokenizer,
    mesh: Mesh,
    prepared: PreparedData | None = None,
    keep: Callable[[Reading], None] | None = None,
) -> Parameters:
    """The parameters of `trained` for a run of `config` with `tokenizer`, which may extend or replace the vocabulary.

    `prepared`: the run's text, from which static vectors of an exchanged vocabulary are trained. `keep` receives a
    reading that says how the rows of an exchanged vocabulary begin. Raises UsageError if the vocabulary of `tokenizer`
    isn't to replace that of `trained` (`vocabulary.exchange`) and doesn't extend it.
    """
    if not config.vocabulary.exchange:
        check_extension(trained.tokenizer, tokenizer)
    # The head of a task isn't pretrained.
    start = _Start(*trained.with_parameters(mesh)).without(["task"])
    drops_segments = _drops_segments(trained, config.model)
    if drops_segments:
        start = _without_segments(start, config.model)
    if config.init_layers:
        start = _with_layers(start, config.init_layers)
    absent = absent_parts(start.trained.shapes, config.model)
    has_words = "word" in start.trained.shapes["bert"]["embeddings"]
    begins_tied = "masked_lm" in absent and has_words and config.model.table_size == config.model.hidden_size
    # Left out below: parts that other messages describe and, without pairs, those that only pairs use.
    named = {
        *(_READ_FROM_PAIRS if drops_segments or config.objective.pair == "none" else ()),
        *(["masked_lm"] if begins_tied else ()),
    }
    if missing := " and no ".join(PART_NAMES[part] for part in sorted(absent - named)):
        say(f"the model to start from has no {missing}: random values are put there")
    params = start.params
    if config.vocabulary.exchange or tokenizer.vocabulary.pieces != trained.tokenizer.vocabulary.pieces:
        text = InstanceSource(prepared, TRAIN, config.input.damaged_records) if prepared else None
        params = _with_vocabulary(start, config, tokenizer, mesh, text, keep)
    model, begins = config.model.replace(vocabulary_size=len(tokenizer.vocabulary)), {}
    if "generator" in absent and model.shared_embeddings == "disentangled":
        key = purpose_key(config.seed, "parameters")
        begins["generator"] = functools.partial(_generator_with, model=model, key=key)
    if begins_tied:
        say("the model to start from has no masked-language head: it begins near the identity, with the word table")
        counts = prepared.piece_counts if prepared else np.zeros(len(tokenizer.vocabulary), int)
        begins["masked_lm"] = functools.partial(_near_identity, model=model, counts=counts)
    embeddings, shardings = params["bert"]["embeddings"], tree_shardings(parameter_shapes(model), mesh)
    begun = {part: jax.jit(begin, out_shardings=shardings[part])(embeddings) for part, begin in begins.items()}
    return {**params, **begun}


class _Start(NamedTuple):
    """A model to start from, as far as it is fitted to the run."""

    trained: TrainedModel
    params: Parameters

    def without(self, parts: Collection[str]) -> "_Start":
        shapes = without(self.trained.shapes, parts)
        return _Start(self.trained._replace(shapes=shapes), without(self.params, parts))


def _drops_segments(trained: TrainedModel, model: ModelConfig) -> bool:
    """Whether the first segment's vector has to be added to those of the positions: `trained` has segments, `model` has
    none (as DistilBERT), both have a table of positions, and `trained` isn't a discriminator."""
    old = trained.config
    of_positions = all(SCHEMES[each.positions].learns_vectors for each in (old, model))
    return bool(old.num_segments and not model.num_segments and of_positions and not old.discriminator)


def _without_segments(start: _Start, model: ModelConfig) -> _Start:
    """The same model without segments, which gives a single text the same vectors. The parts that were trained on pairs
    are left out; `model` says what pooler the run has."""
    say(
        "the model has no segments: the vector of the first one is added to those of the positions, and pooler and "
        "head for pairs begin with random values"
    )
    trained, params = start
    tables = dict(params["bert"]["embeddings"])
    segment, position = tables.pop("segment"), tables["position"]
    tables["position"] = jax.jit(lambda rows, first: rows + first[0], out_shardings=position.sharding)(
        position, segment
    )
    config = trained.config.replace(num_segments=0, pooler=model.pooler)
    params = {**params, "bert": {**params["bert"], "embeddings": tables}}
    return _Start(trained._replace(config=config), params).without(_READ_FROM_PAIRS)


def _with_layers(start: _Start, layers: Sequence[int]) -> _Start:
    """The same model with only these layers; see `of_layers`."""
    trained, params = start
    config = trained.config.replace(num_layers=len(layers))
    return _Start(trained._replace(config=config), of_layers(params, trained.config, layers))


def _check_layers(trained: TrainedModel, config: RunConfig) -> None:
    """Raises UsageError if a model of `config.init_layers` can't begin with these layers."""
    layers, there = config.init_layers, trained.config.num_layers
    setting = Setting("init_layers", " ".join(map(str, layers)))
    if trained.config.shared_layers:
        raise UsageError(f"{setting}: all layers of {config.init} share their parameters; leave it out")
    if max(layers) >= there:
        raise UsageError(
            f"{setting}: {config.init} has {there} layers, numbered from 0 to {there - 1}; choose one of them"
        )
    for at, layer in enumerate(layers):
        if trained.config.is_global(layer) != config.model.is_global(at):
            kinds = ("global", "local") if trained.config.is_global(layer) else ("local", "global")
            raise UsageError(
                f"{setting}: layer {layer} of {config.init} has {kinds[0]} attention, and layer {at} of the model, "
                f"which begins as it, has {kinds[1]}; in both every layer whose number {trained.config.global_every} "
                "divides has global attention: name such layers in these places, and others in the other places"
            )
    old, new = trained.config.generator, config.model.generator
    if "generator" in trained.shapes and old and new and old.num_layers != new.num_layers:
        raise UsageError(
            f"{setting}: the generator of {config.init} keeps its {counted(old.num_layers, 'layers')}; set "
            f"{Setting('model.generator_layers', old.num_layers)}"
        )
    if trained.config.begins_without_norm and [at for at, layer in enumerate(layers) if not layer] != [0]:
        raise UsageError(
            f"{setting}: the first layer of {config.init} has no norm before its attention, and all others have one; "
            "name layer 0 first, and only once"
        )


def of_layers(params: Parameters, config: ModelConfig, layers: Sequence[int]) -> Parameters:
    """`params`, of a model of `config`, with only the layers numbered `layers`, in this order. A model whose layers
    share their parameters keeps `params` as they are."""
    if config.shared_layers:
        return params

    def chosen(name: str, part: Any) -> Any:
        # A first block without a norm before its attention has no row among these norms.
        lacks_first = config.begins_without_norm and name == "attention_norm"
        rows = np.array(layers[1:]) - 1 if lacks_first else np.array(layers)
        return jax.tree.map(lambda leaf: leaf[rows], part)

    stacks = params["bert"]["encoder"]["layers"].items()
    alone = config.begins_without_norm and len(layers) == 1  # there is no array of these norms then
    stack = {name: chosen(name, part) for name, part in stacks if not (alone and name == "attention_norm")}
    return {**params, "bert": {**params["bert"], "encoder": {**params["bert"]["encoder"], "layers": stack}}}


def _generator_with(embeddings: Parameters, model: ModelConfig, key: Key[Array, ""]) -> Parameters:
    """A random generator with the tables of its discriminator, so that the differences between both begin at zero."""
    generator = init(model, key)["generator"]
    own = generator["bert"]["embeddings"]
    tables = {name: embeddings[name] for name in own.keys() & {*DISENTANGLED_TABLES}}
    return generator | {"bert": generator["bert"] | {"embeddings": own | tables}}


def _near_identity(embeddings: Parameters, model: ModelConfig, counts: Int[np.ndarray, " V"]) -> Parameters:
    """A masked-language head for an encoder without one, from its word table. Its dense layer is the identity, and its
    bias is the logarithm of the pieces' shares of the text. Its norm scales the logits to a variance of one; with
    model.head=product, which has no norm, its table does."""
    table: Float[Array, "R D"] = embeddings["word"]
    shares = np.log((counts + 1) / (counts + 1).sum())
    scale = 1 / (jnp.std(table[: len(counts)]) * math.sqrt(model.hidden_size))

    def values(path: KeyPath, shape: jax.ShapeDtypeStruct) -> Array:
        match path_of(path):
            case "dense/kernel":
                return jnp.eye(shape.shape[0], dtype=shape.dtype)
            case "norm/scale":
                return jnp.full(shape.shape, scale, shape.dtype)
            case "table":
                return table * scale if model.head == "product" else table
            case "bias":
                # Rows without a piece aren't predicted here and so never trained, but transformers predicts them.
                absent = (0, shape.shape[0] - len(shares))
                return jnp.pad(jnp.asarray(shares, shape.dtype), absent, constant_values=_NEVER)
        return jnp.zeros(shape.shape, shape.dtype)

    return jax.tree_util.tree_map_with_path(values, parameter_shapes(model)["masked_lm"])


def _shaping(model: ModelConfig, config: RunConfig) -> dict[str, Any]:
    """The settings that must be equal in a model and its initial model."""
    free = set(_MAY_DIFFER)
    if not SCHEMES[config.model.positions].learns_vectors and not config.model.mask_decoder:
        free.add("max_positions")
    if config.vocabulary.exchange:  # the tables begin anew, and positions follow the number of the padding
        free |= {"word_rows", "first_position"}
    return model.model_dump(exclude=free) | {"feedforward_size": model.inner_size}


def _with_vocabulary(
    start: _Start,
    config: RunConfig,
    tokenizer: Tokenizer,
    mesh: Mesh,
    text: InstanceSource | None,
    keep: Callable[[Reading], None] | None,
) -> Parameters:
    """The parameters with tables for the vocabulary of `tokenizer`; see `initial_parameters`. `text`: the run's
    training sequences."""
    trained, params = start
    exchanges = config.vocabulary.exchange
    method = config.vocabulary.initial_rows if exchanges else "mean"
    rows = combinations(trained.tokenizer, tokenizer, method, text)
    if exchanges and keep:
        keep(rows.reading)
    sized = trained.config.replace(
        vocabulary_size=len(tokenizer.vocabulary),
        word_rows=config.model.word_rows,
        first_position=config.model.first_position,
    )
    shardings = tree_shardings(parameter_shapes(sized, absent_parts(trained.shapes, sized)), mesh)
    key = purpose_key(config.seed, "parameters") if rows.random.any() else None
    with_rows = functools.partial(_with_rows, old=trained.config, new=sized, key=key)
    return jax.jit(with_rows, out_shardings=shardings)(params, *rows.on_all_hosts())


def _with_rows(
    params: Parameters,
    numbers: Int[Array, "W K"],
    coefficients: Float[Array, "W K"],
    random: Bool[Array, " W"],
    old: ModelConfig,
    new: ModelConfig,
    key: Key[Array, ""] | None,
) -> Parameters:
    """`params` with tables whose rows are the given `Combinations`. They are followed by the rows past the vocabulary,
    for pieces that were never used, if `new` keeps these. `key`: the key of random rows; None if no row is random."""
    kept = (coefficients[:, 0] == 1.0) & ~coefficients[:, 1:].any(axis=1)

    def exchanged(number: int, table: Float[Array, "V *D"]) -> Float[Array, "W *D"]:
        """`number`: the index of the table's parameter, which selects the noise. A generator's table and its
        discriminator's have the same index, and so the same noise."""
        known = table[: old.vocabulary_size]
        shape = (-1, *[1] * (table.ndim - 1))
        combined = jnp.zeros((len(kept), *table.shape[1:]), table.dtype)
        for of_old, shares in zip(numbers.T, coefficients.T, strict=True):
            combined += shares.reshape(shape) * known[of_old]
        # A kept row has the same bits, which a sum with zeros would change in the sign of a zero.
        combined = jnp.where(kept.reshape(shape), known[numbers[:, 0]], combined)
        if key is not None:
            noise = jax.random.normal(jax.random.fold_in(key, number), combined.shape, table.dtype)
            combined = jnp.where(random.reshape(shape), known.mean(axis=0) + noise * known.std(axis=0), combined)
        longer = jnp.concatenate([combined, table[vocabulary_size(new) : old.num_word_rows if new.word_rows else 0]])
        padding = padded_vocabulary_size(new) - len(longer)
        return jnp.pad(longer, [(0, padding)] + [(0, 0)] * (table.ndim - 1))

    def changed(path: KeyPath, leaf: Array) -> Array:
        parameter = parameter_at(path_of(path))
        if parameter.path == "bert/embeddings/position" and new.first_position != old.first_position:
            rows_before = new.first_position - old.first_position
            return leaf[-rows_before:] if rows_before < 0 else jnp.pad(leaf, [(rows_before, 0), (0, 0)])
        return exchanged(PARAMETERS.index(parameter), leaf) if parameter.padded else leaf

    return jax.tree_util.tree_map_with_path(changed, params)


def with_spelling(params: Parameters | None, config: ModelConfig, tokenizer: Tokenizer) -> Parameters | None:
    """`params`, with the spelling of the tokenizer's pieces if the model reads characters. Without `params`, the result
    is the spelling alone or, for a model that doesn't read characters, None."""
    if not config.character_filters:
        return params
    params = params or {"bert": {}}
    sized = config.replace(vocabulary_size=len(tokenizer.vocabulary))
    return {**params, "bert": {**params["bert"], "spelling": {"numbers": _spelled_pieces(sized, tokenizer)}}}


def _spelled_pieces(config: ModelConfig, tokenizer: Tokenizer) -> Float[np.ndarray, "V C"]:
    """The numbers of each piece: the mark of a word's begin, the bytes, the mark of a piece's end, and padding.

    A piece that continues a word has no mark of a begin, and marks such as ## aren't among the bytes. [CLS] and [SEP]
    are spelled as begin and end of a sentence.
    """
    vocabulary, numbers = tokenizer.vocabulary, np.zeros((padded_vocabulary_size(config), LONGEST_PIECE), np.float32)
    marks = {vocabulary.cls_id: [BEGIN_SENTENCE], vocabulary.sep_id: [END_SENTENCE]}
    for piece, begins in enumerate(tokenizer.starts_word):
        letters = marks.get(piece) or [byte + 1 for byte in tokenizer.piece_text(piece).encode("utf-8", "replace")]
        begin = [BEGIN_WORD] if begins or piece in marks else []
        spelled = [*begin, *letters[: LONGEST_PIECE - 2], END_WORD]
        numbers[piece] = spelled + [PADDING] * (LONGEST_PIECE - len(spelled))
    return numbers
