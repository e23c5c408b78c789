"""The characters by which byte-level BPE writes bytes (Radford et al. 2019, section 2.2).

A byte that is a printable character of Latin-1 is that character, and the others are the characters from U+0100 on, in
their order: so the space is \u0120.
"""

_PRINTABLE = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
BYTES = {chr(byte): byte for byte in sorted(_PRINTABLE)} | {chr(0x100 + at): byte for at, byte in enumerate(_OTHERS)}
"""Bytes by the character that stands for them."""
