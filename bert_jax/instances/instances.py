"""Builds training instances, unmasked sequences of piece ids with special tokens, and packs them into rows."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int, UInt8

from bert_jax.config.model import ClassToken
from bert_jax.instances.segments import Segments
from bert_jax.instances.sentences import ranges
from bert_jax.layout import MASKABLE, WORD_START

UNTAGGED = -1
"""In place of the number of a tag: a token at which no tagged word begins."""


class Instances(NamedTuple):
    """n sequences as they are stored, concatenated to N tokens."""

    ids: Int[np.ndarray, " N"]
    """Piece ids of all sequences, concatenated. A sequence is [CLS], then each segment followed by [SEP]; or [CLS] is
    last. With two separators, the first segment of a pair is followed by two [SEP]."""
    units: UInt8[np.ndarray, " N"]
    """Unit bits of each token (bert_jax/layout.py)."""
    ends: Int[np.ndarray, " n+1"]
    """Offsets of the sequences: sequence i is ids[ends[i]:ends[i + 1]]."""
    first_length: Int[np.ndarray, " n"]
    """Number of tokens with segment id 0, [CLS] and [SEP] included."""
    pair_label: Int[np.ndarray, " n"]
    """1 if the second segment was drawn at random or the two segments are swapped, 0 otherwise."""
    rows: Int[np.ndarray, " n"] | None = None
    """The row of each sequence, ascending from 0. None: each row has one sequence."""
    tags: Int[np.ndarray, " N"] | None = None
    """The number of the tag of the word that begins with each token; UNTAGGED for other tokens. None: nothing is
    tagged."""

    @property
    def sequences(self) -> int:
        """Number of sequences."""
        return len(self.first_length)

    @property
    def row_ends(self) -> Int[np.ndarray, " m"]:
        """Offsets of the rows: row r has the sequences row_ends[r] to row_ends[r + 1] - 1. No row is empty."""
        if self.rows is None:
            return np.arange(self.sequences + 1)
        return np.append(np.flatnonzero(np.diff(self.rows, prepend=-1)), self.sequences)

    def in_rows(self, rows: Int[np.ndarray, " n"]) -> "Instances":
        """The same sequences in these rows, sorted by row."""
        order = np.argsort(rows, kind="stable")
        sizes = np.diff(self.ends)
        tokens = ranges(self.ends[:-1][order], sizes[order])
        return Instances(
            self.ids[tokens],
            self.units[tokens],
            np.concatenate([[0], np.cumsum(sizes[order])]),
            self.first_length[order],
            self.pair_label[order],
            rows[order],
            None if self.tags is None else self.tags[tokens],
        )


def build_instances(
    segments: Segments,
    tokens: Int[np.ndarray, " N"],
    units: UInt8[np.ndarray, " N"],
    cls_id: int,
    sep_id: int,
    *,
    paired: bool,
    separators: int = 1,
    class_token: ClassToken = "first",
) -> Instances:
    """Adds the special tokens to the segments. `units` are the unit bits of `tokens`.

    If `paired`, segment id 0 covers the first of two segments and the `separators` after it. Otherwise it covers the
    whole sequence. The first token of a segment begins a unit of each kind in `units`. (In the whole-word masking
    of the original BERT, a ##piece after [SEP] joins the last word of the first segment.)
    """
    sizes = segments.end - segments.begin
    owner = np.repeat(np.arange(len(segments.counts)), segments.counts)
    last = np.cumsum(segments.counts) - 1
    after = np.ones_like(sizes)  # [SEP] after each segment
    if paired:
        after[last - 1] = separators
    # A segment's offset counts the [CLS] of all sequences before it, and earlier segments with their [SEP].
    leading = int(class_token == "first")  # the number of [CLS] before a sequence's text
    begin = np.cumsum(sizes + after) - (sizes + after) + owner + leading
    ends = np.concatenate([[0], (begin + sizes + after)[last] + 1 - leading])
    ids = np.full(ends[-1], sep_id, np.int32)
    placed = np.zeros(ends[-1], np.uint8)
    ids[ends[:-1] if leading else ends[1:] - 1] = cls_id
    into, taken = ranges(begin, sizes), ranges(segments.begin, sizes)
    ids[into], placed[into] = tokens[taken], units[taken]
    placed[begin] |= np.bitwise_or.reduce(units, initial=WORD_START) & ~np.uint8(MASKABLE)
    first_length = sizes[last - 1] + leading + separators if paired else np.diff(ends)
    return Instances(ids, placed, ends, first_length, segments.pair_label)
