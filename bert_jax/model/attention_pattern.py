"""Who attends to whom."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from bert_jax.layout import Tokens


class Places(NamedTuple):
    """The sequence and position of each token of B rows."""

    sequence: Int[Array, "B T"]
    """The number of the token's sequence in its row, from 1; 0 for padding."""
    position: Int[Array, "B T"]
    """The token's place within its sequence, from 0."""


class AttentionPattern(NamedTuple):
    """Which keys each query attends to.

    It is a description and never a [B, T, S] array: a kernel works it out block by block.
    """

    queries: Places
    keys: Places
    sequences: int
    """How many sequences a row may hold. With one, and neither causal nor a window, all queries of a row attend to the
    same keys."""
    causal: bool = False
    """Whether a query attends to no later position than its own."""
    window: int | None = None
    """A query attends to keys at most so many positions away from its own; None: to all."""
    rows: Int[Array, "B T"] | None = None
    """The place of each query in its row; None: the queries are all of the row, in order."""

    @classmethod
    def of(cls, tokens: Tokens, causal: bool) -> "AttentionPattern":
        """Every token attends to the tokens of its own sequence."""
        places = Places(tokens.sequence, tokens.position)
        return cls(places, places, tokens.begin.shape[-1], causal)

    def of_queries(self, places: Int[Array, "B R"] | None) -> "AttentionPattern":
        """The pattern for the queries at these places of the row; for all of them where None."""
        if places is None:
            return self
        queries = Places(*(jnp.take_along_axis(each, places, axis=1) for each in self.queries))
        return self._replace(queries=queries, rows=places)

    @property
    def query_positions(self) -> Int[Array, "B T"] | None:
        """The position of each query in its sequence; None where each row holds one sequence, all of it queries."""
        return self.rows if self.sequences == 1 else self.queries.position

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
        return admitted
