"""A trained model to use: fill masks, encode text, look at attention."""

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from bert_jax.config.model import ModelConfig
from bert_jax.model.bert import BertForPretraining, Encoded, Parameters
from bert_jax.system.errors import UsageError
from bert_jax.system.progress import say
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.vocabulary import MASK
from bert_jax.training.devices import keep_compiled_programs
from bert_jax.training.trained_model import TrainedModel

Fill = tuple[str, float]
"""A piece and its probability."""
_SHORTEST = 16
"""Sequences are padded to this length or one of its doubles, so that few shapes are compiled."""


class Vectors(NamedTuple):
    """What the encoder says of N texts, padded to T tokens."""

    tokens: Float[np.ndarray, "N T D"]
    """The last layer's vector of each token, [CLS] and [SEP] included."""
    pooled: Float[np.ndarray, "N D"]
    """One vector a text."""
    mask: Bool[np.ndarray, "N T"]
    """False at padding."""


class Bert:
    """A model with its tokenizer. `config`, `params` and `tokenizer` are there to be used."""

    def __init__(self, config: ModelConfig, params: Parameters, tokenizer: Tokenizer):
        """Raises UsageError where the tokenizer's vocabulary isn't the model's."""
        if len(tokenizer.vocabulary) != config.vocabulary_size:
            raise UsageError(
                f"the tokenizer has {len(tokenizer.vocabulary)} pieces and the model {config.vocabulary_size}; "
                "they don't belong together"
            )
        self.config, self.params, self.tokenizer = config, params, tokenizer
        self._network = BertForPretraining(config)
        self._logits = jax.jit(self._network.apply)
        self._encode = jax.jit(
            lambda params, ids, mask, return_layers: self._network.apply(
                {"params": params}, ids, jnp.zeros_like(ids), mask, return_layers, method="encode"
            ),
            static_argnums=3,
        )

    def fill_mask(self, text: str, top: int = 5) -> list[list[Fill]]:
        """For each [MASK] in `text`, in order, the `top` likeliest pieces with their probabilities.

        Pieces are written as in the vocabulary: a ## of WordPiece joins, a \u2581 of sentencepiece begins a word.
        Raises UsageError where there is no [MASK] or the text is too long.
        """
        if MASK not in text:
            raise UsageError(f"there is no {MASK} in {text!r}; put one where a piece is to be filled in")
        mask_id = self.tokenizer.vocabulary.mask_id
        ids = self.tokenizer.encode_masked(text)
        if len(ids) + 2 > self.config.max_positions:
            raise UsageError(
                f"the text has {len(ids) + 2} tokens and the model {self.config.max_positions} positions; shorten it"
            )
        batch, mask = self._padded([ids])
        positions = np.flatnonzero(batch[0] == mask_id)
        slots = np.zeros((1, _padded_size(len(positions), 1)), np.int32)
        slots[0, : len(positions)] = positions
        logits, _ = self._logits({"params": self.params}, batch, np.zeros_like(batch), mask, slots)
        probabilities = np.asarray(jax.nn.softmax(logits[0, : len(positions), : self.config.vocabulary_size]))
        pieces = self.tokenizer.vocabulary.pieces
        best = np.argsort(-probabilities, axis=-1, kind="stable")[:, :top]
        return [[(pieces[piece], float(row[piece])) for piece in chosen] for row, chosen in zip(probabilities, best)]

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Vectors of `texts`, all at once. Longer ones than the model has positions are cut, with a warning."""
        batch, mask = self._padded(self._token_ids(texts))
        rows = _padded_size(len(texts), 1)
        batch, mask = (np.pad(array, ((0, rows - len(texts)), (0, 0))) for array in (batch, mask))
        encoded = self._encode(self.params, batch, mask, False)
        length = int(mask.sum(axis=1).max())
        return Vectors(
            np.asarray(encoded.tokens)[: len(texts), :length],
            np.asarray(encoded.pooled)[: len(texts)],
            mask[: len(texts), :length],
        )

    def encode_stream(self, texts: Iterable[str], batch_size: int = 64) -> Iterator[Vectors]:
        """`encode` of `batch_size` texts at a time: memory of one batch, however many there are."""
        texts = iter(texts)
        while some := list(islice(texts, batch_size)):
            yield self.encode(some)

    def attention(self, text: str) -> Float[np.ndarray, "L H T T"]:
        """How much each token (row) attends to each other (column), in every layer and head."""
        batch, mask = self._padded(self._token_ids([text]))
        encoded: Encoded = self._encode(self.params, batch, mask, True)
        length = int(mask.sum())
        return np.asarray(encoded.attention)[:, 0, :, :length, :length]

    def _token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        most = self.config.max_positions - 2
        encoded = self.tokenizer.encode_batch(texts)
        too_long = sum(len(ids) > most for ids in encoded)
        if too_long:
            say(f"{too_long} of {len(texts)} texts are longer than {most} pieces and were cut")
        return [ids[:most] for ids in encoded]

    def _padded(self, encoded: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
        """[CLS] ids [SEP] of each text as an array, and its mask."""
        vocabulary = self.tokenizer.vocabulary
        rows = [[vocabulary.cls_id, *ids, vocabulary.sep_id] for ids in encoded]
        length = min(_padded_size(max(map(len, rows), default=2), _SHORTEST), self.config.max_positions)
        batch = np.full((len(rows), length), vocabulary.pad_id, np.int32)
        mask = np.zeros((len(rows), length), bool)
        for row, ids in enumerate(rows):
            batch[row, : len(ids)] = ids
            mask[row, : len(ids)] = True
        return batch, mask


def load(path: str | os.PathLike) -> Bert:
    """The model of a run (its newest undamaged checkpoint), of one checkpoint or of a Hugging Face directory.

    It is put on the default device. Raises UsageError where there is none, or where its files don't belong together;
    RunError where they are damaged.
    """
    keep_compiled_programs()
    trained = TrainedModel.open(Path(path))
    device = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    params = trained.read(jax.tree.map(lambda _: device, trained.shapes))
    return Bert(trained.config, params, trained.tokenizer)


def _padded_size(size: int, smallest: int) -> int:
    while smallest < size:
        smallest *= 2
    return smallest
