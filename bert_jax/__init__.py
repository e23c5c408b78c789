"""BERT in JAX: from raw text to a pretrained encoder, and what to do with it.

import bert_jax
bert_jax.pretrain(bert_jax.configs.demo, "runs/demo")
bert = bert_jax.load("runs/demo")
bert.fill_mask("Return the [MASK] of the array.")
"""

import importlib
from typing import TYPE_CHECKING, Any

from bert_jax.system.version import __version__ as __version__

if TYPE_CHECKING:
    from bert_jax.finetuning.finetune import finetune
    from bert_jax.inference.bert import Bert, load
    from bert_jax.pretraining.pretrain import pretrain
    from bert_jax.system.errors import Interrupted, RunError, UsageError
    from bert_jax.text.tokenizer import Tokenizer, load_tokenizer

__all__ = [
    "Bert",
    "Interrupted",
    "RunError",
    "Tokenizer",
    "UsageError",
    "configs",
    "finetune",
    "load",
    "load_tokenizer",
    "pretrain",
]

# Imported on first access: worker processes and command-line help need neither JAX nor a tokenizer.
_MODULES = {
    "Bert": "bert_jax.inference.bert",
    "load": "bert_jax.inference.bert",
    "pretrain": "bert_jax.pretraining.pretrain",
    "finetune": "bert_jax.finetuning.finetune",
    "Interrupted": "bert_jax.system.errors",
    "RunError": "bert_jax.system.errors",
    "UsageError": "bert_jax.system.errors",
    "Tokenizer": "bert_jax.text.tokenizer",
    "load_tokenizer": "bert_jax.text.tokenizer",
}


class _Configs:
    """The configs that come with bert_jax: `configs.demo`, or `configs["experiments/modern"]`; dir() lists the names.

    `change` gives a copy with other settings: `configs.demo.change(model={"num_layers": 3})`.
    """

    def __getitem__(self, name: str) -> Any:
        from bert_jax.system import interruption

        with interruption.after_block():
            from bert_jax.run.config_files import catalogue, find_config
        if found := find_config(name):
            return found.config
        raise KeyError(f"no config is called {name!r}; there are {', '.join(catalogue())}")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def __dir__(self) -> list[str]:
        from bert_jax.run.config_files import catalogue

        return [name.removeprefix("finetune/") for name in catalogue()]


configs = _Configs()


def __getattr__(name: str) -> object:
    """Imports a public name from the module that defines it. Raises AttributeError for any other name."""
    if name not in _MODULES:
        raise AttributeError(f"module 'bert_jax' has no attribute {name!r}")
    from bert_jax.system import interruption
    from bert_jax.system.machine import environment_fault, leave_out_absent_tpu, prepare_to_compute

    # Before JAX is imported.
    prepare_to_compute() if name in ("pretrain", "finetune") else leave_out_absent_tpu()
    try:
        with interruption.after_block():
            return getattr(importlib.import_module(_MODULES[name]), name)
    except ValueError as error:
        if fault := environment_fault(error):
            raise fault from None
        raise


def __dir__() -> list[str]:
    """The module's names together with the public names, so that help(bert_jax) shows them."""
    return [*globals(), *_MODULES]
