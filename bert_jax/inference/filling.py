"""Fills masks with the likeliest pieces, each mask alone or all together, gives the probabilities of words in place of
a mask, and masks words of sentences for examples."""

import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bert_jax.batching.grouping import row_count
from bert_jax.batching.sequences import joined
from bert_jax.inference.features import BatchedModel, check_count
from bert_jax.layout import TokenSequence
from bert_jax.model.bert import BertForPretraining, Parameters
from bert_jax.system.errors import Setting, UsageError, listed, quoted
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.vocabulary import MASK, PieceSpan

Fill = tuple[str, float]
"""A piece and its probability."""
JointFill = tuple[list[str], float]
"""A piece for each mask, and their joint probability."""
_MASKS_AT_ONCE = 256
"""Number of masks whose logits over the vocabulary are computed at once."""
_LEAST_BEAMS = 16
"""Least number of partial fills that are kept from mask to mask."""
_SHORTEST_WORD = 4
"""Least number of letters of a word that is masked in an example, unless it is an ideograph."""


class Filler:
    """Fills masks by a model with a masked-language head."""

    def __init__(self, model: BatchedModel):
        """Raises UsageError for a model that can't fill masks."""
        config, params = model.config, model.params
        if config.one_sided:
            raise UsageError(
                f"{config.one_sided} a [MASK], and it never saw one; fill masks with a model that was trained with "
                f"{Setting('objective.predict', 'masked')}"
            )
        check_token_head(model, "fills masks")
        self._model, self._config, self._params, self._tokenizer = model, config, params, model.tokenizer
        network = BertForPretraining(config)
        self._likeliest = jax.jit(partial(_likeliest, network), static_argnums=2)
        self._log_probabilities = jax.jit(partial(_log_probabilities, network))

    def fill(self, texts: Sequence[str], top: int) -> list[list[list[Fill]]]:
        """For each text and each of its masks, the `top` most likely pieces, whatever fills the other masks."""
        rows = [self._masked_sequence(text, top) for text in texts]
        fills: dict[int, list[list[Fill]]] = {place: [] for place in range(len(rows))}
        for batch, encoded in self._model.encoded(rows, for_masks=True):
            numbers, positions = np.nonzero(batch.tokens.ids == self._tokenizer.vocabulary.mask_id)
            ids, probabilities = self._pieces(np.asarray(encoded.tokens)[numbers, positions], top)
            for number, *likeliest in zip(numbers, ids, probabilities, strict=True):
                fills[batch.places[number]].append(
                    [(self._tokenizer.spelled(piece), share) for piece, share in zip(*likeliest, strict=True)]
                )
        return list(fills.values())

    def fill_together(self, text: str, top: int) -> list[JointFill]:
        """The `top` likeliest fills of all masks of a text together.

        The joint probability is the product, from left to right, of each piece's probability after the pieces before it
        were filled in. A beam search keeps the likeliest partial fills, so it may miss some.
        """
        sequence = self._masked_sequence(text, top)
        masks = np.flatnonzero(np.array(sequence.ids) == self._tokenizer.vocabulary.mask_id).tolist()
        width = max(top, _LEAST_BEAMS)
        beams: list[tuple[list[int], float]] = [([], 1.0)]
        for number, mask in enumerate(masks):
            rows = [self._filled(sequence, masks, pieces) for pieces, _ in beams]
            ids, probabilities = self._pieces(self._vectors(rows, [mask] * len(rows)), width)
            longer = [
                ([*pieces, piece], before * probability)
                for (pieces, before), *likeliest in zip(beams, ids, probabilities, strict=True)
                for piece, probability in zip(*likeliest, strict=True)
            ]
            beams = sorted(longer, key=lambda beam: -beam[1])[: top if number == len(masks) - 1 else width]
        return [([self._tokenizer.spelled(piece) for piece in pieces], joint) for pieces, joint in beams]

    def candidates(self, text: str, words: Sequence[str]) -> list[Fill]:
        """The probability of each of `words`, which may be several pieces, in place of the one mask of a text.

        It is the product of each piece's probability after the pieces before it, with as many masks as the word has
        pieces. So words of more pieces tend to be less likely.
        """
        self._masked_sequence(text)  # raises where there is none
        vocabulary, ids = self._tokenizer.vocabulary, set(self._tokenizer.encode_special(text))
        text = text.replace(vocabulary.pieces[vocabulary.mask_id], MASK)
        if text.count(MASK) != 1:
            raise UsageError(f"{quoted(text)} has {text.count(MASK)} {MASK}; candidates stand in place of one")
        if others := ids & {*vocabulary.special_ids} - {vocabulary.mask_id, vocabulary.unknown_id}:
            pieces = listed(sorted(vocabulary.pieces[number] for number in others))
            raise UsageError(f"{quoted(text)} holds the special pieces {pieces}; give a text with {MASK} alone")
        rows, places, wanted, counts = [], [], [], []
        for word in words:
            sequence, inside = self._with_word(text, word)
            for number, place in enumerate(inside):
                rows.append(self._filled(sequence, inside, [sequence.ids[at] for at in inside[:number]]))
                places.append(place)
                wanted.append(sequence.ids[place])
            counts.append(len(inside))
        logs = self._log_probabilities_of(self._vectors(rows, places), wanted)
        ends = np.cumsum(counts)
        return [
            (word, float(np.exp(logs[end - count : end].sum())))
            for word, end, count in zip(words, ends, counts, strict=True)
        ]

    def _with_word(self, text: str, word: str) -> tuple[TokenSequence, list[int]]:
        """The tokens of `text` with `word` in place of its mask, and the places of the word's pieces."""
        before, _, after = text.partition(MASK)
        spans = self._tokenizer.encode_spans(before + word + after)
        begin, end = len(before), len(before) + len(word)
        inside = [number for number, span in enumerate(spans) if span.begin < end and span.end > begin]
        if not inside or MASK in word:
            raise UsageError(f"the candidate {quoted(word)} is no text of pieces; give a word")
        before_it = inside[0] - 1
        if before_it >= 0 and spans[before_it].begin == spans[before_it].end:  # the space before it, as a piece
            inside = [before_it, *inside]
        whole = self._sequence([span.id for span in spans], before + word + after)
        before_text = len(self._tokenizer.vocabulary.frame.single[0])
        return whole, [number + before_text for number in inside]

    def _masked_sequence(self, text: object, top: int = 1) -> TokenSequence:
        """The token ids of a text with masks. Raises UsageError if it has none, is too long, or `top` is no whole
        number from 1."""
        check_count("top", top)
        ids = self._tokenizer.encode_special(text) if isinstance(text, str) else []
        if self._tokenizer.vocabulary.mask_id not in ids:
            raise UsageError(f"there is no {MASK} in {quoted(text)}; put one where a piece is to be filled in")
        return self._sequence(ids, text)

    def _sequence(self, ids: list[int], text: object) -> TokenSequence:
        sequence = joined([ids], self._tokenizer.vocabulary, sys.maxsize)
        if len(sequence.ids) > self._config.max_positions:
            raise UsageError(
                f"the text {quoted(text)} has {len(sequence.ids)} tokens and the model {self._config.max_positions} "
                "positions; shorten it"
            )
        return sequence

    def _filled(self, sequence: TokenSequence, places: Sequence[int], pieces: Sequence[int]) -> TokenSequence:
        """`sequence` with `pieces` at the first of `places`, and masks at the others."""
        ids = list(sequence.ids)
        for number, place in enumerate(places):
            ids[place] = pieces[number] if number < len(pieces) else self._tokenizer.vocabulary.mask_id
        return sequence._replace(ids=ids)

    def _vectors(self, rows: list[TokenSequence], places: Sequence[int]) -> Float[np.ndarray, "M D"]:
        """The last layer's vector of each row at its place."""
        vectors = np.zeros((len(rows), self._config.hidden_size), np.float32)
        for batch, encoded in self._model.encoded(rows, for_masks=True):
            for number, row in enumerate(batch.places):
                vectors[row] = encoded.tokens[number, places[row]]
        return vectors

    def _pieces(self, vectors: Float[np.ndarray, "M D"], top: int) -> tuple[list[list[int]], list[list[float]]]:
        """Ids and probabilities of the `top` most likely pieces for each vector of a masked position."""
        top = min(top, len(self._tokenizer.vocabulary))
        ids: list[list[int]] = []
        probabilities: list[list[float]] = []
        for some, padded in _parts(vectors):
            found, numbers = (np.asarray(each)[:some].tolist() for each in self._likeliest(self._params, padded, top))
            ids, probabilities = ids + numbers, probabilities + found
        return ids, probabilities

    def _log_probabilities_of(self, vectors: Float[np.ndarray, "M D"], ids: Sequence[int]) -> Float[np.ndarray, " M"]:
        """The log probability of one piece for each vector of a masked position."""
        logs: list[float] = []
        for some, padded in _parts(vectors):
            wanted = np.zeros(len(padded), np.int32)
            wanted[:some] = ids[len(logs) : len(logs) + some]
            logs += np.asarray(self._log_probabilities(self._params, padded, wanted))[:some].tolist()
        return np.array(logs)


def check_token_head(model: BatchedModel, use: str) -> None:
    """Raises UsageError for a model without a masked-language head. `use` says what the head does: "fills masks"."""
    if model.config.discriminator:
        raise UsageError(
            f"the model is a discriminator without its generator, which {use}; use the generator, which "
            "bert-jax export writes to the folder `generator` in that of the discriminator"
        )
    if "masked_lm" not in model.params:
        raise UsageError(
            f"the model has no masked-language head, which {use}; take a model with it, or train it on text: bert-jax "
            "pretrain MODEL --init MODEL --workdir RUN --data.source TEXT"
        )


def _parts(vectors: Float[np.ndarray, "M D"]) -> Iterator[tuple[int, Float[np.ndarray, "m D"]]]:
    """Yields the vectors in parts: the number of vectors, and the vectors padded to one of a few row counts."""
    for begin in range(0, len(vectors), _MASKS_AT_ONCE):
        some = vectors[begin : begin + _MASKS_AT_ONCE]
        yield len(some), np.pad(some, ((0, row_count(len(some), _MASKS_AT_ONCE) - len(some)), (0, 0)))


def _logits(network: BertForPretraining, params: Parameters, vectors: Float[Array, "M D"]) -> Float[Array, "M V"]:
    bound = network.bind({"params": params})
    logits = bound.masked_lm(vectors[None], bound.bert.embeddings.word).whole()
    return logits[0, :, : network.config.vocabulary_size]


def _likeliest(
    network: BertForPretraining, params: Parameters, vectors: Float[Array, "M D"], top: int
) -> tuple[Float[Array, "M k"], Int[Array, "M k"]]:
    """Probabilities and ids of the k = `top` most likely pieces, from the last layer's `vectors` of masked tokens."""
    probabilities, ids = jax.lax.top_k(jax.nn.softmax(_logits(network, params, vectors)), top)
    return probabilities, ids


def _log_probabilities(
    network: BertForPretraining, params: Parameters, vectors: Float[Array, "M D"], ids: Int[Array, " M"]
) -> Float[Array, " M"]:
    """The log probability of one piece, given by `ids`, for each vector of a masked token."""
    logs = jax.nn.log_softmax(_logits(network, params, vectors))
    return jnp.take_along_axis(logs, ids[:, None], axis=1)[:, 0]


def masked_examples(sentences: Iterable[str], tokenizer: Tokenizer, most: int) -> list[tuple[str, str]]:
    """Masks one word in each suitable sentence; returns pairs of the masked sentence and the word.

    A sentence is suitable if it has at most `most` pieces and a word that is a single piece of at least four letters,
    or an ideograph. Of several such words a hash chooses one.
    """
    examples = []
    for sentence in sentences:
        pieces = tokenizer.encode_spans(sentence)
        pairs = itertools.pairwise([*pieces, None])
        words = [piece for piece, after in pairs if piece and _is_suitable(sentence, piece, after, tokenizer)]
        if words and len(pieces) <= most:
            chosen = min(words, key=lambda piece: blake2b(f"{piece.begin} {sentence}".encode()).digest())
            masked = sentence[: chosen.begin] + MASK + sentence[chosen.end :]
            examples.append((masked, sentence[chosen.begin : chosen.end]))
    return examples


def _is_suitable(sentence: str, piece: PieceSpan, after: PieceSpan | None, tokenizer: Tokenizer) -> bool:
    """Whether `piece` is a whole word to mask; `after` is the next piece of the sentence, None at its end."""
    starts = tokenizer.starts_word
    word = sentence[piece.begin : piece.end]
    whole = starts[piece.id] and (after is None or starts[after.id]) and piece.id != tokenizer.vocabulary.unknown_id
    return bool(whole) and word.isalpha() and (len(word) >= _SHORTEST_WORD or "\u3400" <= word <= "\u9fff")
