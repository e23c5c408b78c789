"""Which model wrote a file of vectors: kept in the file, and compared where the vectors are used."""

import hashlib
import zipfile

import jax
import numpy as np

from bert_jax.model.bert import Parameters
from bert_jax.system.errors import UsageError
from bert_jax.system.json_file import Shape, as_shape, parse_object
from bert_jax.system.progress import say
from bert_jax.text.tokenizer import Tokenizer

_NUMBERS = 4096
"""Numbers of each parameter that are hashed: training changes almost all, and hashing gigabytes takes seconds."""


class Origin(Shape):
    """What made the vectors of a file."""

    model: str
    """The seal of the model, `seal_of`."""
    vectors: str
    """What was computed of each text, in words."""
    prompt: str = ""
    """What was put before each text."""

    @property
    def as_bytes(self) -> bytes:
        """It in JSON, as files have it: a .npz file as its comment, Parquet in its metadata."""
        return self.model_dump_json().encode()


def seal_of(params: Parameters, tokenizer: Tokenizer) -> str:
    """Hash of an encoder's parameters, of large ones some, and of its pieces: equal for a run and its exports."""
    encoder = {name: part for name, part in params["bert"].items() if name != "pooler"}
    digest = hashlib.blake2b("\0".join(tokenizer.vocabulary.pieces).encode(errors="replace"), digest_size=8)
    for path, leaf in jax.tree.leaves_with_path(encoder):
        numbers = np.asarray(leaf, np.float32).reshape(-1)
        digest.update(f"{jax.tree_util.keystr(path)} {leaf.shape}".encode())
        digest.update(numbers[:: max(len(numbers) // _NUMBERS, 1)].tobytes())
    return digest.hexdigest()


def origin_in(archive: zipfile.ZipFile) -> Origin | None:
    """The origin of the vectors in a .npz file; None if it doesn't say."""
    try:
        return as_shape(parse_object(archive.comment), Origin)
    except ValueError:
        return None


def check_origin(name: str, written: Origin | None, here: Origin) -> None:
    """Compares the origin of the vectors in a file called `name` with what is computed here.

    A line says if the file has none, or if another prompt was put before its texts. Raises UsageError for the vectors
    of another model.
    """
    if written is None:
        say(f"{name} doesn't say which model wrote it; its vectors are taken for this model's")
    elif written.model != here.model:
        raise UsageError(
            f"{name} has vectors of another model ({written.model}, and this one is {here.model}), which can't be "
            "compared; write them anew by bert-jax features with this run"
        )
    elif written.vectors != here.vectors:
        raise UsageError(
            f"{name} has {written.vectors}, and queries are compared by {here.vectors}; write the vectors anew by "
            "bert-jax features without --layers, --join and --pool"
        )
    elif written.prompt != here.prompt:
        say(
            f"{name} was written with {written.prompt!r} before each text, and this model puts {here.prompt!r} before "
            "the texts that are searched; write it anew by bert-jax features --role passage"
        )
