"""MPNet's attention: a learned number for each head and bucket of distances is added to all scores (Raffel et al. 2020,
section 2.1). All blocks share these numbers."""

import math
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int

from bert_jax.config.model import ModelConfig
from bert_jax.model.attention_pattern import AttentionPattern
from bert_jax.model.linear import initial_weights
from bert_jax.model.parameter import Parameter
from bert_jax.model.relatives.relative_positions import by_distance

BUCKETED_PARAMETERS = (
    Parameter(
        "bert/encoder/distances/table",
        ("bucket", "heads"),
        "embeddings",
        "distance table",
        ("bert.encoder.relative_attention_bias.weight",),
        decays=True,
    ),
)
"""The parameters of `BucketedDistances`."""
_BUCKETS, _LAST = 32, 128
"""Number of buckets, half for each direction; and the distance up to which their widths grow. The last bucket has all
larger distances, too."""


def bucket_of(distance: Int[np.ndarray, " M"]) -> Int[np.ndarray, " M"]:
    """The bucket, from 0 to 31, of each distance, the query's place minus the key's. In each direction, distances below
    8 have a bucket each, and larger ones share buckets that widen with the distance (Raffel et al. 2020, section 2.1).
    Computed in float32, as in transformers' MPNet."""
    one_way, exact = _BUCKETS // 2, _BUCKETS // 4
    far = np.maximum(np.abs(distance), exact).astype(np.float32)
    scale = np.float32(math.log(_LAST / exact))
    of_far = exact + (np.log(far / np.float32(exact)) / scale * np.float32(one_way - exact)).astype(np.int64)
    buckets = np.where(np.abs(distance) < exact, np.abs(distance), np.minimum(of_far, one_way - 1))
    return buckets + one_way * (distance < 0)


class BucketedDistances(nn.Module):
    """A learned number for each bucket of distances and each head, which all blocks share (MPNet, Song et al. 2020)."""

    config: ModelConfig

    @nn.compact
    def __call__(self, keys: int) -> Float[Array, "M H"]:
        """The numbers of the distances from S = `keys` down to 1 - S."""
        table = self.param("table", initial_weights(self.config), (_BUCKETS, self.config.num_heads))
        return table[bucket_of(np.arange(keys, -keys, -1))]


class BucketedPositions(nn.Module):
    """Adds to each score the learned number of the distance between query and key."""

    config: ModelConfig

    def __call__(
        self, query: Float[Array, "B T H K"], key: Array, pattern: AttentionPattern, projected: Callable[[Array], Array]
    ) -> tuple[Float[Array, "B T H K"], Float[Array, "#B H T S"]]:
        """The queries unchanged, and the terms times sqrt(K), by which attention divides them."""
        assert pattern.distances is not None, "the encoder sets the distances"
        scores = pattern.distances.T[:, None, None] * math.sqrt(query.shape[-1])
        shape = (1, query.shape[1]) if pattern.query_places is None else query.shape[:2]
        scores = jnp.broadcast_to(scores, (len(scores), *shape, scores.shape[-1]))
        return query, by_distance(scores, pattern).swapaxes(0, 1)
