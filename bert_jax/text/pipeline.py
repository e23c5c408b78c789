"""Tokenizers that are pipelines of Hugging Face's library, as a tokenizer.json describes them: byte-level BPE as
RoBERTa has it, and models whose pieces mark spaces, as XLM-R and ALBERT have them."""

import copy
import itertools
import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool
from tokenizers import AddedToken, Tokenizer

from bert_jax.system import json_file
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError, shown
from bert_jax.system.files import write_text
from bert_jax.text.byte_alphabet import BYTES
from bert_jax.text.charsmap import normalizer_fault
from bert_jax.text.scripts import is_punctuation, sets_no_spaces
from bert_jax.text.sentencepiece import BOUNDARY, starts_word, visible
from bert_jax.text.tokenizer_settings import Kind, TokenizerSettings, write_settings
from bert_jax.text.vocabulary import MASK, MOST_BYTES, PieceSpan, Vocabulary, special_names

_KINDS: dict[Any, Kind] = {"ByteLevel": "byte_bpe", "Metaspace": "metaspace"}
"""Kinds by the type of the pre-tokenizer that sets how spaces are written."""
_KEYS = (
    *("version", "truncation", "padding", "added_tokens"),
    *("normalizer", "pre_tokenizer", "post_processor", "decoder", "model"),
)
"""Parts of a tokenizer.json."""
_MODELS: dict[Kind, tuple[str, ...]] = {"byte_bpe": ("BPE",), "metaspace": ("Unigram", "BPE")}


class PipelineTokenizer:
    """Text to piece ids by the steps that a tokenizer.json names.

    Ids are those of Hugging Face's library, and so of transformers, except that special pieces in a text are ordinary
    characters.
    """

    file_name = "tokenizer.json"
    cuts = ()  # the library remembers words itself: encoding each one once is 15% faster, not ten times as elsewhere

    def __init__(self, file: dict[str, Any], name: str = "tokenizer.json"):
        """`file`: the contents of a tokenizer.json, read from `name`.

        Raises UsageError if it isn't of a kind that is read here, if the library refuses it, or if a special piece is
        missing.
        """
        self._file, self._name = file, name
        self.kind = _kind_of(file, name)
        if fault := normalizer_fault(file.get("normalizer")):
            raise UsageError(f"{name}: its precompiled_charsmap is damaged ({fault}); fetch the file again")
        ids = _built(file, name).get_vocab(with_added_tokens=True)
        self._tokenizer = _ordinary(file, name)
        pieces = sorted(ids, key=ids.__getitem__)
        if [ids[piece] for piece in pieces] != list(range(len(pieces))):
            raise UsageError(f"{name}: its pieces aren't numbered from 0 to {len(pieces) - 1:,}, each number once")
        special = special_names(ids)
        self.vocabulary = Vocabulary(pieces, name, special, blanks="", separators=_separators(file, special[3]))

    def encode(self, text: str) -> list[int]:
        """Ids of the pieces of `text`, without special pieces. "<s>" in a text is ordinary characters."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each text; uses several threads unless TOKENIZERS_PARALLELISM=false."""
        return [one.ids for one in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    def encode_masked(self, text: str) -> list[int]:
        """Encodes `text` with each [MASK], or the mask piece as this vocabulary writes it, as the mask piece.

        Where the tokenizer's file says so, as RoBERTa's does, the piece takes the space before it in.
        """
        own = self.vocabulary.pieces[self.vocabulary.mask_id]
        return self._masking.encode(text.replace(MASK, own), add_special_tokens=False).ids

    @cached_property
    def _masking(self) -> Tokenizer:
        """The pipeline that finds the mask piece in a text, and no other special piece."""
        return _ordinary(self._file, self._name, self.vocabulary.pieces[self.vocabulary.mask_id])

    def encode_spans(self, text: str) -> list[PieceSpan]:
        """The pieces of `text` with their positions in it. Pieces of one character have the whole character's."""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        spans = []
        for number, (begin, end) in zip(encoding.ids, encoding.offsets):
            if self.kind == "metaspace":
                begin, end = visible(text, begin, begin if self._spellings[number] == BOUNDARY else end)
            else:  # it has pieces for control characters too
                space = end - begin - len(text[begin:end].lstrip())
                begin = min(begin + space, end)
            spans.append(PieceSpan(number, begin, end))
        return spans

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the pieces: words, separated by spaces."""
        special, parts = set(self.vocabulary.special_ids), list[str]()
        for apart, run in itertools.groupby(ids, special.__contains__):
            pieces = [self.vocabulary.pieces[number] for number in run]
            if apart:
                parts.append(" ".join(pieces))
            elif self.kind == "byte_bpe":
                parts.append(b"".join(map(_bytes, pieces)).decode("utf-8", "replace").removeprefix(" "))
            else:
                parts.append("".join(pieces).replace(BOUNDARY, " ").removeprefix(" "))
        return " ".join(parts)

    @cached_property
    def _spellings(self) -> tuple[str, ...]:
        """Each piece as text, with a space at its beginning as BOUNDARY."""
        pieces = self.vocabulary.pieces
        return tuple(map(_spelled, pieces)) if self.kind == "byte_bpe" else pieces

    @cached_property
    def starts_word(self) -> Bool[np.ndarray, " V"]:
        """For each piece, whether it starts a word: as in sentencepiece's models."""
        starts = np.array([*map(starts_word, self._spellings)])
        starts[list(self.vocabulary.special_ids)] = True
        return starts

    def piece_text(self, number: int) -> str:
        """The characters of piece `number` without the space at its beginning, which is kept where it is alone. Bytes
        that are no whole character, and control characters, are escaped."""
        return self._spellings[number].removeprefix(BOUNDARY) or BOUNDARY

    def spelled(self, number: int) -> str:
        """Piece `number` for people to read: as the vocabulary writes it, but with the characters that its bytes are,
        and BOUNDARY for a space at their beginning."""
        return self._spellings[number]

    def encode_piece(self, piece: str) -> list[int]:
        """Ids of the pieces that `piece`, written as in the vocabulary, is split into."""
        return [token.id for token in self._tokenizer.model.tokenize(piece)]

    def piece_of_word(self, word: str) -> str | None:
        """The piece for the whole of `word`, with the space before it if its script uses spaces; None if that is empty,
        several words, or contains punctuation."""
        text = word if sets_no_spaces(word[:1] or " ") else f" {word}"
        if self._tokenizer.normalizer:
            text = self._tokenizer.normalizer.normalize_str(text)
        words = self._tokenizer.pre_tokenizer.pre_tokenize_str(text)
        if len(words) != 1 or any(map(is_punctuation, word)) or not word.strip():
            return None
        return words[0][0]

    def with_pieces(self, pieces: Sequence[str]) -> "PipelineTokenizer":
        """A tokenizer with `pieces` added after its own; each encodes its word as a single piece.

        A word that is a piece is then looked up before merges are tried. Raises UsageError for a model with scores.
        """
        if self._file["model"]["type"] != "BPE":
            raise UsageError(
                f"{self._name} can't be given more pieces, since its pieces have scores; extend the sentencepiece "
                ".model that they come from"
            )
        file = copy.deepcopy(self._file)
        # Added tokens get the numbers after the model's, so those have to be the model's own first.
        all_pieces = [*self.vocabulary.pieces, *pieces]
        file["model"] |= {"vocab": {piece: number for number, piece in enumerate(all_pieces)}, "ignore_merges": True}
        return PipelineTokenizer(file, self._name)

    def save(self, directory: Place) -> None:
        """Writes tokenizer.json and, last, tokenizer_config.json."""
        directory.mkdir(parents=True, exist_ok=True)
        self.write_vocabulary(directory / self.file_name)
        write_settings(directory, TokenizerSettings(kind=self.kind))

    def as_huggingface(self) -> Tokenizer:
        """The Tokenizer of Hugging Face's library, with its special pieces and where it adds them."""
        return _built(self._file, self._name)

    def write_vocabulary(self, path: Place) -> None:
        """Writes a tokenizer.json."""
        write_text(path, self.as_huggingface().to_str(pretty=True))

    @classmethod
    def load(cls, directory: Path) -> "PipelineTokenizer":
        """Reads the files of `save`. Raises UsageError if they are damaged."""
        return cls.read(directory / cls.file_name)

    @classmethod
    def read(cls, path: Path) -> "PipelineTokenizer":
        """Reads a tokenizer.json. Raises UsageError if it is damaged or of a kind that isn't read here."""
        return cls(read_json(path), str(path))


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a vocabulary's file. Raises UsageError if it can't be read or is damaged."""
    try:
        return json_file.read_object(path, MOST_BYTES)
    except OSError as error:
        raise UsageError(f"{path} can't be read ({error.strerror}); give the path of a tokenizer.json") from None
    except ValueError as error:
        raise UsageError(f"{path} is no tokenizer.json ({error}); give one, a vocab.txt or a .model") from None


def _kind_of(file: dict[str, Any], name: str) -> Kind:
    """The kind of the pipeline in `file`. Raises UsageError for one that isn't read here."""
    steps = file.get("pre_tokenizer")
    steps = steps if isinstance(steps, dict) else {}
    parts = steps.get("pretokenizers") if steps.get("type") == "Sequence" else [steps]
    types = [part.get("type") for part in parts or [] if isinstance(part, dict)]
    model = file.get("model")
    model = model.get("type") if isinstance(model, dict) else None
    unknown = [key for key in file if key not in _KEYS]
    if unknown:
        raise UsageError(
            f"{name} has the part {shown(unknown[0])}, which isn't read here; known are {', '.join(_KEYS)}"
        )
    kind = next((kind for step, kind in _KINDS.items() if step in types), None)
    if kind is None or model not in _MODELS[kind]:
        raise UsageError(
            f"{name}: model {shown(model)} over pre-tokenizers {shown(types)} isn't read here; give a BPE over bytes "
            "(ByteLevel), a Unigram or BPE that marks spaces (Metaspace), or the vocab.txt of a WordPiece"
        )
    if suffix := file["model"].get("end_of_word_suffix"):
        raise UsageError(
            f"{name}: its pieces have {shown(suffix)} at the ends of words (as HerBERT's), which isn't read here; give "
            "a BPE over bytes or one that marks spaces"
        )
    return kind


def _built(file: dict[str, Any], name: str) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_str(json.dumps(file))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library raises Exception itself, and a panic in it is a BaseException
        raise UsageError(f"{name} is no good tokenizer.json ({shown(str(error))}); give another") from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _ordinary(file: dict[str, Any], name: str, found: str | None = None) -> Tokenizer:
    """The pipeline in `file`, to which special pieces in a text, except `found`, are ordinary characters."""
    added = [one | {"special": one["special"] and one["content"] != found} for one in file.get("added_tokens") or []]
    model = file["model"]
    if model["type"] == "Unigram":
        # The model itself would find them in a text. A piece with a space it doesn't: spaces are written otherwise.
        special = {one["content"] for one in added if one["special"]}
        special |= {*special_names([piece for piece, _ in model["vocab"]])} - {found}
        added.sort(key=lambda one: one["id"])
        scored = [*model["vocab"], *([one["content"], 0.0] for one in added if one["id"] >= len(model["vocab"]))]
        vocab = [[f" {piece}" if piece in special else piece, score] for piece, score in scored]
        model, added = model | {"vocab": vocab}, [one for one in added if not one["special"]]
    tokenizer = _built(file | {"model": model, "added_tokens": added}, name)
    tokenizer.encode_special_tokens = True
    if found and found not in {one["content"] for one in added}:
        tokenizer.add_tokens([AddedToken(found, normalized=False)])
    return tokenizer


def _separators(file: dict[str, Any], separator: str) -> int:
    """How many separators stand between two texts, as the file's last step says."""
    step = file.get("post_processor") or {}
    if step.get("type") == "RobertaProcessing":
        return 2
    pair = step.get("pair") if step.get("type") == "TemplateProcessing" else None
    names = [next(iter(part.values())).get("id") for part in pair or []]
    return max(1, names[names.index("A") : names.index("B")].count(separator)) if {"A", "B"} <= {*names} else 1


def _bytes(piece: str) -> bytes:
    """The bytes that a piece stands for; an added piece with other characters stands for itself."""
    numbers = [BYTES.get(character, -1) for character in piece]
    return piece.encode() if -1 in numbers else bytes(numbers)


def _spelled(piece: str) -> str:
    text = _bytes(piece).decode("utf-8", "backslashreplace")
    space, text = (BOUNDARY, text[1:]) if text[:1] == " " else ("", text)
    return space + "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
