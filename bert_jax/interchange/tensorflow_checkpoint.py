"""Reads checkpoints of TensorFlow 1, such as the bert_model.ckpt of Google's BERT release.

For some damaged indexes TensorFlow's reader aborts its process, or allocates as much memory as the index claims. So a
subprocess, which runs this module as a program, converts the checkpoint to safetensors, and such failures become
ordinary errors.
"""

import importlib.util
import math
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from bert_jax.interchange.tensors import Tensor, tensors_of
from bert_jax.system.errors import UsageError, install_extra

_RENAMED = (
    (r"/layer_(\d+)/", r"/layer/\1/"),
    (r"_embeddings$", "_embeddings/weight"),
    (r"/(kernel|gamma|output_weights)$", "/weight"),
    (r"/(beta|output_bias)$", "/bias"),
    ("/", "."),
)
"""Replacements that turn TensorFlow's names into Hugging Face's, in this order."""
_OPTIMIZER = re.compile(
    r"^global_step$|^(beta1|beta2)_power$|^loss_scale|/(adam|lamb)_[mv]$"
    r"|/(Adam(_1)?|Momentum|ExponentialMovingAverage)$"
)
"""Pattern of the names of an optimizer's tensors."""
_MOST_MEMORY = 1 << 34
"""Limit of the subprocess's address space in bytes, to which four times the checkpoint's size is added. TensorFlow
alone maps several GB."""
_MOST_S = 600
"""Timeout in seconds for reading a checkpoint. BERT-large with its optimizer, 4 GB, takes under a minute."""
_MOST_SHOWN = 200
"""Largest number of characters of TensorFlow's message in an error."""


def find_tensorflow_checkpoint(directory: Path) -> Path | None:
    """The prefix of the checkpoint in `directory`, or None if there is none. Raises UsageError if there are several."""
    indexes = sorted(directory.glob("*.ckpt*.index"))
    if len(indexes) > 1:
        raise UsageError(f"{directory} has {len(indexes)} checkpoints ({indexes[0].name}, ...); leave one there")
    return indexes[0].with_suffix("") if indexes else None


def read_tensorflow_checkpoint(prefix: Path) -> tuple[dict[str, Tensor], list[str]]:
    """Reads a checkpoint; returns the tensors by Hugging Face's names, and the names of the optimizer's tensors. Raises
    UsageError if TensorFlow isn't installed, or if the subprocess fails, times out or is killed."""
    if importlib.util.find_spec("tensorflow") is None:
        raise UsageError(
            f"{prefix} is a TensorFlow checkpoint and needs TensorFlow to be read: {install_extra('tensorflow')}"
        )
    with tempfile.TemporaryDirectory() as folder:
        converted = Path(folder) / "tensors.safetensors"
        optimizers = _converted(prefix, converted)
        tensors = tensors_of(converted)  # keeps the file open, so it can be read after its deletion
    renamed = {}
    for name, tensor in tensors.items():
        is_kernel = name.endswith("/kernel")  # Hugging Face's weight is the transpose of the kernel
        for old, today in _RENAMED:
            name = re.sub(old, today, name)
        renamed[name] = tensor.transposed if is_kernel else tensor
    return renamed, optimizers


def _converted(prefix: Path, target: Path) -> list[str]:
    """Runs `convert` in a subprocess; returns the lines that it prints. Raises UsageError if it fails."""
    command = [sys.executable, "-P", "-m", __name__, str(prefix), str(target)]
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    reason = None
    try:
        ended = subprocess.run(command, capture_output=True, timeout=_MOST_S, env=os.environ | quiet)
    except subprocess.TimeoutExpired:
        reason = f"reading it took more than {_MOST_S} s"
    else:
        if ended.returncode < 0:
            reason = f"TensorFlow was ended by signal {-ended.returncode} while it read it"
        elif ended.returncode:
            lines = ended.stderr.decode("utf-8", "replace").strip().splitlines()
            reason = lines[-1][:_MOST_SHOWN] if lines else f"exit code {ended.returncode}"
    if reason:
        raise UsageError(f"{prefix} is no good TensorFlow checkpoint ({reason}); fetch it again")
    return ended.stdout.decode("utf-8", "replace").split("\n")[:-1]


def convert(prefix: str, target: str) -> None:
    """Writes the tensors of the checkpoint `prefix` to the safetensors file `target`, with TensorFlow's names.

    The optimizer's tensors are left out; their names are printed. Raises ValueError if the index describes more bytes
    than the data files have, and the exceptions of TensorFlow for a damaged checkpoint.
    """
    from tensorflow.train import load_checkpoint

    held = sum(file.stat().st_size for file in Path(prefix).parent.glob(f"{Path(prefix).name}.data-*"))
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = _MOST_MEMORY + 4 * held
    resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    reader = load_checkpoint(prefix)
    shapes, types = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    wanted = [name for name in sorted(shapes) if not _OPTIMIZER.search(name)]
    described = sum(math.prod(shapes[name]) * types[name].size for name in wanted)
    if described > held:
        raise ValueError(f"its index describes {described:,} bytes and its data files have {held:,}")
    save_file({name: np.ascontiguousarray(reader.get_tensor(name)) for name in wanted}, target)
    print("\n".join(sorted(shapes.keys() - set(wanted))))


if __name__ == "__main__":
    convert(*sys.argv[1:])
