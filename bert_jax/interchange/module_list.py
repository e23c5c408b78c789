"""Reads modules.json, in which sentence-transformers lists the modules of a model."""

import os
from pathlib import Path

from bert_jax.interchange.json_file import read_list
from bert_jax.system.errors import UsageError, quoted
from bert_jax.system.json_file import Shape

MODULES = "modules.json"


class Module(Shape):
    """One module in modules.json."""

    type: str
    path: str = ""


def has_module_list(directory: Path) -> bool:
    """Whether `directory` has a modules.json; a link to a missing file counts, since it can't be read."""
    return os.path.lexists(directory / MODULES)


def read_module_list(directory: Path) -> list[Module]:
    """The modules in their order, at least one, of which the first reads texts.

    Raises UsageError if the file is missing or damaged, or if the first module has a folder of its own.
    """
    file = directory / MODULES
    modules = read_list(file, Module)
    if not modules:
        raise UsageError(f"{file} lists no modules; fetch the model again")
    if modules[0].path not in ("", "."):
        raise UsageError(
            f"{file}: the path of the first module is {quoted(modules[0].path)}, as in old models of "
            f"sentence-transformers; bert_jax reads a model that lies beside {MODULES}: copy the files of that folder "
            "there, and make the path empty"
        )
    return modules
