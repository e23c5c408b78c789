"""Files of tensors in the format of safetensors."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file


def write_safetensors(path: Path, tensors: Mapping[str, np.ndarray], metadata: dict[str, str] | None = None) -> None:
    """Writes named tensors to `path`, with the mode that the umask gives. Raises OSError or SafetensorError."""
    path.touch()
    mode = path.stat().st_mode
    save_file(dict(tensors), path, metadata)
    path.chmod(mode)  # the library creates a file that only its owner can read
