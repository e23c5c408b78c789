"""Google's checkpoints: bert_model.ckpt, as TensorFlow 1 wrote it."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bert_jax.interchange.tensors import Tensor
from bert_jax.system.errors import UsageError

_OPTIMIZER = re.compile(
    r"^global_step$|^(beta1|beta2)_power$|^loss_scale|/(adam|lamb)_[mv]$|/(Adam(_1)?|Momentum|ExponentialMovingAverage)$"
)
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

    Raises UsageError where TensorFlow isn't installed, or where it can't read the checkpoint; a tensor's `read` too.
    """
    reader = _checked(prefix, _reader, prefix)
    tensors, optimizers = {}, []
    for name, shape in sorted(reader.get_variable_to_shape_map().items()):
        if _OPTIMIZER.search(name):
            optimizers.append(name)
        else:
            tensors[_todays_name(name)] = _tensor(
                name, tuple(shape), partial(_checked, prefix, reader.get_tensor, name)
            )
    return tensors, optimizers


def _reader(prefix: Path) -> Any:
    """TensorFlow's reader of checkpoints."""
    try:
        from tensorflow.train import load_checkpoint
    except ImportError:
        raise UsageError(
            f"{prefix} is a TensorFlow checkpoint and needs TensorFlow to be read: pip install 'bert_jax[tensorflow]'"
        ) from None
    return load_checkpoint(str(prefix))


def _checked(prefix: Path, read: Callable[..., Any], *arguments: Any) -> Any:
    """`read(*arguments)`; what goes wrong in it is said in one line."""
    try:
        return read(*arguments)
    except UsageError:
        raise
    except Exception as error:  # of TensorFlow's own kinds, and IndexError
        reason = (str(error).splitlines() or [type(error).__name__])[0]
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
