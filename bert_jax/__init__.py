"""BERT in JAX: from raw text to a pretrained encoder, and what to do with it.

import bert_jax
bert = bert_jax.load("runs/demo")
bert.fill_mask("Return the [MASK] of the array.")
"""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bert_jax.inference.bert import Bert
    from bert_jax.text.tokenizer import Tokenizer

__version__ = "0.1.0"


# Imported when called: worker processes and command-line help need neither JAX nor a tokenizer.
def load(path: str | os.PathLike) -> "Bert":
    """The model of a run or of one of its checkpoints; see bert_jax.inference.bert."""
    from bert_jax.inference.bert import load

    return load(path)


def load_tokenizer(path: str | os.PathLike, lowercase: bool = True) -> "Tokenizer":
    """The tokenizer of a run, a vocab.txt or a sentencepiece .model; see bert_jax.text.tokenizer."""
    from bert_jax.text.tokenizer import load_tokenizer

    return load_tokenizer(path, lowercase)
