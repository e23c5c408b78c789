"""The commands of `bert-jax` and the classes of their arguments."""

import importlib
from typing import Any

from bert_jax.system.errors import UsageError, did_you_mean

COMMANDS = {
    "pretrain": "train a model on text: vocabulary, sequences, training; continues where it stopped",
    "vocab": "the first step of pretrain alone: the vocabulary",
    "prepare": "the first two steps of pretrain alone: the vocabulary and the sequences",
    "doctor": "look at a sample of a text: languages, faults, sequences, hours, and what to change",
    "inspect": "show sequences of a run as the model sees them, with masks and labels",
    "params": "the parameters, memory and FLOPs of a model",
    "finetune": "train a model further for a task: classes, numbers, tags, choices, answers",
    "predict": "apply a fine-tuned model to rows",
    "evaluate": "measure a run on its held-out text or any other; a fine-tuned run on rows",
    "report": "write a page about a run, or one that compares several: curves, verdict, fills, data, settings",
    "suite": "measure many models on many tasks by one file, and say which differ",
    "verify": "check that a run's checkpoints and data are undamaged",
    "fill-mask": "the most probable pieces for each [MASK] of a text",
    "score": "the log probabilities of texts, or how often the acceptable one of two sentences has the higher one",
    "features": "write vectors of texts, or of tokens from chosen layers, to .npz, .parquet or .jsonl",
    "search": "the texts of a file that are most similar to a query",
    "import": "make a run from Hugging Face's or Google's files of a model",
    "export": "write a model for Hugging Face's transformers",
    "plan": "memory, collectives and time of the train step on a TPU slice; needs no TPU",
    "bench": "measure the train step on this machine, and what its time is spent on",
    "configs": "list the configs that come with bert-jax, or print one",
}
"""Commands and what they do. Each is a module of this package with a class of its arguments, which executes it."""

HELP_FLAGS = ("-h", "--help", "--help-all")
COMPLETION = "--print-completion"
"""Flag that prints a script for shell completion."""
COMPLETE = "--complete"
"""Flag by which a completion script asks for the words that may come next."""


def arguments_of(name: str) -> type[Any]:
    """The class of a command's arguments: FillMask for fill-mask. Raises UsageError for an unknown command."""
    if name not in COMMANDS:
        suggestion = did_you_mean(name, COMMANDS, f"choose from {', '.join(COMMANDS)}")
        raise UsageError(f"there is no command {name!r}; {suggestion}")
    # `import` is a keyword of Python and can't be the name of a module.
    file_name = "import_" if name == "import" else name.replace("-", "_")
    return getattr(importlib.import_module(f"bert_jax.cli.{file_name}"), name.title().replace("-", ""))
