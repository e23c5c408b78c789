"""How the kinds of vocabularies spell their pieces: where a word begins, and which text a piece stands for."""

import re
from collections.abc import Container, Iterable

from bert_jax.text.scripts import sets_no_spaces, starts_word, visible
from bert_jax.text.vocabulary import BOUNDARY, CONTINUATION

_PRINTABLE = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
BYTES = {chr(byte): byte for byte in sorted(_PRINTABLE)} | {chr(0x100 + at): byte for at, byte in enumerate(_OTHERS)}
"""The byte that each character stands for in byte-level BPE (Radford et al. 2019, section 2.2).

A printable character of Latin-1 stands for its own byte. The characters from U+0100 on stand for the other bytes, such
as \\u0120 for the space."""
_BYTE = re.compile("<0x[0-9A-F]{2}>")
"""Spelling of a piece for one byte, in vocabularies that split unknown characters into bytes."""


class PieceSpelling:
    """The spelling of sentencepiece and Metaspace: a piece that begins a word begins with BOUNDARY."""

    def __init__(self, added: Container[str] = ()):
        """`added`: the added tokens, which every kind spells as the text that they stand for."""
        self._added = added

    def readable(self, piece: str) -> str:
        """A piece for people to read."""
        return piece

    def letters(self, piece: str) -> str:
        """The characters of a piece without the sign of a word's beginning or continuation. A lone boundary is kept."""
        return self.readable(piece).removeprefix(BOUNDARY) or BOUNDARY

    def text_bytes(self, piece: str) -> bytes:
        """The UTF-8 bytes that a piece adds to a text, with a space where it begins a word. They may be only a part of
        a character."""
        return bytes.fromhex(piece[3:5]) if _BYTE.fullmatch(piece) else piece.replace(BOUNDARY, " ").encode()

    def starts_word(self, piece: str) -> bool:
        """Whether a piece begins a word: after a space, as punctuation, or in a script without spaces."""
        return starts_word(self.readable(piece))

    def joined(self, pieces: Iterable[str]) -> str:
        """The text of pieces that follow one another."""
        return "".join(pieces).replace(BOUNDARY, " ").removeprefix(" ")

    def with_special(self, parts: Iterable[str]) -> str:
        """A text of several parts, each a special piece or a text from `joined`."""
        return " ".join(parts)

    def span(self, piece: str, text: str, begin: int, end: int) -> tuple[int, int]:
        """The characters of `text` that a piece covers. The library counts those from `begin` to `end`."""
        return visible(text, begin, begin if piece == BOUNDARY else end)

    def in_text(self, word: str) -> str:
        """A word as it stands in the middle of a text, with the space before it that its piece includes."""
        return word if sets_no_spaces(word[:1] or " ") else f" {word}"


class WordPieceSpelling(PieceSpelling):
    """The spelling of WordPiece: a piece that continues a word begins with CONTINUATION."""

    def letters(self, piece: str) -> str:
        return piece.removeprefix(CONTINUATION)

    def text_bytes(self, piece: str) -> bytes:
        return f" {piece}".replace(f" {CONTINUATION}", "").encode()

    def starts_word(self, piece: str) -> bool:
        """Whether a piece begins a word: unless it is a ##piece."""
        return not piece.startswith(CONTINUATION)

    def joined(self, pieces: Iterable[str]) -> str:
        return " ".join(pieces)

    def with_special(self, parts: Iterable[str]) -> str:
        return " ".join(parts).replace(f" {CONTINUATION}", "")

    def span(self, piece: str, text: str, begin: int, end: int) -> tuple[int, int]:
        return begin, end

    def in_text(self, word: str) -> str:
        return word


class ByteSpelling(PieceSpelling):
    """The spelling of byte-level BPE: each character stands for a byte of UTF-8 (BYTES)."""

    def readable(self, piece: str) -> str:
        """A piece for people to read: its bytes are decoded, and a space at the beginning becomes BOUNDARY. Control
        characters, and bytes that make no character, are escaped."""
        if piece in self._added:
            return piece
        text = self.text_bytes(piece).decode("utf-8", "backslashreplace")
        space, text = (BOUNDARY, text[1:]) if text[:1] == " " else ("", text)
        characters = (each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
        return space + "".join(characters)

    def text_bytes(self, piece: str) -> bytes:
        numbers = [BYTES.get(character, -1) for character in piece]
        return piece.encode() if piece in self._added or -1 in numbers else bytes(numbers)

    def joined(self, pieces: Iterable[str]) -> str:
        return b"".join(map(self.text_bytes, pieces)).decode("utf-8", "replace").removeprefix(" ")

    def span(self, piece: str, text: str, begin: int, end: int) -> tuple[int, int]:
        """The characters that a piece covers, without white space before it; control characters have pieces, too."""
        space = end - begin - len(text[begin:end].lstrip())
        return min(begin + space, end), end
