"""Batches texts of any length for the encoder, and puts the outputs back in the order of the texts."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from bert_jax.batching.grouping import in_input_order
from bert_jax.batching.sequences import joined, unpooled_tokens
from bert_jax.config.vectors import NO_PROMPT, Prompt
from bert_jax.layout import Tokens, TokenSequence
from bert_jax.model.bert import Encoded
from bert_jax.system.errors import UsageError, quoted
from bert_jax.system.progress import say
from bert_jax.text.tokenizer import Tokenizer

Text = str | tuple[str, str]
"""A text, or a pair of texts: the model's first and second segment."""
_TEXTS_AT_ONCE = 512
"""Number of texts per call of the tokenizer, which uses several threads."""
_VERY_LONG = 1_000_000
"""Characters from which on only the beginning of a text is tokenized: a piece takes about a hundred bytes of memory."""
_CHARACTERS_EACH = 256
"""Characters of such a beginning for each token that is kept. Almost all pieces are shorter."""
_WHITE_SPACE = re.compile(r"\s")


class PlacedBatch(NamedTuple):
    """A padded batch with one sequence per row; rows beyond the length of `places` are padding."""

    places: list[int]
    """Index in the input of each row's sequence, from 0."""
    tokens: Tokens


class Output(NamedTuple):
    """The vectors of a batch or of one sequence. A field is None if it wasn't requested."""

    tokens: Float[Any, "..."] | None
    """The vector of each token: [B, T, ...] for a batch, [T, ...] for a sequence."""
    pooled: Float[Any, "..."] | None
    """The vector of each sequence: [B, ...] for a batch, [...] for a sequence."""


class Vectors(NamedTuple):
    """The encoder's output for N texts, padded to T tokens."""

    tokens: Float[np.ndarray, "N T D"]
    """The last layer's vector of each token, [CLS] and [SEP] included; 0 at padding."""
    pooled: Float[np.ndarray, "N D"] | None
    """The pooler's vector of each text; None if the model has no pooler."""
    mask: Bool[np.ndarray, "N T"]
    """True at tokens, False at padding."""


def token_sequences(
    texts: Iterable[Text], tokenizer: Tokenizer, longest: int, prompt: Prompt = NO_PROMPT, special: bool = False
) -> Iterator[TokenSequence]:
    """Yields `texts` as token ids, cut to `longest` tokens; reports at the end how many texts were cut.

    `prompt` is put before each text, and before the first text of a pair. `special`: whether a special piece written in
    a text, such as [MASK], becomes that piece; otherwise it is read as ordinary characters. Raises UsageError for a
    text that isn't valid Unicode.
    """
    texts, read, cut = iter(texts), 0, 0
    unpooled = unpooled_tokens(prompt, tokenizer, longest)
    try:
        while some := [_segments(text, prompt.text) for text in islice(texts, _TEXTS_AT_ONCE)]:
            segments_of_all = [segment for text in some for segment in text]
            if special:
                pieces = iter([tokenizer.encode_special(segment) for segment in segments_of_all])
            else:
                pieces = iter(_pieces(segments_of_all, tokenizer, longest))
            for segments in some:
                sequence = joined(list(islice(pieces, len(segments))), tokenizer.vocabulary, longest)
                read, cut = read + 1, cut + sequence.cut
                yield sequence._replace(unpooled=unpooled) if unpooled else sequence
    finally:
        if cut:
            say(f"{cut:,} of {read:,} texts are longer than {longest} tokens and were cut")


def text_pieces(texts: Iterable[Text], tokenizer: Tokenizer, longest: int) -> Iterator[tuple[str, list[int]]]:
    """Yields each text with its piece ids, without special pieces; for a very long text at least the first `longest`
    ids. Raises UsageError for a pair, and for a text that isn't valid Unicode."""
    texts = iter(texts)
    while rows := [_segments(text, "") for text in islice(texts, _TEXTS_AT_ONCE)]:
        if pair := next((row for row in rows if len(row) > 1), None):
            raise UsageError(f"{quoted(pair)} is a pair, and a text is needed; join its two texts")
        some = [text for [text] in rows]
        yield from zip(some, _pieces(some, tokenizer, longest), strict=True)


def _pieces(segments: list[str], tokenizer: Tokenizer, longest: int) -> list[list[int]]:
    """The piece ids of each segment; for a very long segment those of its beginning, at least `longest`."""
    beginnings = [_beginning(segment, longest) for segment in segments]
    pieces = list(tokenizer.encode_batch(beginnings))
    for place, (segment, beginning) in enumerate(zip(segments, beginnings, strict=True)):
        if len(pieces[place]) < longest and len(beginning) < len(segment):
            [pieces[place]] = tokenizer.encode_batch([segment])
    return pieces


def _beginning(segment: str, longest: int) -> str:
    """The segment; of a very long segment only the beginning, up to white space, on which its first tokens depend."""
    size = max(longest * _CHARACTERS_EACH, 10_000)
    if len(segment) <= max(_VERY_LONG, size):
        return segment
    space = _WHITE_SPACE.search(segment, size, 2 * size)
    return segment[: space.start() if space else 2 * size]


def _segments(text: Text, prompt: str) -> tuple[str, ...]:
    """The one or two segments of a text or a pair, the first after `prompt`."""
    segments = (text,) if isinstance(text, str) else text
    return (prompt + segments[0], *segments[1:])


def in_order(computed: Iterable[tuple[PlacedBatch, Encoded | Output]]) -> Iterator[Output]:
    """The output of each sequence without padding, in the input order of the sequences."""
    return in_input_order((batch.places, _rows(batch, output)) for batch, output in computed)


def _rows(batch: PlacedBatch, output: Encoded | Output) -> Iterator[Output]:
    tokens, pooled = output.tokens, output.pooled
    for number in range(len(batch.places)):
        length = int(batch.tokens.length[number, 0])
        yield Output(None if tokens is None else tokens[number, :length], None if pooled is None else pooled[number])


def stacked(width: int, has_pooler: bool, outputs: Iterable[Output], lengths: Sequence[int]) -> Vectors:
    """The outputs of single texts, of `lengths` tokens, in padded arrays; `width` and `has_pooler` are the model's."""
    count, longest = len(lengths), max(lengths, default=0)
    tokens = np.zeros((count, longest, width), np.float32)
    pooled = np.zeros((count, width), np.float32) if has_pooler else None
    for place, output in enumerate(outputs):
        assert output.tokens is not None
        tokens[place, : len(output.tokens)] = output.tokens
        if pooled is not None:
            pooled[place] = output.pooled
    return Vectors(tokens, pooled, np.arange(longest) < np.array(lengths, int)[:, None])
