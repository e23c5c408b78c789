"""Damaged and hostile versions of a good file, and the attack on a reader with them."""

import random
import traceback
from collections.abc import Callable
from pathlib import Path

from bert_jax.config.settings import SettingsError
from bert_jax.system.errors import BertJaxError

HOSTILE = [
    b"",
    b"\0" * 64,
    b"[]",
    b"{}",
    b"null",
    b'"\\ud800"',
    b'{"a": ' * 100_000,
    b"[" * 100_000 + b"]" * 100_000,
    b'{"config": {"self": 1}}',
    b'{"step": ' + b"9" * 5_000 + b"}",
    b'{"step": 1e999, "size": NaN}',
    b"\xff\xfe" + "text".encode("utf-16-le"),
    b"\x1f\x8b\x08\x00",
    b"\x28\xb5\x2f\xfd",
    b"PK\x03\x04",
    b"PAR1" + b"\0" * 32 + b"PAR1",
    b"\x93NUMPY\x01\x00\xff\xff",
]
"""What no reader of any format takes, or only as an empty or plain text."""

_TOKENS = [
    *(b"null", b"true", b"-1", b"0", b"1e308", b"NaN", b"9223372036854775808", b"9" * 5_000, b"[]", b"{}", b'""'),
    *(b'"\\ud800"', b'"\\u0000"', b'"../../x"', b"[" * 2_000, b"\0", b"\xff", b"\xed\xa0\x80", b"\r\n", b'{"self": 1}'),
]


def flip_a_bit(path: Path) -> None:
    """Flips one in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def damaged(content: bytes, rng: random.Random) -> bytes:
    """One version of `content` with something flipped, cut, doubled, moved, or put in another thing's place."""
    if not content or rng.random() < 0.03:
        return rng.choice(HOSTILE)
    begin = rng.randrange(len(content))
    end = min(len(content), begin + 1 + int(rng.expovariate(1 / 16)))
    kind = rng.randrange(7)
    if kind == 0:
        return content[:begin] + bytes([content[begin] ^ 1 << rng.randrange(8)]) + content[begin + 1 :]
    if kind == 1:
        return content[:begin]
    if kind == 2:
        return content[:begin] + content[end:]
    if kind == 3:
        return content[:begin] + rng.choice(_TOKENS) + content[begin:]
    if kind == 4:
        return content[:begin] + rng.choice(_TOKENS) + content[end:]
    if kind == 5:
        return content[:end] + content[begin:]
    return content[:begin] + rng.randbytes(end - begin) + content[end:]


def attack(read: Callable[[], object], file: Path, count: int, seed: int = 0) -> None:
    """Has `read` read `count` damaged versions of `file`, then the hostile ones; puts the good one back.

    Any end is good but an exception that isn't one of ours, or one of ours whose text has several lines: then the
    damaged content is shown with the traceback.
    """
    rng, good = random.Random(f"{seed} {file.name}"), file.read_bytes()
    try:
        for content in [*(damaged(good, rng) for _ in range(count)), *HOSTILE]:
            file.write_bytes(content)
            try:
                read()
            except (BertJaxError, SettingsError) as error:
                assert "\n" not in str(error), f"several lines: {error}\n{content[:2000]!r}"
            except Exception:
                raise AssertionError(f"{traceback.format_exc()}\nof {file.name}: {content[:2000]!r}") from None
    finally:
        file.write_bytes(good)
