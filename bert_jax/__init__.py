"""BERT in JAX: from raw text to a pretrained encoder, and what to do with it.

import bert_jax
bert = bert_jax.load("runs/demo")
bert.fill_mask("Return the [MASK] of the array.")
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bert_jax.inference.bert import Bert, load
    from bert_jax.text.tokenizer import Tokenizer, load_tokenizer

__all__ = ["Bert", "Tokenizer", "load", "load_tokenizer"]
__version__ = "0.1.0"

# Imported on first access: worker processes and command-line help need neither JAX nor a tokenizer.
_MODULES = {
    "Bert": "bert_jax.inference.bert",
    "load": "bert_jax.inference.bert",
    "Tokenizer": "bert_jax.text.tokenizer",
    "load_tokenizer": "bert_jax.text.tokenizer",
}


def __getattr__(name: str) -> object:
    """The public names, by the modules that define them."""
    if name not in _MODULES:
        raise AttributeError(f"module 'bert_jax' has no attribute {name!r}")
    from bert_jax.system.machine import leave_out_absent_tpu

    leave_out_absent_tpu()  # before JAX is imported
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """With the public names, so that help(bert_jax) shows them."""
    return [*globals(), *_MODULES]
