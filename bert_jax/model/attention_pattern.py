"""What attention computes: which queries attend to which keys."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bert_jax.layout import Tokens


class Places(NamedTuple):
    """What attention knows of each token of B rows."""

    sequence: Int[Array, "B T"]
    """The number of the token's sequence in its row, from 1; 0 for padding."""
    position: Int[Array, "B T"]
    """The token's place within its sequence, from 0."""
    segment: Int[Array, "B T"] | None = None
    """The token's segment; None if attention doesn't depend on it."""
    rank: Int[Array, "B T"] | None = None
    """Of a key: its place in the order of prediction, -1 for a token that isn't predicted. Of a query: the highest rank
    that it attends to. None: attention doesn't depend on such an order."""


class AttentionPattern(NamedTuple):
    """Which keys each query attends to.

    It is a description and never a [B, T, S] array: a kernel works it out block by block.
    """

    queries: Places
    keys: Places
    sequences: int
    """Largest number of sequences in a row. With one sequence, no causal order and no window, all queries of a row
    attend to the same keys."""
    causal: bool = False
    """Whether a query attends only to positions up to its own."""
    window: int | None = None
    """A query attends to keys at most this many positions away; None means no limit."""
    query_places: Int[Array, "B T"] | None = None
    """The place of each query in its row; None means that every token of the row is a query, in order."""
    has_query_stream: bool = False
    """Whether the queries of a query stream follow those of the row's tokens. They are no keys."""
    distances: Float[Array, "M ..."] | None = None
    """Learned values that all blocks share, a vector or one number per head for each of the M = 2 S distances from S
    down to 1 - S. A distance is the query's place minus the key's. None if blocks share no such values."""

    @classmethod
    def of(cls, tokens: Tokens, causal: bool, segment: Int[Array, "B T"] | None = None) -> "AttentionPattern":
        """Every token attends to the tokens of its own sequence. `segment`: the segments, if attention depends on
        them."""
        places = Places(tokens.sequence, tokens.position, segment)
        return cls(places, places, tokens.begin.shape[-1], causal)

    def of_queries(self, places: Int[Array, "B R"] | None) -> "AttentionPattern":
        """The pattern for the queries with these numbers; None means all queries."""
        if places is None:
            return self
        queries = jax.tree.map(lambda each: jnp.take_along_axis(each, places, axis=1), self.queries)
        query_places = places if self.query_places is None else jnp.take_along_axis(self.query_places, places, axis=1)
        return self._replace(queries=queries, query_places=query_places, has_query_stream=False)

    @property
    def query_positions(self) -> Int[Array, "B T"] | None:
        """The position of each query in its sequence; None if each row holds one sequence and every token is a
        query."""
        return self.query_places if self.sequences == 1 else self.queries.position

    def admitted(self) -> Bool[Array, "B #T S"]:
        """The pattern as booleans, for the exact form. One row stands for all queries that attend to the same keys."""
        admitted = self.keys.sequence[:, None] > 0
        if self.sequences > 1:
            admitted &= self.queries.sequence[:, :, None] == self.keys.sequence[:, None]
        ahead = self.keys.position[:, None] - self.queries.position[:, :, None]
        if self.causal:
            admitted &= ahead <= 0
        if self.window is not None:
            admitted &= jnp.abs(ahead) <= self.window
        if self.keys.rank is not None and self.queries.rank is not None:
            admitted &= self.keys.rank[:, None] <= self.queries.rank[:, :, None]
        return admitted
