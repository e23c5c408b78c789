"""Google's checkpoints: bert_model.ckpt, as TensorFlow 1 wrote it."""

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from bert_jax.interchange.tensors import Tensor, tensors_of
from bert_jax.system.errors import UsageError, install_extra

_RENAMED = (
    (r"/layer_(\d+)/", r"/layer/\1/"),
    (r"_embeddings$", "_embeddings/weight"),
    (r"/(kernel|gamma|output_weights)$", "/weight"),
    (r"/(beta|output_bias)$", "/bias"),
)
"""From TensorFlow's names to Hugging Face's, / for . meanwhile."""
_MOST_S = 600
"""Longest time for reading a checkpoint; that of BERT-large, with its optimizer 4 GB, takes less than a minute."""
_MOST_SHOWN = 200
"""Characters of TensorFlow's own message in an error."""


def find_tensorflow_checkpoint(directory: Path) -> Path | None:
    """The prefix of the one checkpoint in `directory`; None where there is none. Raises UsageError for several."""
    found = sorted(directory.glob("*.ckpt*.index"))
    if len(found) > 1:
        raise UsageError(f"{directory} has {len(found)} checkpoints ({found[0].name}, ...); leave one there")
    return found[0].with_suffix("") if found else None


def read_tensorflow_checkpoint(prefix: Path) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors by Hugging Face's names, and the names of those of the optimizer.

    TensorFlow reads it in a process of its own. Raises UsageError where TensorFlow isn't installed, or where that
    process fails, whatever it ends by.
    """
    if importlib.util.find_spec("tensorflow") is None:
        raise UsageError(
            f"{prefix} is a TensorFlow checkpoint and needs TensorFlow to be read: {install_extra('tensorflow')}"
        )
    with tempfile.TemporaryDirectory() as folder:
        converted = Path(folder) / "tensors.safetensors"
        optimizers = _converted(prefix, converted)
        tensors = tensors_of(converted)  # opened: they can be read when the file has no name any more
    return {_todays_name(name): _transposed(tensor) for name, tensor in tensors.items()}, optimizers


def _converted(prefix: Path, target: Path) -> list[str]:
    """Has tensorflow_conversion.py write `target`; returns what that prints. Raises UsageError where it fails."""
    command = [sys.executable, "-P", "-m", "bert_jax.interchange.tensorflow_conversion", str(prefix), str(target)]
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    try:
        ended = subprocess.run(command, capture_output=True, timeout=_MOST_S, env=os.environ | quiet)
    except subprocess.TimeoutExpired:
        raise _damaged(prefix, f"reading it took more than {_MOST_S} s") from None
    if ended.returncode < 0:
        raise _damaged(prefix, f"TensorFlow was ended by signal {-ended.returncode} while it read it")
    if ended.returncode:
        lines = ended.stderr.decode("utf-8", "replace").strip().splitlines()
        raise _damaged(prefix, lines[-1][:_MOST_SHOWN] if lines else f"exit code {ended.returncode}")
    return ended.stdout.decode("utf-8", "replace").split("\n")[:-1]


def _damaged(prefix: Path, reason: str) -> UsageError:
    return UsageError(f"{prefix} is no good TensorFlow checkpoint ({reason}); fetch it again")


def _todays_name(name: str) -> str:
    for old, today in _RENAMED:
        name = re.sub(old, today, name)
    return name.replace("/", ".")


def _transposed(tensor: Tensor) -> Tensor:
    """A kernel is the transpose of what Hugging Face calls its weight."""
    if tensor.source.endswith("/kernel"):
        return Tensor(tensor.source, tensor.shape[::-1], lambda: tensor.read().T)
    return tensor
