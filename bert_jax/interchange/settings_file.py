"""JSON files of other programs."""

import json
from pathlib import Path
from typing import Any

from bert_jax.system.errors import UsageError

_MOST_BYTES = 100_000_000
"""The largest are a tokenizer.json of a large vocabulary and an index of many files."""


def read_settings(path: Path) -> dict[str, Any]:
    """The JSON object in `path`. Raises UsageError where there is none, or an absurdly large one."""
    try:
        size = path.stat().st_size
        if size > _MOST_BYTES:
            raise UsageError(f"{path} has {size:,} bytes; {_MOST_BYTES:,} are more than any such file needs")
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} can't be read ({error.strerror}); give a folder that has it") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no JSON ({error}); fetch it again") from None
    if not isinstance(value, dict):
        raise UsageError(f"{path} holds no JSON object; fetch it again")
    return value
