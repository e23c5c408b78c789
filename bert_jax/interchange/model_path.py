"""Tells the path of a model from a name of the hub. Nothing here imports a library that reads models, so that an absent
model is refused at once."""

import functools
import os
import re
from pathlib import Path

from bert_jax.system.bucket import Place, place_of
from bert_jax.system.errors import nothing_at
from bert_jax.system.progress import say

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
"""Files of a published model: its tensors, or the names of the files that have them."""
ANY_MODEL = "a run, a checkpoint or a Hugging Face directory"
"""What most commands take as a model, in words."""
_say_once = functools.cache(say)
_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)
"""The name of a model in the hub, with an optional organization."""


def local_place(source: str | os.PathLike, expected: str = ANY_MODEL) -> Place | None:
    """The place of a model that `source` names by a path or a gs:// URL; None if it names a model of the hub.

    An existing path always wins. A model of the hub is meant only if `source` is a string of the form NAME or
    OWNER/NAME, no such path exists, and no directory OWNER exists. Raises UsageError if nothing is at a path on this
    machine; `expected` is what the message asks for. Opens no file.
    """
    place = place_of(source)
    if not isinstance(place, Path):
        return place
    is_name = isinstance(source, str) and _NAME.fullmatch(source)
    if place.exists():
        if is_name and ((place / WEIGHTS).is_file() or (place / INDEX).is_file()):
            _say_once(f"{source} is the folder of this name, not a model of the Hugging Face hub")
        return place
    if is_name and not ("/" in str(source) and place.parent.is_dir()):  # otherwise probably the mistyped path of a run
        return None
    raise nothing_at(place, expected)


def local_or_hub_name(source: str) -> str:
    """The place of a model as `local_place` finds it, or its name in the hub. Raises UsageError as that does."""
    return str(local_place(source) or source)
