"""Training instances: sequences of piece ids with their special tokens, unmasked, many at once."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, UInt8

from bert_jax.instances.sentences import ranges
from bert_jax.layout import MASKABLE, WORD_START


class Segments(NamedTuple):
    """n sequences before they are put together: which stretches of a text's tokens follow one another."""

    begin: Int[np.ndarray, " m"]
    """First token of each segment, those of all sequences one after the other. None is empty."""
    end: Int[np.ndarray, " m"]
    """The token after its last."""
    counts: Int[np.ndarray, " n"]
    """Segments of each sequence."""
    pair_label: Int[np.ndarray, " n"]
    """Of two segments: 0 where the second follows the first, 1 where it was drawn at random."""
    tokens_cut: int
    """Tokens taken off to fit the length."""


class Instances(NamedTuple):
    """n sequences as they are stored, N tokens in all."""

    ids: Int[np.ndarray, " N"]
    """Piece ids of all sequences, one after the other: [CLS], then each segment and a [SEP] after it."""
    units: UInt8[np.ndarray, " N"]
    """Unit bits of each token (bert_jax/layout.py)."""
    ends: Int[np.ndarray, " n+1"]
    """Sequence i is ids[ends[i]:ends[i + 1]]."""
    first_length: Int[np.ndarray, " n"]
    """Tokens of what is segment 0 to the model, [CLS] and [SEP] included."""
    pair_label: Int[np.ndarray, " n"]

    @property
    def count(self) -> int:
        """Sequences."""
        return len(self.first_length)


def build_instances(
    segments: Segments,
    tokens: Int[np.ndarray, " N"],
    starts_word: Bool[np.ndarray, " V"],
    cls_id: int,
    sep_id: int,
    *,
    paired: bool,
) -> Instances:
    """Puts the special tokens round the segments and marks the words.

    `paired`: the first of two segments is segment 0 to the model; otherwise all of a sequence is.
    A segment's first token always begins a word. (In the original's whole-word masking a ##piece after [SEP] joins
    the last word of the first segment.)
    """
    sizes = segments.end - segments.begin
    owner = np.repeat(np.arange(len(segments.counts)), segments.counts)
    # Before a segment stand the [CLS] of its own and of all earlier sequences, and a [SEP] after each earlier segment.
    begin = np.cumsum(sizes + 1) - sizes + owner
    last = np.cumsum(segments.counts) - 1
    ends = np.concatenate([[0], (begin + sizes)[last] + 1])
    ids = np.full(ends[-1], sep_id, np.int32)
    units = np.zeros(ends[-1], np.uint8)
    ids[ends[:-1]] = cls_id
    into, taken = ranges(begin, sizes), tokens[ranges(segments.begin, sizes)]
    ids[into] = taken
    units[into] = np.where(starts_word[taken], np.uint8(MASKABLE | WORD_START), np.uint8(MASKABLE))
    units[begin] |= WORD_START
    first_length = sizes[last - 1] + 2 if paired else np.diff(ends)
    return Instances(ids, units, ends, first_length, segments.pair_label)
