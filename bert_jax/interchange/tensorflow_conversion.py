"""A TensorFlow checkpoint written as safetensors: a program of its own, which tensorflow_checkpoint.py starts.

TensorFlow's reader aborts its whole process where an index is damaged in certain ways, and allocates what the shapes in
it claim. In a process of its own that is an error like any other.
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
"""Names of an optimizer's tensors."""
_MOST_MEMORY = 1 << 34
"""Address space in bytes, besides four times the checkpoint's size. TensorFlow by itself maps some GB."""


def convert(prefix: str, target: str) -> None:
    """Writes the tensors of the checkpoint `prefix` to the safetensors file `target`, by TensorFlow's names.

    Those of the optimizer are left out and printed by name. Raises ValueError where the tensors that the index
    describes are larger than the files that should hold them, and whatever TensorFlow raises for a damaged checkpoint.
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
    """Allocations beyond `size` bytes fail from now on, or beyond the limit that is set already."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    allowed = size if hard == resource.RLIM_INFINITY else min(size, hard)
    resource.setrlimit(resource.RLIMIT_AS, (allowed, hard))


if __name__ == "__main__":
    convert(*sys.argv[1:])
