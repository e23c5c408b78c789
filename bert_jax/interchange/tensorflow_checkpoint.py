"""Reads checkpoints of TensorFlow 1, such as the bert_model.ckpt of Google's BERT release."""

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
"""Replacements that turn TensorFlow's names into Hugging Face's, except that / still stands for a dot."""
_MOST_S = 600
"""Timeout of reading a checkpoint, in seconds. That of BERT-large with its optimizer, 4 GB, takes under a minute."""
_MOST_SHOWN = 200
"""Most characters of TensorFlow's message that an error quotes."""


def find_tensorflow_checkpoint(directory: Path) -> Path | None:
    """The prefix of the checkpoint in `directory`, or None if there is none. Raises UsageError if there are several."""
    indexes = sorted(directory.glob("*.ckpt*.index"))
    if len(indexes) > 1:
        raise UsageError(f"{directory} has {len(indexes)} checkpoints ({indexes[0].name}, ...); leave one there")
    return indexes[0].with_suffix("") if indexes else None


def read_tensorflow_checkpoint(prefix: Path) -> tuple[dict[str, Tensor], list[str]]:
    """Reads a checkpoint; returns the tensors by Hugging Face's names, and the names of the optimizer's tensors.

    TensorFlow runs in a subprocess. Raises UsageError if TensorFlow isn't installed, or if the subprocess fails, times
    out or is killed.
    """
    if importlib.util.find_spec("tensorflow") is None:
        raise UsageError(
            f"{prefix} is a TensorFlow checkpoint and needs TensorFlow to be read: {install_extra('tensorflow')}"
        )
    with tempfile.TemporaryDirectory() as folder:
        converted = Path(folder) / "tensors.safetensors"
        optimizers = _converted(prefix, converted)
        tensors = tensors_of(converted)  # keeps the file open, so tensors can be read after it is deleted
    return {_todays_name(name): _transposed(tensor) for name, tensor in tensors.items()}, optimizers


def _converted(prefix: Path, target: Path) -> list[str]:
    """Runs tensorflow_conversion.py to write `target`; returns the lines it prints. Raises UsageError if it fails."""
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
    """Hugging Face's current name of a TensorFlow variable."""
    for old, today in _RENAMED:
        name = re.sub(old, today, name)
    return name.replace("/", ".")


def _transposed(tensor: Tensor) -> Tensor:
    """Transposes a kernel, as Hugging Face stores its transpose as the weight; returns other tensors unchanged."""
    if tensor.source.endswith("/kernel"):
        return Tensor(tensor.source, tensor.shape[::-1], lambda: tensor.read().T)
    return tensor
