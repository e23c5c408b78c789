"""Sequences of marked units for tests of masking."""

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.layout import ENTITY_START, MASKABLE, PHRASE_START, WORD_START, lay_out

LENGTH, VOCABULARY, MASK_ID = 128, 300, 4


class Text:
    """Sequences of two segments of words, of which some stand in phrases and entities."""

    def __init__(self, lengths, seed=0):
        rng = np.random.default_rng(seed)
        self.lengths = np.asarray(lengths)
        self.ids, self.units, first = [], [], []
        for length in self.lengths:
            word = rng.random(length) < 0.6
            phrase = word & (rng.random(length) < 0.7)
            entity = word & (rng.random(length) < 0.8)
            units = MASKABLE + WORD_START * word + PHRASE_START * phrase + ENTITY_START * entity
            middle = int(rng.integers(2, length - 2))
            units[[1, middle + 1]] = MASKABLE | WORD_START | PHRASE_START | ENTITY_START
            units[[0, middle, length - 1]] = 0
            self.ids.append(rng.integers(5, VOCABULARY, length))
            self.units.append(units.astype(np.uint8))
            first.append(middle + 1)
        self.first = np.array(first)

    def laid_out(self, rows=None):
        shape = (len(self.lengths) if rows is None else int(rows[-1]) + 1, LENGTH)
        ids, units = np.concatenate(self.ids), np.concatenate(self.units)
        return jax.tree.map(jnp.asarray, lay_out(ids, self.lengths, self.first, shape, units=units, rows=rows))
