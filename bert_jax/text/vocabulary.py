"""The list of pieces, of which five are special: reads, checks and writes vocab.txt."""

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from bert_jax.config.model import ClassToken
from bert_jax.system.bucket import Place
from bert_jax.system.errors import Setting, UsageError, quoted
from bert_jax.system.files import write_text
from bert_jax.system.json_file import read_bytes
from bert_jax.text.library_calls import has_half_of_a_pair

PAD, UNKNOWN, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_PIECES = (PAD, UNKNOWN, CLS, SEP, MASK)
"""The five special pieces of every vocabulary, in the order in which a trained vocabulary has them."""
_NAMES = (
    (PAD, "<pad>"),
    (UNKNOWN, "<unk>"),
    (CLS, "<cls>", "<s>", "<|begin_of_text|>"),
    (SEP, "<sep>", "</s>", "<|end_of_text|>"),
    (MASK, "<mask>", "<|mask|>"),
)
CONTINUATION = "##"
"""Prefix of pieces that continue a word in a WordPiece."""
BOUNDARY = "\u2581"
"""First character of pieces that begin a word in all other vocabularies."""

MOST_VOCABULARY_BYTES = 32_000_000
"""Bytes of the largest file of pieces or words. The largest published vocabulary of a BERT has 501,153 pieces, 5 MB."""
MOST_PIECES = 10_000_000
"""Each piece's number must be below this limit: twenty times the largest published vocabulary of a BERT."""
_FOREIGN_SIGNS = (
    (BOUNDARY, "sentencepiece's (as KoBERT's)", str.startswith),
    ("</w>", "a BPE's with ends of words (as HerBERT's)", str.endswith),
)
"""Signs of pieces of other algorithms: the sign, what writes it, and the test whether a piece has it."""
_MANY = 0.02
"""Share of a vocabulary's pieces above which a sign shows that the other algorithm wrote them."""
BLANKS = " \t\r\n"
"""Characters that always separate words, so no piece contains them."""
BLANKS_AT_ENDS = "\x0b\x0c\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
"""Further blanks of Unicode, which are cut from the ends of a vocab.txt's lines, as in transformers."""


class VocabularySizeError(UsageError):
    """The text gives no vocabulary of the given size."""

    def __init__(self, message: str, size: int):
        super().__init__(message)
        self.size = size
        """A size that the text may give."""

    @classmethod
    def too_large(cls, size: int, most: int) -> "VocabularySizeError":
        """The error if the text gives only `most` pieces."""
        return cls(
            f"{Setting('vocabulary.size')}={size:,} is more than the text can give, {most:,} pieces; set "
            f"{Setting('vocabulary.size')} {most} or less, or give more text",
            most,
        )

    @classmethod
    def too_small(cls, size: int, characters: int) -> "VocabularySizeError":
        """The error if the text's characters need `characters` pieces, more than `size`."""
        return cls(
            f"{Setting('vocabulary.size')}={size:,} is less than the {characters:,} pieces that the text's "
            f"characters need; raise it or lower {Setting('vocabulary.character_coverage')}",
            2 * characters,
        )


class PieceSpan(NamedTuple):
    """A piece of a text: its id, and its characters from `begin` to `end` (exclusive)."""

    id: int
    begin: int
    end: int


class Frame(NamedTuple):
    """Ids of the special tokens around one text and around a pair, and where the second segment begins."""

    single: tuple[tuple[int, ...], tuple[int, ...]]
    """The ids before and after a single text."""
    pair: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    """The ids before, between and after two texts."""
    first_separators: int
    """How many of the ids between the texts belong to the first text."""
    segments: bool = True
    """Whether segment 1 begins after the ids that belong to the first text. False, as in RoBERTa: both texts are in
    segment 0."""

    @classmethod
    def of_separators(cls, cls_id: int, sep_id: int, separators: int = 1, class_token: ClassToken = "first") -> "Frame":
        """The frame [CLS] text [SEP] or, with [CLS] last, text [SEP] [CLS]. A pair has `separators` times [SEP] after
        its first text, and these belong to the first text.

        There is one separator in BERT and XLNet and two in RoBERTa, which has no segments.
        """
        before, after = ((cls_id,), (sep_id,)) if class_token == "first" else ((), (sep_id, cls_id))
        return cls((before, after), (before, (sep_id,) * separators, after), separators, separators == 1)

    def around(self, texts: int) -> tuple[tuple[int, ...], ...]:
        """The ids before, between and after `texts` texts: one or two."""
        return self.single if texts == 1 else self.pair

    def size(self, texts: int) -> int:
        """Number of special tokens around `texts` texts."""
        return sum(map(len, self.around(texts)))

    def separators(self, cls_id: int, sep_id: int) -> int | None:
        """The number of separators between two texts; None if the frame isn't one that `of_separators` makes."""
        count = len(self.pair[1])
        expected = Frame.of_separators(cls_id, sep_id, count, self.class_token(cls_id))
        return count if count and self[:3] == expected[:3] else None

    def class_token(self, cls_id: int) -> ClassToken:
        """The place of [CLS]: last if it ends a text and doesn't begin it, otherwise first."""
        before, after = self.single
        return "last" if after[-1:] == (cls_id,) and not before else "first"


class Vocabulary:
    """Pieces and their ids. `pieces[i]` has id i."""

    def __init__(
        self,
        pieces: Sequence[str],
        name: str = "vocabulary",
        special: Sequence[str] = SPECIAL_PIECES,
        blanks: str = BLANKS,
        frame: Frame | None = None,
    ):
        """`special`: this vocabulary's names of the five special pieces, in the order of SPECIAL_PIECES.

        `blanks`: characters that no piece may contain. `frame`: the special tokens around texts; None: BERT's. Raises
        UsageError, with `name`, if a special piece is missing, or if a piece is empty, occurs twice, or contains U+0000
        or one of `blanks`.
        """
        self.pieces = tuple(pieces)
        self.special = tuple(special)
        self.ids = {piece: number for number, piece in enumerate(self.pieces)}
        missing = [piece for piece in special if piece not in self.ids]
        if missing:
            raise UsageError(
                f"{name} lacks {', '.join(missing)}; a BERT vocabulary has one piece a line and among them "
                f"{' '.join(SPECIAL_PIECES)}"
            )
        # All pieces are looked through together first, which takes a tenth of the time.
        suspects = self.pieces if "" in self.ids or _fault("".join(self.pieces), blanks) else ()
        for number, piece in enumerate(suspects):
            if fault := _fault(piece, blanks):
                raise UsageError(
                    f"{name}, line {number + 1:,}: the piece {quoted(piece)} {fault}, which no text gives; put an "
                    f"unused name like [unused{number}] there, so that the other pieces keep their ids"
                )
        if len(self.ids) < len(self.pieces):
            second = next(number for number, piece in enumerate(self.pieces) if self.ids[piece] != number)
            raise UsageError(
                f"{name} holds {quoted(self.pieces[second])} twice (lines {second + 1} and "
                f"{self.ids[self.pieces[second]] + 1}); every piece has one id, so remove or rename one"
            )
        self.special_ids = tuple(self.ids[piece] for piece in special)
        self.pad_id, self.unknown_id, self.cls_id, self.sep_id, self.mask_id = self.special_ids
        self.frame = frame or Frame.of_separators(self.cls_id, self.sep_id)
        """The special tokens around one text and around a pair."""

    @property
    def separators(self) -> int:
        """The number of separators between two texts: one in BERT, two in RoBERTa.

        Raises UsageError for a frame that is neither [CLS] text [SEP] nor text [SEP] [CLS].
        """
        count = self.frame.separators(self.cls_id, self.sep_id)
        if count is None:
            raise UsageError(
                f"the tokenizer sets {self.framed('text')} and {self.framed('first', 'second')}, and what was asked "
                f"needs {self.special[2]} before a text and {self.special[3]} after it; use the model without, or give "
                "a tokenizer with that frame"
            )
        return count

    @property
    def has_unknown(self) -> bool:
        """Whether a piece stands for unknown words; a byte-level BPE may have none, and its mask has that id then."""
        return self.unknown_id != self.mask_id

    @property
    def class_token(self) -> ClassToken:
        """The place of [CLS] in the frame."""
        return self.frame.class_token(self.cls_id)

    def framed(self, *texts: str) -> str:
        """One text or two, with the special pieces around them."""
        before, *after = (" ".join(self.pieces[number] for number in ids) for ids in self.frame.around(len(texts)))
        return " ".join(filter(None, [before, *(part for pair in zip(texts, after, strict=True) for part in pair)]))

    @cached_property
    def share_of_capitals(self) -> float:
        """Share of the pieces, without special ones, that contain a capital letter."""
        return self.share_of(lambda piece: piece != piece.lower())

    def share_of(self, has: Callable[[str], bool]) -> float:
        """Share of the pieces, without special ones, for which `has` is true."""
        ordinary = [piece for number, piece in enumerate(self.pieces) if number not in self.special_ids]
        return sum(map(has, ordinary)) / max(len(ordinary), 1)

    def __len__(self) -> int:
        return len(self.pieces)

    @classmethod
    def read(
        cls, path: Place, content: "Content | None" = None, special: Sequence[str] = SPECIAL_PIECES
    ) -> "Vocabulary":
        """Reads a vocab.txt with these `special` pieces by `content`; None: by `content_of`.

        The file is UTF-8 and split at line feeds only, since published vocabularies have pieces like U+2028. A piece of
        such blanks alone is kept, although no text gives it; other pieces lose the blanks at their ends.
        """
        lines = read_lines(path, "vocabulary", "a vocab.txt", content or content_of)
        cut = [line.rstrip(BLANKS_AT_ENDS) for line in lines]
        pieces = [line if piece in ("", CONTINUATION) else piece for line, piece in zip(lines, cut, strict=True)]
        return cls(pieces, str(path), special)

    def write(self, path: Place) -> None:
        """Writes a vocab.txt."""
        write_text(path, "".join(piece + "\n" for piece in self.pieces))


def special_names(
    pieces: Container[str], marked: Mapping[str, bool] | None = None, of_bytes: bool = False
) -> tuple[str, ...]:
    """The names of the five special pieces among `pieces`, in the order of SPECIAL_PIECES; BERT's for missing ones.

    Models of fairseq, and so RoBERTa and XLM-R, have other names than BERT. ALBERT has some names of each, and MPNet's
    vocabulary has both. `marked`: the pieces that a file marks as special, and whether each is the model's own. If the
    usual name isn't marked, a marked piece of the model's own takes its place.

    `of_bytes`: whether the pieces are of byte-level BPE. Such a vocabulary may lack two pieces, as EuroBERT's does: the
    piece of padding, for which the end of a text then stands, since rows are masked by their lengths; and the piece of
    unknown words, of which it has none, so that the mask, which no text has either, stands for it.
    """
    names, marked = list[str](), marked or {}
    for choices in _NAMES:
        usual = next((name for name in choices if name in pieces), choices[0])
        own = () if usual in marked else (name for name in choices if marked.get(name))
        names.append(next(iter(own), usual))
    pad, unknown, cls, sep, mask = names
    if of_bytes:
        pad, unknown = (pad if pad in pieces else sep), (unknown if unknown in pieces else mask)
    return pad, unknown, cls, sep, mask


def check_numbers(numbers: Mapping[str, object], name: Path | str) -> None:
    """Raises UsageError, with `name`, if the number of a piece isn't an integer from 0 to MOST_PIECES."""
    for piece, number in numbers.items():
        if type(number) is not int or not 0 <= number < MOST_PIECES:
            raise UsageError(
                f"{name}: the piece {quoted(piece)} has the number {quoted(number)}; expected an integer from 0 to "
                f"{MOST_PIECES - 1:,}"
            )


def check_spelling(pieces: Collection[str], name: str) -> None:
    """Raises UsageError, with `name`, for pieces of an algorithm that is neither WordPiece nor byte-level BPE.

    Such pieces would match no text.
    """
    for sign, maker, holds in _FOREIGN_SIGNS:
        if (count := sum(holds(piece, sign) for piece in pieces)) > len(pieces) * _MANY:
            raise UsageError(
                f"{name}: {count:,} of the {len(pieces):,} pieces have {sign}, so they are {maker}; give the file of "
                "its own tokenizer"
            )


def _fault(piece: str, blanks: str) -> str | None:
    """Why a piece isn't valid; None if it is valid."""
    if not piece:
        return "is empty"
    if "\0" in piece:
        return "holds the character U+0000"
    if any(blank in piece for blank in blanks):
        return "holds a space, a tab or a line break"
    if has_half_of_a_pair(piece):
        return "holds half of a surrogate pair"
    return None


Content = Callable[[Place], bytes]
"""Returns the content of a file. Raises OSError, or ValueError for a file that is too large."""


def content_of(path: Place) -> bytes:
    """The content of a file of pieces or words. Raises OSError, or ValueError for more than MOST_VOCABULARY_BYTES."""
    return read_bytes(path, MOST_VOCABULARY_BYTES)


def read_file(path: Place, expected: str, content: Content = content_of) -> bytes:
    """The content of a file of pieces or words. Raises UsageError, with `expected` as the remedy, if `content` can't
    read it."""
    try:
        return content(path)
    except OSError as error:
        raise UsageError(f"{path} can't be read ({error.strerror}); give the path of {expected}") from None
    except ValueError as error:
        raise UsageError(f"{path}: {error}; give the path of {expected}") from None


def read_lines(path: Place, name: str, expected: str, content: Content = content_of) -> list[str]:
    """The lines of a UTF-8 file, split at line feeds only.

    Raises UsageError, with `name` and `expected`, if the file is missing, too large or not UTF-8.
    """
    if not path.exists():
        raise UsageError(f"no {name} at {path}; give the path of {expected}")
    try:
        text = read_file(path, expected, content).decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 (byte {error.start}); {expected} is UTF-8 text") from None
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.rstrip("\r") for line in lines]
