"""A made-up batch: what is measured where there is no data."""

import numpy as np

from bert_jax.instances.instances import Instances
from bert_jax.layout import MASKABLE, WORD_START
from bert_jax.training.batch import Batch, assemble


def synthetic_batch(batch_size: int, length: int, vocabulary_size: int) -> Batch:
    """A batch of random pieces at full length, with two segments of equal length; each piece is a word."""
    rng = np.random.default_rng(0)
    ids = rng.integers(0, vocabulary_size, batch_size * length, np.int32)
    units = np.full((batch_size, length), MASKABLE | WORD_START, np.uint8)
    first = length // 2
    units[:, [0, first - 1, -1]] = 0
    ends = np.arange(batch_size + 1) * length
    labels = rng.integers(0, 2, batch_size, np.int32)
    instances = Instances(ids, units.reshape(-1), ends, np.full(batch_size, first), labels)
    return assemble(instances, np.arange(batch_size), length)
