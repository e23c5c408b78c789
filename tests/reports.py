"""What the tests of reports share."""

import json
from pathlib import Path

HOSTILE = '</script><script>alert("x")</script><img src=x onerror=alert(1)> \u202e\x07 ${datum} {{x}}'
"""Text that no page may take for HTML or a program."""


def write_metrics(path: Path, losses: list[float | None]) -> None:
    """Writes a metrics.jsonl with these training losses, one for each step."""
    lines = ({"step": step, "split": "train", "loss": loss} for step, loss in enumerate(losses, 1))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
