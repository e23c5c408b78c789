"""Google's checkpoints: bert_model.ckpt, as TensorFlow 1 wrote it."""

import re
from functools import partial
from pathlib import Path
from typing import Any

from bert_jax.interchange.tensors import Tensor
from bert_jax.system.errors import UsageError

_OPTIMIZER = re.compile(r"(^global_step$|/adam_[mv]$|/(lamb_[mv]|Momentum)$|^(beta1|beta2)_power$)")
_RENAMED = (
    (r"/layer_(\d+)/", r"/layer/\1/"),
    (r"_embeddings$", "_embeddings/weight"),
    (r"/(kernel|gamma|output_weights)$", "/weight"),
    (r"/(beta|output_bias)$", "/bias"),
)
"""From TensorFlow's names to Hugging Face's, / for . meanwhile."""


def find_tensorflow_checkpoint(directory: Path) -> Path | None:
    """The prefix of the one checkpoint in `directory`; None where there is none. Raises UsageError for several."""
    found = sorted(directory.glob("*.ckpt*.index"))
    if len(found) > 1:
        raise UsageError(f"{directory} has {len(found)} checkpoints ({found[0].name}, ...); leave one there")
    return found[0].with_suffix("") if found else None


def read_tensorflow_checkpoint(prefix: Path) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors by Hugging Face's names, and the names of those of the optimizer.

    Raises UsageError where TensorFlow isn't installed, or where it can't read the checkpoint.
    """
    reader = _open(prefix)
    tensors, optimizers = {}, []
    for name, shape in sorted(reader.get_variable_to_shape_map().items()):
        if _OPTIMIZER.search(name):
            optimizers.append(name)
        else:
            tensors[_todays_name(name)] = _tensor(name, tuple(shape), partial(reader.get_tensor, name))
    return tensors, optimizers


def _open(prefix: Path) -> Any:
    """TensorFlow's reader of checkpoints."""
    try:
        from tensorflow.train import load_checkpoint
    except ImportError:
        raise UsageError(
            f"{prefix} is a TensorFlow checkpoint and needs TensorFlow to be read: pip install 'bert_jax[tensorflow]'"
        ) from None
    try:
        return load_checkpoint(str(prefix))
    except Exception as error:  # of TensorFlow's own kinds
        reason = str(error).splitlines()[0]
        raise UsageError(f"{prefix} is no good TensorFlow checkpoint ({reason}); fetch it again") from None


def _todays_name(name: str) -> str:
    for old, today in _RENAMED:
        name = re.sub(old, today, name)
    return name.replace("/", ".")


def _tensor(name: str, shape: tuple[int, ...], read: partial) -> Tensor:
    """A kernel is the transpose of what Hugging Face calls its weight."""
    if name.endswith("/kernel"):
        return Tensor(name, shape[::-1], lambda: read().T)
    return Tensor(name, shape, read)
