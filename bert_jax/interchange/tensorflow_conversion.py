"""A program that converts a TensorFlow checkpoint to safetensors; tensorflow_checkpoint.py runs it as a subprocess.

For some damaged indexes TensorFlow's reader aborts its process, or allocates as much memory as the index claims. In a
subprocess this becomes an ordinary error.
"""

import math
import re
import resource
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

OPTIMIZER = re.compile(
    r"^global_step$|^(beta1|beta2)_power$|^loss_scale|/(adam|lamb)_[mv]$"
    r"|/(Adam(_1)?|Momentum|ExponentialMovingAverage)$"
)
"""Pattern of the names of an optimizer's tensors."""
_MOST_MEMORY = 1 << 34
"""Limit of the address space in bytes, plus four times the checkpoint's size. TensorFlow alone maps several GB."""


def convert(prefix: str, target: str) -> None:
    """Writes the tensors of the checkpoint `prefix` to the safetensors file `target`, with TensorFlow's names.

    The optimizer's tensors are left out; their names are printed. Raises ValueError if the index describes more bytes
    than the data files have, and the exceptions of TensorFlow for a damaged checkpoint.
    """
    from tensorflow.train import load_checkpoint

    held = sum(file.stat().st_size for file in Path(prefix).parent.glob(f"{Path(prefix).name}.data-*"))
    _limit_memory(_MOST_MEMORY + 4 * held)
    reader = load_checkpoint(prefix)
    shapes, types = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    wanted = [name for name in sorted(shapes) if not OPTIMIZER.search(name)]
    described = sum(math.prod(shapes[name]) * types[name].size for name in wanted)
    if described > held:
        raise ValueError(f"its index describes {described:,} bytes and its data files have {held:,}")
    save_file({name: np.ascontiguousarray(reader.get_tensor(name)) for name in wanted}, target)
    print("\n".join(sorted(shapes.keys() - set(wanted))))


def _limit_memory(size: int) -> None:
    """Limits the address space of this process to `size` bytes, or to the existing hard limit if that is lower."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    allowed = size if hard == resource.RLIM_INFINITY else min(size, hard)
    resource.setrlimit(resource.RLIMIT_AS, (allowed, hard))


if __name__ == "__main__":
    convert(*sys.argv[1:])
