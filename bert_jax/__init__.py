"""BERT in JAX: from raw text to a pretrained encoder, and what to do with it.

import bert_jax
bert = bert_jax.load("runs/demo")
bert.fill_mask("Return the [MASK] of the array.")
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bert_jax.inference.bert import Bert
    from bert_jax.text.tokenizer import Tokenizer

__all__ = ["Bert", "Tokenizer", "load", "load_tokenizer"]
__version__ = "0.1.0"

# Imported on first access: worker processes and command-line help need neither JAX nor a tokenizer.
_CLASSES = {"Bert": "bert_jax.inference.bert", "Tokenizer": "bert_jax.text.tokenizer"}


def __getattr__(name: str) -> Any:
    """The classes by their module."""
    if name not in _CLASSES:
        raise AttributeError(f"module 'bert_jax' has no attribute {name!r}")
    return getattr(importlib.import_module(_CLASSES[name]), name)


def __dir__() -> list[str]:
    """With the classes, so that help(bert_jax) shows them."""
    return [*globals(), *_CLASSES]


def load(
    path: str | os.PathLike, step: int | None = None, average: int | None = None, dtype: str | None = None
) -> "Bert":
    """The model of a run, of one of its checkpoints, of a Hugging Face directory or of the hub by its name.

    Of a run `step` names a saved step to take in place of the newest (of a fine-tuned run: the best), and `average`
    asks for the mean of the parameters of its last so many saved steps, up to `step` or the newest. `dtype` is the type
    of the matrix products, `float32` or `bfloat16`; the default is float32 on CPUs, and elsewhere the training's type.

    Raises UsageError where there is none, RunError where it is damaged (bert_jax.system.errors).
    """
    from bert_jax.system.machine import leave_out_absent_tpu

    leave_out_absent_tpu()
    from bert_jax.inference.bert import load

    return load(path, step, average, dtype)


def load_tokenizer(path: str | os.PathLike, lowercase: bool = True) -> "Tokenizer":
    """The tokenizer of a run, a vocab.txt or a sentencepiece .model; `lowercase` is for a vocab.txt.

    Raises UsageError where there is none.
    """
    from bert_jax.text.tokenizer import load_tokenizer

    return load_tokenizer(path, lowercase)
