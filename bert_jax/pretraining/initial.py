"""The parameters that a run begins with: those of a trained model, and the spelling of pieces."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float

from bert_jax.config.model import ModelConfig
from bert_jax.config.run import RunConfig
from bert_jax.interchange.hub import model_place
from bert_jax.model.bert import PART_NAMES, Parameters, absent_parts, parameter_shapes
from bert_jax.model.embeddings import padded_vocabulary_size, vocabulary_size
from bert_jax.model.parameters import parameter_at, path_of
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
from bert_jax.run.trained_model import TrainedModel
from bert_jax.system.errors import Setting, UsageError
from bert_jax.system.progress import say
from bert_jax.text.extension import replaced_pieces
from bert_jax.text.tokenizer import Tokenizer

_MAY_DIFFER = {
    *("causal", "rotary_base", "dropout", "attention_dropout", "initializer_range"),
    *("compute_dtype", "vocabulary_size"),
}
"""Settings that may differ between a model and its initial model: parameters learned with one value are a good start
for another. (Vocabularies are compared piece by piece.) Without a table of positions, `max_positions` may differ too.
"""


def open_initial(config: RunConfig) -> TrainedModel | None:
    """The model that `config.init` names, or None. Raises UsageError if it is missing or isn't of `config.model`."""
    if config.init is None:
        return None
    trained = TrainedModel.open(model_place(config.init))
    if trained.task:
        say(f"{config.init} was fine-tuned for {trained.task.name}: its encoder goes on, without its head or pooling")
    has_table = SCHEMES[config.model.positions].learns_vectors
    theirs, ours = (_shaping(model, has_table) for model in (trained.config, config.model))
    if "pooler" not in trained.shapes["bert"]:  # the initial model has no pooler: a random one of any kind is added
        theirs["pooler"] = ours["pooler"]
    if "generator" not in trained.shapes:  # the initial model has no generator: a random one of any size is added
        theirs["generator_divisor"] = ours["generator_divisor"]
    # The initial model has no head: a random one of any kind is added.
    if not {"masked_lm", "generator"} & trained.shapes.keys():
        theirs["head_activation"] = ours["head_activation"]
    if theirs != ours:
        differing = [name for name in ours if theirs[name] != ours[name]]
        differences = "; ".join(
            f"{Setting(f'model.{name}')} is {theirs[name]} there and {ours[name]} here" for name in differing
        )
        raise UsageError(
            f"the model of {Setting('init', config.init)} is another one: {differences}. Give its settings, or the "
            "run itself in place of a config file"
        )
    return trained


def initial_parameters(trained: TrainedModel, model: ModelConfig, tokenizer: Tokenizer, mesh: Mesh) -> Parameters:
    """The parameters of `trained` for a run of `model` and `tokenizer`, with new rows for pieces that `tokenizer` adds.
    Raises UsageError unless the vocabulary of `tokenizer` begins with that of `trained`."""
    rows = replaced_pieces(trained.tokenizer, tokenizer)
    if absent := absent_parts(trained.shapes, model):
        missing = " and no ".join(PART_NAMES[part] for part in sorted(absent))
        say(f"the model to start from has no {missing}: random values are put there")
    if {"masked_lm", "generator"} & absent:
        say(
            "a random head sends large gradients into the encoder at first: a short training can leave it worse than "
            "it was; give it a warmup, a low peak rate (--optimizer.peak-learning-rate) and some thousand steps"
        )
    params = trained.parameters(mesh)
    if len(rows) == len(trained.tokenizer.vocabulary):
        return params
    longer = trained.config.replace(vocabulary_size=len(rows))
    shardings = tree_shardings(parameter_shapes(longer, absent_parts(trained.shapes, longer)), mesh)
    return jax.jit(lambda params: _lengthened(params, trained.config, longer, rows), out_shardings=shardings)(params)


def _shaping(model: ModelConfig, learned_positions: bool) -> dict[str, Any]:
    """The settings that must be equal in a model and its initial model."""
    free = _MAY_DIFFER if learned_positions else _MAY_DIFFER | {"max_positions"}
    return model.model_dump(exclude=free) | {"feedforward_size": model.inner_size}


def _lengthened(params: Parameters, old: ModelConfig, new: ModelConfig, rows: list[list[int]]) -> Parameters:
    """`params` with a row for each added piece in every table over the vocabulary. `rows` lists the old pieces that
    spell each added piece; the new row is the mean of their rows. Added pieces use the table's unused rows first.
    """
    added = rows[old.vocabulary_size :]
    most = max(map(len, added))
    numbers = np.array([row + [0] * (most - len(row)) for row in added])
    shares = np.array([[1 / len(row)] * len(row) + [0.0] * (most - len(row)) for row in added], np.float32)

    def lengthened(table: Float[Array, "V *D"]) -> Float[Array, "W *D"]:
        means = jnp.einsum("nk,nk...->n...", shares, table[numbers])
        unused = table[vocabulary_size(new) : old.num_word_rows]
        longer = jnp.concatenate([table[: old.vocabulary_size], means, unused])
        padding = padded_vocabulary_size(new) - len(longer)
        return jnp.pad(longer, [(0, padding)] + [(0, 0)] * (table.ndim - 1))

    def changed(path, leaf: Array) -> Array:
        return lengthened(leaf) if parameter_at(path_of(path)).padded else leaf

    return jax.tree_util.tree_map_with_path(changed, params)


def with_spelling(params: Parameters | None, config: ModelConfig, tokenizer: Tokenizer) -> Parameters | None:
    """`params`, or None, with the spelling of the tokenizer's pieces if the model reads characters."""
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
