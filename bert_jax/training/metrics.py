"""metrics.jsonl and TensorBoard."""

import json
import math
import os
from pathlib import Path

from tensorboardX import SummaryWriter

from bert_jax.system.files import full_disk_explained, write_text


class MetricsLog:
    """One JSON object a line; after a restart the lines of steps that are done again are gone."""

    def __init__(self, directory: Path, step: int, tensorboard: bool):
        """Cuts what `directory` holds back to `step`, the one that training goes on from."""
        self.path = directory / "metrics.jsonl"
        kept = [json.dumps(line) + "\n" for line in read_metrics(self.path) if line["step"] <= step]
        write_text(self.path, "".join(kept))
        self._file = open(self.path, "a", encoding="utf-8")
        self._events = None
        if tensorboard:
            self._events = SummaryWriter(os.fspath(directory / "tensorboard"), purge_step=step + 1, flush_secs=30)

    def write(self, step: int, split: str, values: dict[str, float | None]) -> None:
        """Adds a line. What is not a finite number becomes null: JSON has no other."""
        finite = {name: value if value is not None and math.isfinite(value) else None for name, value in values.items()}
        with full_disk_explained(self.path):
            self._file.write(json.dumps({"step": step, "split": split} | finite) + "\n")
            self._file.flush()
        if self._events:
            for name, value in finite.items():
                if value is not None:
                    self._events.add_scalar(f"{split}/{name}", value, step)

    def close(self) -> None:
        """Writes out what is buffered."""
        self._file.close()
        if self._events:
            self._events.close()


def read_metrics(path: Path) -> list[dict[str, float | str | None]]:
    """The lines of a metrics.jsonl; [] where there is none. A last line that was not written to its end is left out."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1]]  # what stands after the last line feed is not whole
