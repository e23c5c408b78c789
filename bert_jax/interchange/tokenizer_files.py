"""Reads and writes tokenizers: in the formats of Hugging Face and Google, and for AutoTokenizer of transformers."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator
from tokenizers import decoders

from bert_jax.config.model import ModelConfig
from bert_jax.interchange.json_file import read_object, read_shape
from bert_jax.interchange.vocabulary_files import SETTINGS, TOKENIZER, CleaningSettings, read_vocabulary
from bert_jax.system.errors import UsageError, quoted
from bert_jax.system.files import write_json, write_text
from bert_jax.system.json_file import Shape
from bert_jax.system.progress import say
from bert_jax.system.reading import Fact
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.tokenizer_json import added_token
from bert_jax.text.vocabulary import CONTINUATION, Vocabulary, check_numbers, check_spelling
from bert_jax.text.wordpiece import WordPieceTokenizer

ADDED = "added_tokens.json"
_SPECIAL = "special_tokens_map.json"
SPECIAL_NAMES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
"""Names of the special pieces in tokenizer_config.json, in the order of Vocabulary.special_ids."""
_CLASSES = {
    **{"XLMRobertaTokenizer": "xlm-roberta", "CamembertTokenizer": "camembert", "AlbertTokenizer": "albert"},
    **dict.fromkeys(("BertTokenizer", "ElectraTokenizer", "DistilBertTokenizer", "RobertaTokenizer")),
    # A RoBERTa's files may name GPT-2's class: its pieces are the same, and the special ones are found by their names.
    **dict.fromkeys(("GPT2Tokenizer", "PreTrainedTokenizer", "TokenizersBackend")),
}
"""Classes of transformers whose ids this package gives, without the `Fast` at the end of some, and the model_type whose
numbering of a sentencepiece model they use, whatever that of the model is."""
_UNLIMITED = 1_000_000
"""A model_max_length from this value on means that there is no limit."""
_MOST_DIGITS = 9
"""Most digits of a piece's number: int() raises for strings of some thousand digits."""
_SWITCHES = ("do_basic_tokenize", "tokenize_chinese_chars", "do_word_tokenize", "do_subword_tokenize", "clean_text")
_LIBRARIES = ("mecab_kwargs", "sudachi_kwargs", "jumanpp_kwargs", "sp_model_kwargs")
_DEFAULTS: dict[str, tuple[Any, ...]] = {
    "word_tokenizer_type": ("basic", None),
    "subword_tokenizer_type": ("wordpiece", None),
    "wordpieces_prefix": ("##",),
    "never_split": (None, []),
    "split_special_tokens": (False, None),
    **dict.fromkeys(_SWITCHES, (True,)),
    **dict.fromkeys(_LIBRARIES, (None, {})),
}
"""Keys that change ids, and the values with which they don't."""
_HARMLESS = frozenset(
    # of padding, truncation and decoding
    "padding padding_side pad_to_multiple_of pad_to_max_length pad_token_id pad_token_type_id truncation "
    "truncation_side truncation_strategy max_length max_len stride errors remove_space trim_offsets "
    "clean_up_tokenization_spaces spaces_between_special_tokens "
    "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output "
    # of framing, which is the model's here
    "add_bos_token add_eos_token bos_token_id eos_token_id unk_token_id cls_token_id sep_token_id mask_token_id "
    # of transformers' own work
    "chat_template response_template response_schema chat_control_tokens model_input_names name_or_path "
    "processor_class tokenizer_class slow_tokenizer_class special_tokens_map_file tokenizer_file full_tokenizer_file "
    "vocab_file merges_file added_tokens_file init_inputs files_loaded from_slow from_flax use_fast legacy backend "
    "verbose is_local local_files_only device_map auto_map transformers_version _commit_hash _from_auto model_type "
    "return_tensors return_token_type_ids return_attention_mask vocab_size add_special_tokens".split()
)
_AUTHORS = "AutoTokenizer"
"""The key of auto_map that names a class of the model's author for the tokenizer."""


class _Piece(Shape):
    """An added token as tokenizer_config.json describes it."""

    content: str
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    special: bool = False
    normalized: bool | None = None
    """None: unless it is special."""


_Token = Annotated[_Piece, BeforeValidator(lambda value: {"content": value} if isinstance(value, str) else value)]
"""A token that a file writes as its text, or as an object."""


class _Tokens(Shape, extra="allow"):
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
    def unknown(self) -> dict[str, Any]:
        """The values under other keys."""
        return self.model_extra or {}

    @property
    def named(self) -> list[_Piece]:
        """The tokens besides a model's own with a key of their own, which may be one that the author invented."""
        extra = self.extra_special_tokens if isinstance(self.extra_special_tokens, dict) else {}
        invented = [
            _Piece(content=value)
            for key, value in self.unknown.items()
            if key.endswith("_token") and isinstance(value, str)
        ]
        own = [one for one in (self.bos_token, self.eos_token) if one]
        return [*own, *extra.values(), *(self.model_specific_special_tokens or {}).values(), *invented]

    @property
    def listed(self) -> list[_Piece]:
        """The tokens in lists: those of the newer key, or without it those of the older one."""
        extra = self.extra_special_tokens if isinstance(self.extra_special_tokens, list) else []
        return extra or self.additional_special_tokens or []


class _Settings(_Tokens, CleaningSettings, extra="allow"):
    """The contents of tokenizer_config.json."""

    tokenizer_class: str | None = None
    model_max_length: float | None = None
    added_tokens_decoder: dict[str, _Piece] = {}


def read_tokenizer(directory: Path, config: ModelConfig, lowercase: bool | None = None) -> Tokenizer:
    """Reads the first that exists of tokenizer.model (sentencepiece), tokenizer.json, vocab.json with merges.txt,
    the sentencepiece models of relatives, and vocab.txt.

    `lowercase` overrides the files of a WordPiece tokenizer; if neither says, the letters in the vocabulary decide.
    Raises UsageError if there is no tokenizer, if it doesn't tokenize like BERT's, or if the files contradict each
    other or the model.
    """
    settings = read_shape(directory / SETTINGS, _Settings) if (directory / SETTINGS).is_file() else _Settings()
    named = _class_of(directory, settings)
    if not (directory / TOKENIZER).is_file():  # which says itself what it does
        _check_keys(settings.unknown, directory / SETTINGS)
    tokenizer = read_vocabulary(directory, _CLASSES.get(named or "") or config.model_type, settings, lowercase)
    if tokenizer.kind == "wordpiece":
        check_spelling(tokenizer.vocabulary.pieces, str(directory))
    tokenizer = _with_added(tokenizer, directory, settings)
    if lowercase is not None and tokenizer.kind != "wordpiece":
        raise UsageError(
            f"--{'' if lowercase else 'no-'}lowercase is for a WordPiece; the vocabulary in {directory} is a "
            f"{tokenizer.kind} and says itself how text is cleaned; leave the option out"
        )
    if contradiction := _contradiction(settings, tokenizer.vocabulary, config):
        raise UsageError(f"{directory}: {contradiction}; tokenizer and model don't belong together")
    if settings.model_max_length and config.max_positions < settings.model_max_length < _UNLIMITED:
        say(
            f"model_max_length in {SETTINGS} is {settings.model_max_length:,.0f} pieces and the model has "
            f"{config.max_positions:,} positions: the smaller number is taken"
        )
    return tokenizer


def _contradiction(settings: _Settings, vocabulary: Vocabulary, config: ModelConfig) -> str | None:
    """A description of how the vocabulary contradicts its settings or the model; None if it doesn't."""
    if len(vocabulary) > (config.vocabulary_size or 0):
        return f"the vocabulary has {len(vocabulary):,} pieces and the model's table {config.vocabulary_size:,} rows"
    for number, piece in settings.added_tokens_decoder.items():
        numbers = number.isdecimal() and len(number) <= _MOST_DIGITS
        listed = vocabulary.pieces[int(number)] if numbers and int(number) < len(vocabulary) else None
        if listed != piece.content:
            return (
                f"{SETTINGS} calls {quoted(piece.content)} piece {number[:_MOST_DIGITS]}, where the vocabulary has "
                f"{quoted(listed)}"
            )
    for name, special in zip(SPECIAL_NAMES, vocabulary.special, strict=True):
        token: _Piece | None = getattr(settings, name)
        if token and token.content != special:
            return f"{name} in {SETTINGS} is {quoted(token.content)}, where the vocabulary has {special!r}"
    return None


def _class_of(directory: Path, settings: _Settings) -> str | None:
    """The tokenizer class that tokenizer_config.json, or else config.json, names, without `Fast`; None if neither does.

    Raises UsageError for a class that isn't known here.
    """
    named: list[tuple[str, Any]] = [(SETTINGS, settings.tokenizer_class)]
    if (directory / "config.json").is_file():
        named.append(("config.json", read_object(directory / "config.json").get("tokenizer_class")))
    for file, name in named:
        if name is not None and str(name).removesuffix("Fast") not in _CLASSES:
            raise UsageError(
                f"{directory / file}: tokenizer_class is {quoted(name)}, whose ids bert_jax can't give; it reads those "
                f"of {', '.join(_CLASSES)}"
            )
    return next((name.removesuffix("Fast") for _, name in named if name), None)


def _check_keys(values: dict[str, Any], path: Path) -> None:
    """Checks those `values` of `path` that aren't read otherwise; one line names the unknown ones.

    Raises UsageError for a value that changes ids.
    """
    for key, defaults in _DEFAULTS.items():
        if key in values and values[key] not in defaults:
            raise UsageError(
                f"{path}: {key} is {quoted(values[key])}, which changes ids and isn't read here; give a model where it "
                f"is {quoted(defaults[0])}"
            )
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


def _with_added(tokenizer: Tokenizer, directory: Path, settings: _Settings) -> Tokenizer:
    """`tokenizer` with the tokens that added_tokens.json, tokenizer_config.json and special_tokens_map.json add to it,
    unless they are special pieces. A tokenizer.json has its own.

    Raises UsageError if they are numbered otherwise than on from its last piece.
    """
    if (directory / TOKENIZER).is_file():
        return tokenizer
    vocabulary, extra = tokenizer.vocabulary, _special_tokens(directory, settings)
    added = {
        vocabulary.ids[one.content]: one.model_copy(update={"special": True})
        for one in extra
        if one.content in vocabulary.ids
    }
    if (directory / ADDED).is_file():
        special, numbers = {one.content for one in extra}, read_object(directory / ADDED)
        check_numbers(numbers, directory / ADDED)
        added |= {number: _Piece(content=text, special=text in special) for text, number in numbers.items()}
    added |= {
        int(number): one
        for number, one in settings.added_tokens_decoder.items()
        if number.isdecimal() and len(number) <= _MOST_DIGITS
    }
    tokens = []
    for number, one in sorted(added.items()):
        if one.content not in vocabulary.special:
            flags = one.model_dump(exclude={"content"})
            flags["normalized"] = not one.special if one.normalized is None else one.normalized
            tokens.append(added_token(one.content, number, **flags))
    return tokenizer.with_added(tokens) if tokens else tokenizer


def _special_tokens(directory: Path, settings: _Settings) -> list[_Piece]:
    """The special tokens besides the model's own that the files name, by the precedence that transformers has.

    special_tokens_map.json is read only where `settings` have no added_tokens_decoder.
    """
    named, listed = settings.named, settings.listed
    if "added_tokens_decoder" not in settings.model_fields_set and (directory / _SPECIAL).is_file():
        more = read_shape(directory / _SPECIAL, _Tokens)
        named += more.named
        listed = [*listed, *more.listed] if more.extra_special_tokens else listed or more.listed
    return [*named, *listed]


def tokenizer_facts(directory: Path, tokenizer: Tokenizer) -> list[Fact]:
    """What the tokenizer in `directory` was taken for, and where each fact comes from."""
    return [Fact(name="tokenizer", value=f"{tokenizer.kind} of {len(tokenizer.vocabulary):,} pieces")]


def write_tokenizer(tokenizer: Tokenizer, directory: Path, max_positions: int) -> None:
    """Writes tokenizer.json, tokenizer_config.json and the vocabulary file, for AutoTokenizer and `read_tokenizer`.

    AutoTokenizer then gives the same ids as ours, except that special pieces in a text, such as [MASK], are recognized.
    The tokenizer class is the generic one, which uses tokenizer.json unchanged: transformers' class for BERT would
    make words of over 100 characters unknown, instead of over 200.
    """
    vocabulary = tokenizer.vocabulary
    theirs = tokenizer.as_pipeline().as_huggingface()
    if tokenizer.kind == "wordpiece" and theirs.decoder is None:
        theirs.decoder = decoders.WordPiece(CONTINUATION, cleanup=False)
    if tokenizer.file_name != TOKENIZER:
        tokenizer.write_vocabulary(directory / tokenizer.file_name)
    elif tokenizer.kind == "byte_bpe" and not (tokenizer.added or theirs.model.ignore_merges or theirs.normalizer):
        theirs.model.save(str(directory))  # the two older files can't say any of these
    write_text(directory / TOKENIZER, theirs.to_str(pretty=True))
    of_segments = ["token_type_ids"] if vocabulary.separators == 1 else []
    casing = {}
    if isinstance(tokenizer, WordPieceTokenizer):
        cleaning = tokenizer.cleaning
        casing = {"do_lower_case": cleaning.lowercase, "strip_accents": cleaning.strip_accents}
        if cleaning.form:  # tokenizer.json has it, and no setting of BERT's tokenizer says it
            del casing["strip_accents"]
    write_json(
        directory / SETTINGS,
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_input_names": ["input_ids", *of_segments, "attention_mask"],
            "model_max_length": max_positions,
            **casing,
            **dict(zip(SPECIAL_NAMES, vocabulary.special, strict=True)),
        },
    )
