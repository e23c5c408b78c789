"""Reads the settings of a tokenizer in another program's folder: its keys, special tokens and added tokens."""

import functools
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, StringConstraints
from tokenizers import AddedToken

from bert_jax.system.errors import UsageError, first_of, quoted
from bert_jax.system.json_file import JsonObject, Shape, as_shape, read_foreign_object, read_foreign_shape
from bert_jax.system.progress import say
from bert_jax.text.pipeline import TOKENIZER_CONFIG
from bert_jax.text.sentencepiece import SentencePieceTokenizer, read_model
from bert_jax.text.vocabulary import check_numbers

SPECIAL_TOKENS_MAP, ADDED_TOKENS = "special_tokens_map.json", "added_tokens.json"
"""Files of old folders beside tokenizer_config.json."""
TOKEN_KEYS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""Keys of the special tokens, in the order in which the classes add them."""
SPECIAL_NAMES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
"""Names of the special pieces in tokenizer_config.json, in the order of Vocabulary.special_ids."""
_Number = Annotated[str, StringConstraints(pattern="^[0-9]{1,9}$")]
"""A piece's number as a key: int() raises for strings of some thousand digits."""
_SWITCHES = ("do_basic_tokenize", "do_word_tokenize", "do_subword_tokenize")
_LIBRARIES = ("mecab_kwargs", "sudachi_kwargs", "jumanpp_kwargs", "sp_model_kwargs")
_SPLIT, _VERSIONS = "split_special_tokens", "fast_tokenizer_files"
_DEFAULTS: dict[str, tuple[object, ...]] = {
    "word_tokenizer_type": ("basic", None),
    "subword_tokenizer_type": ("wordpiece", None),
    "wordpieces_prefix": ("##",),
    "never_split": (None, []),
    _SPLIT: (False, None),
    _VERSIONS: (["tokenizer.json"], []),
    **dict.fromkeys(_SWITCHES, (True,)),
    **dict.fromkeys(_LIBRARIES, (None, {})),
}
"""Keys that change ids, each with the values that don't change them."""
_HARMLESS = frozenset(
    # keys of padding, truncation and decoding
    "padding padding_side pad_to_multiple_of pad_to_max_length pad_token_id pad_token_type_id truncation "
    "truncation_side truncation_strategy max_length max_len stride errors remove_space clean_text "
    "clean_up_tokenization_spaces spaces_between_special_tokens "
    "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output "
    # keys of special tokens round texts, which the model decides here
    "add_bos_token add_eos_token bos_token_id eos_token_id unk_token_id cls_token_id sep_token_id mask_token_id "
    # keys for transformers' own use
    "chat_template response_template response_schema chat_control_tokens name_or_path "
    "processor_class tokenizer_class slow_tokenizer_class special_tokens_map_file tokenizer_file full_tokenizer_file "
    "vocab_file merges_file added_tokens_file init_inputs files_loaded from_slow from_flax use_fast legacy backend "
    "verbose is_local local_files_only device_map auto_map transformers_version _commit_hash _from_auto model_type "
    "return_tensors return_token_type_ids return_attention_mask vocab_size add_special_tokens".split()
)
_EXTRA, _OLDER, _FURTHER = "extra_special_tokens", "additional_special_tokens", "model_specific_special_tokens"
"""Keys of further special tokens."""
_AUTHORS = "AutoTokenizer"
"""The key of auto_map that names a class of the model's author for the tokenizer."""


class Piece(Shape):
    """An added token as tokenizer_config.json describes it."""

    content: str
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    special: bool = False
    normalized: bool | None = None
    """Whether the token is searched for in cleaned text. None means True, or False if the token is special."""
    written: Literal["text", "object", "map"] = "object"
    """How a file writes the token: as its text, as an object with flags, or as such an object in
    special_tokens_map.json (`map`)."""

    @classmethod
    def of_text(cls, content: str) -> Self:
        """The special token that a file writes as its text."""
        return cls(content=content, special=True, written="text")

    def of_map(self) -> Self:
        """The token as read from special_tokens_map.json, in which every object is a special token."""
        return self if self.written == "text" else self.model_copy(update={"special": True, "written": "map"})

    def added(self, special: bool = False) -> AddedToken:
        """The token as an object of the library; `special` makes it a special token."""
        flags = self.model_dump(exclude={"content", "normalized", "written"}) | {"special": self.special or special}
        normalized = not flags["special"] if self.normalized is None else self.normalized
        return AddedToken(self.content, normalized=normalized, **flags)


_Token = Annotated[Piece, BeforeValidator(lambda value: Piece.of_text(value) if isinstance(value, str) else value)]
"""A token, which a file writes as its text or as an object."""


class SpecialTokens(Shape, extra="allow"):
    """The special tokens that tokenizer_config.json or special_tokens_map.json names."""

    pad_token: _Token | None = None
    unk_token: _Token | None = None
    cls_token: _Token | None = None
    sep_token: _Token | None = None
    mask_token: _Token | None = None
    bos_token: _Token | None = None
    eos_token: _Token | None = None
    extra_special_tokens: list[_Token] | dict[str, _Token] | None = None
    additional_special_tokens: list[_Token] | None = None
    model_specific_special_tokens: dict[str, _Token] | None = None

    @property
    def unknown(self) -> JsonObject:
        """The values under other keys."""
        return self.model_extra or {}

    @property
    def written_tokens(self) -> dict[str, Any]:
        """The tokens by the keys that the file has, None for null. They include keys like entity_token, which its
        author invented."""
        invented = {
            key: value for key, value in self.unknown.items() if _invented(key) and isinstance(value, str | dict)
        }
        if isinstance(self, TokenizerConfig):  # in which an object under such a key is a token only if it has a __type
            invented = {key: value for key, value in invented.items() if isinstance(value, str) or "__type" in value}
        known = {key: getattr(self, key) for key in SpecialTokens.model_fields if key in self.model_fields_set}
        try:
            return known | (as_shape({_FURTHER: invented}, SpecialTokens).model_specific_special_tokens or {})
        except ValueError as error:
            raise UsageError(f"{str(error).removeprefix(_FURTHER + '.')}; write the token as a text") from None


class TokenizerConfig(SpecialTokens, extra="allow"):
    """The contents of tokenizer_config.json."""

    tokenizer_class: str | None = None
    do_lower_case: bool | None = None
    strip_accents: bool | None = None
    keep_accents: bool | None = None
    tokenize_chinese_chars: bool | None = None
    add_prefix_space: bool | None = None
    split_by_punct: bool | None = None
    trim_offsets: bool | None = None
    model_max_length: float | None = None
    model_input_names: list[str] | None = None
    unk_id: int | None = 0
    """The number of the unknown piece in XLNet's model."""
    added_tokens_decoder: dict[_Number, Piece] = {}

    def switch(self, key: str, default: bool) -> bool:
        """A setting that is true or false: `default` if the file lacks it. As in transformers, null is false."""
        return bool(getattr(self, key)) if key in self.model_fields_set else default


class PublishedFolder:
    """The local folder of another program's model or tokenizer. Each of its files is read at most once.

    Every read raises UsageError if the file is damaged.
    """

    def __init__(self, path: Path):
        self.path = path
        self._values: dict[str, JsonObject | None] = {}

    def values(self, name: str) -> JsonObject | None:
        """The JSON object in the file `name`; None if there is no such file."""
        if name not in self._values:
            file = self.path / name
            self._values[name] = read_foreign_object(file) if file.is_file() else None
        return self._values[name]

    @functools.cached_property
    def config(self) -> TokenizerConfig:
        """The tokenizer_config.json, or the defaults if it is missing."""
        file = self.path / TOKENIZER_CONFIG
        return read_foreign_shape(file, TokenizerConfig) if file.is_file() else TokenizerConfig()

    @functools.cached_property
    def sentencepiece(self) -> SentencePieceTokenizer:
        """The tokenizer of the sentencepiece model that cleans text itself."""
        file = self.path / SentencePieceTokenizer.file_name
        return SentencePieceTokenizer(read_model(file), str(file))


def given_tokens(folder: PublishedFolder, of_model: list[Piece] | None = None) -> dict[str, Any]:
    """The special tokens of the files in `folder` by their keys, with the precedence that they have in transformers:
    those of TOKEN_KEYS, further ones in the order in which they are added, and lists.

    special_tokens_map.json is read only if tokenizer_config.json has no added_tokens_decoder. `of_model`: the tokens of
    a sentencepiece model, which replace the list additional_special_tokens.
    """
    values = folder.config.written_tokens
    if _OLDER in values and not values.get(_EXTRA):
        values[_EXTRA] = values.pop(_OLDER)
    further = {key: values.pop(key) for key in [*values] if _invented(key) and values[key].written == "text"}
    further |= values.pop(_EXTRA) if isinstance(values.get(_EXTRA), dict) else {}
    further = further or values.get(_FURTHER) or {}
    file = folder.path / SPECIAL_TOKENS_MAP
    has_map = file.is_file() and "added_tokens_decoder" not in folder.config.model_fields_set
    for key, value in (read_foreign_shape(file, SpecialTokens).written_tokens if has_map else {}).items():
        if key == _EXTRA and isinstance(value, list):
            before = values.get(key) or []
            value = before + [piece for piece in map(Piece.of_map, value) if piece not in before]
        values[key] = value.of_map() if isinstance(value, Piece) else value
    if isinstance(values.get(_EXTRA), dict):
        further |= values.pop(_EXTRA)
    if of_model is not None:
        values[_OLDER] = of_model
    values.pop(_FURTHER, None)
    return values | further


def _invented(key: str) -> bool:
    return key.endswith("_token") and key not in TOKEN_KEYS


def added_tokens(
    folder: PublishedFolder, given: dict[str, Any], special: list[Piece], file: JsonObject
) -> tuple[list[Piece], dict[str, int]]:
    """The tokens that are added to the vocabulary, in order, and their numbers as far as the files state these.

    `given` are the tokens of `given_tokens`, `special` those of the class, and `file` is the tokenizer.json. The files
    take precedence in the same order as in transformers.
    """
    numbered: dict[int, Piece] = {int(number): piece for number, piece in folder.config.added_tokens_decoder.items()}
    if "added_tokens_decoder" not in folder.config.model_fields_set:
        if numbers := folder.values(ADDED_TOKENS):
            check_numbers(numbers, folder.path / ADDED_TOKENS)
            named = [given.get(key) for key in TOKEN_KEYS] + (given.get(_EXTRA) or [])
            texts = {piece.content for piece in named if piece and piece.written != "object"}
            numbered |= {
                number: Piece(content=text, special=text in texts, normalized=text not in texts)
                for text, number in numbers.items()
            }
        numbered |= {token["id"]: as_shape(token, Piece) for token in file.get("added_tokens") or []}
    tokens = [numbered[number] for number in sorted(numbered)]
    known = {token.content for token in tokens}
    further = [piece for piece in special if piece.content not in known]
    return tokens + further, {token.content: number for number, token in numbered.items()}


def check_settings(config: TokenizerConfig, path: Path, has_file: bool) -> None:
    """Checks the values in `path` that aren't read elsewhere; prints a line that names the unknown keys. `has_file`:
    whether a tokenizer.json exists, whose vocabulary is read. Raises UsageError for a value that changes ids."""
    values = config.unknown
    for key, defaults in _DEFAULTS.items():
        if has_file and key not in (_SPLIT, _VERSIONS):
            continue
        if key in values and values[key] not in defaults:
            raise UsageError(
                f"{path}: {key} is {quoted(values[key])}, which changes ids and isn't read here; give a model where it "
                f"is {quoted(defaults[0])}"
            )
    if has_file:
        return
    classes = values.get("auto_map")
    named = classes.get(_AUTHORS) if isinstance(classes, dict) else classes
    if named:
        raise UsageError(
            f"{path}: auto_map names the author's own tokenizer, {quoted(named)}, whose code isn't run here; give a "
            "tokenizer.json of it"
        )
    unknown = [key for key in values if key not in {*_DEFAULTS, *_HARMLESS} and not key.endswith("_token")]
    if unknown:
        names = first_of([key if key.isidentifier() else quoted(key) for key in unknown], 9)
        say(f"{path}: {names} are not known here and not used")
