"""JSON files that contain a checksum of their own content."""

import json
import zlib
from typing import Any

from bert_jax.system.bucket import Place
from bert_jax.system.files import write_json
from bert_jax.system.json_file import read_object

_KEY = "crc32"


def write_checked(path: Place, value: dict[str, Any]) -> None:
    """Writes `value` and its CRC-32 to `path` as one JSON object, atomically."""
    write_json(path, value | {_KEY: _crc32(value)})


def read_checked(path: Place, unchecked_formats: int = 0) -> dict[str, Any]:
    """Reads an object that `write_checked` wrote. Formats 1 to `unchecked_formats` may lack the checksum.

    Raises OSError if the file can't be read, and ValueError if it is damaged.
    """
    value = read_object(path)
    written = value.pop(_KEY, None)
    if written is None and value.get("format", unchecked_formats) not in range(1, unchecked_formats + 1):
        raise ValueError("it has no checksum")
    if written not in (None, _crc32(value)):
        raise ValueError("its checksum is another")
    return value


def _crc32(value: dict[str, Any]) -> int:
    """CRC-32 of the fields, independent of their order."""
    return zlib.crc32(json.dumps(value, sort_keys=True).encode())
