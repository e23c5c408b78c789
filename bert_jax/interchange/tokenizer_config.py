"""Reads the settings of a tokenizer in another program's folder: its keys, special tokens and added tokens."""

from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator
from tokenizers import AddedToken

from bert_jax.system.errors import UsageError, quoted
from bert_jax.system.json_file import JsonObject, Shape, read_foreign_object, read_foreign_shape
from bert_jax.system.progress import say
from bert_jax.text.pipeline import TOKENIZER_CONFIG
from bert_jax.text.vocabulary import check_numbers

SPECIAL_TOKENS_MAP, ADDED_TOKENS = "special_tokens_map.json", "added_tokens.json"
"""Files of old folders beside tokenizer_config.json."""
TOKEN_KEYS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""Keys of the special tokens, in the order in which the classes add them."""
SPECIAL_NAMES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
"""Names of the special pieces in tokenizer_config.json, in the order of Vocabulary.special_ids."""
MOST_DIGITS = 9
"""Most digits of a piece's number: int() raises for strings of some thousand digits."""
_SWITCHES = ("do_basic_tokenize", "do_word_tokenize", "do_subword_tokenize")
_LIBRARIES = ("mecab_kwargs", "sudachi_kwargs", "jumanpp_kwargs", "sp_model_kwargs")
_SPLIT = "split_special_tokens"
_DEFAULTS: dict[str, tuple[object, ...]] = {
    "word_tokenizer_type": ("basic", None),
    "subword_tokenizer_type": ("wordpiece", None),
    "wordpieces_prefix": ("##",),
    "never_split": (None, []),
    _SPLIT: (False, None),
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

    def added(self, special: bool = False) -> AddedToken:
        """The token as an object of the library; `special` makes it a special token."""
        flags = self.model_dump(exclude={"content", "normalized"}) | {"special": self.special or special}
        normalized = not flags["special"] if self.normalized is None else self.normalized
        return AddedToken(self.content, normalized=normalized, **flags)


_Token = Annotated[Piece, BeforeValidator(lambda value: {"content": value} if isinstance(value, str) else value)]
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
    def named(self) -> list[Piece]:
        """Special tokens besides the model's own that have a key each. The author may have invented the key."""
        extra = self.extra_special_tokens if isinstance(self.extra_special_tokens, dict) else {}
        invented = [
            Piece(content=value)
            for key, value in self.unknown.items()
            if key.endswith("_token") and isinstance(value, str)
        ]
        own = [one for one in (self.bos_token, self.eos_token) if one]
        return [*own, *extra.values(), *(self.model_specific_special_tokens or {}).values(), *invented]

    @property
    def listed(self) -> list[Piece]:
        """The tokens in the list of the newer key or, if it is missing, of the older key."""
        extra = self.extra_special_tokens if isinstance(self.extra_special_tokens, list) else []
        return extra or self.additional_special_tokens or []


class TokenizerConfig(SpecialTokens, extra="allow"):
    """The contents of tokenizer_config.json. None means the default of the class."""

    tokenizer_class: str | None = None
    do_lower_case: bool | None = None
    strip_accents: bool | None = None
    keep_accents: bool | None = None
    tokenize_chinese_chars: bool | None = None
    add_prefix_space: bool | None = None
    trim_offsets: bool | None = None
    model_max_length: float | None = None
    model_input_names: list[str] | None = None
    added_tokens_decoder: dict[str, Piece] = {}

    @property
    def numbered(self) -> dict[int, Piece]:
        """The tokens of `added_tokens_decoder` whose numbers can be numbers of pieces."""
        return {
            int(number): piece
            for number, piece in self.added_tokens_decoder.items()
            if number.isdecimal() and len(number) <= MOST_DIGITS
        }


def read_tokenizer_config(directory: Path) -> TokenizerConfig:
    """The tokenizer_config.json in `directory`, or the defaults if it is missing."""
    file = directory / TOKENIZER_CONFIG
    return read_foreign_shape(file, TokenizerConfig) if file.is_file() else TokenizerConfig()


def special_tokens_map(directory: Path, config: TokenizerConfig) -> SpecialTokens:
    """The contents of special_tokens_map.json, which is read only if `config` has no added_tokens_decoder."""
    file = directory / SPECIAL_TOKENS_MAP
    if "added_tokens_decoder" in config.model_fields_set or not file.is_file():
        return SpecialTokens()
    return read_foreign_shape(file, SpecialTokens)


def added_tokens(
    directory: Path, config: TokenizerConfig, named: dict[str, Piece], of_file: list[JsonObject]
) -> tuple[list[AddedToken], dict[str, int]]:
    """The tokens that are added to the vocabulary, in order, and their numbers as far as the files state these.

    `named` are special tokens by their keys, `of_file` the added tokens of a tokenizer.json. The files take precedence
    in the same order as in transformers.
    """
    more = special_tokens_map(directory, config)
    listed = [*config.listed, *more.listed] if more.extra_special_tokens else config.listed or more.listed
    extra = [*config.named, *more.named, *listed]
    numbered: dict[int, AddedToken] = {}
    numbers: dict[str, int] = {}
    if "added_tokens_decoder" in config.model_fields_set:
        numbered = {number: piece.added() for number, piece in config.numbered.items()}
    else:
        if (file := directory / ADDED_TOKENS).is_file():
            special, old = {piece.content for piece in extra}, read_foreign_object(file)
            check_numbers(old, file)
            for text, number in old.items():
                numbered[number] = Piece(content=text, special=text in special).added()
        for token in of_file:
            numbered[token["id"]] = AddedToken(**{key: flag for key, flag in token.items() if key != "id"})
        numbers = {token.content: number for number, token in numbered.items()}
    tokens = [numbered[number] for number in sorted(numbered)]
    known = {token.content for token in tokens}
    further = [piece.added(special=True) for piece in (*named.values(), *extra) if piece.content not in known]
    return tokens + further, numbers


def check_settings(values: JsonObject, path: Path, follows_file: bool) -> None:
    """Checks the `values` of `path` that aren't read elsewhere; one line names the unknown ones. `follows_file`:
    whether a tokenizer.json exists, which decides everything but special tokens in a text. Raises UsageError for a
    value that changes ids.
    """
    for key, defaults in ({_SPLIT: _DEFAULTS[_SPLIT]} if follows_file else _DEFAULTS).items():
        if key in values and values[key] not in defaults:
            raise UsageError(
                f"{path}: {key} is {quoted(values[key])}, which changes ids and isn't read here; give a model where it "
                f"is {quoted(defaults[0])}"
            )
    if follows_file:
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
        names = ", ".join(key if key.isidentifier() else quoted(key) for key in unknown[:9])
        further = f" and {len(unknown) - 9:,} more" if len(unknown) > 9 else ""
        say(f"{path}: {names}{further} are not known here and not used")
