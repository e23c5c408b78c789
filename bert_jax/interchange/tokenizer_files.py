"""Reads and writes tokenizers: in the formats of Hugging Face and Google, and for AutoTokenizer of transformers."""

from pathlib import Path

from bert_jax.config.model import ModelConfig
from bert_jax.interchange.json_file import read_object, read_shape
from bert_jax.interchange.sentencepiece_files import NUMBERED_MODELS, read_numbered_model
from bert_jax.interchange.tokenizer_keys import check_keys
from bert_jax.interchange.wordpiece_files import read_wordpiece_json
from bert_jax.system.errors import UsageError, quoted
from bert_jax.system.files import write_json, write_text
from bert_jax.system.json_file import Shape
from bert_jax.system.progress import say
from bert_jax.text.byte_level_bpe import pipeline_of_merges
from bert_jax.text.sentencepiece import SentencePieceTokenizer
from bert_jax.text.tokenizer import Tokenizer, read_vocabulary_file
from bert_jax.text.tokenizer_json import added_token
from bert_jax.text.vocabulary import Vocabulary, check_numbers, check_spelling
from bert_jax.text.wordpiece import MANY_CAPITALS, WordPieceTokenizer

TOKENIZER, SETTINGS, ADDED = Tokenizer.file_name, "tokenizer_config.json", "added_tokens.json"
_SPECIAL = "special_tokens_map.json"
_PIECES = "vocab.json"
_VOCABULARIES = (SentencePieceTokenizer.file_name, TOKENIZER, _PIECES, *NUMBERED_MODELS, WordPieceTokenizer.file_name)
"""Files that a vocabulary is read from, the first that is there."""
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


class _Piece(Shape):
    """An added token as tokenizer_config.json describes it."""

    content: str
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    special: bool = False
    normalized: bool | None = None
    """None: unless it is special."""


class _Class(Shape):
    """The class of transformers that a JSON file names for the tokenizer."""

    tokenizer_class: str | None = None


class _Tokens(Shape):
    """The special tokens besides a model's own that tokenizer_config.json or special_tokens_map.json names."""

    bos_token: str | _Piece | None = None
    eos_token: str | _Piece | None = None
    extra_special_tokens: list[str | _Piece] | dict[str, str | _Piece] | None = None
    additional_special_tokens: list[str | _Piece] | None = None
    model_specific_special_tokens: dict[str, str | _Piece] | None = None

    @property
    def named(self) -> list[str | _Piece]:
        """The tokens that have a key of their own."""
        extra = self.extra_special_tokens if isinstance(self.extra_special_tokens, dict) else {}
        own = [one for one in (self.bos_token, self.eos_token) if one]
        return [*own, *extra.values(), *(self.model_specific_special_tokens or {}).values()]

    @property
    def listed(self) -> list[str | _Piece]:
        """The tokens in lists: those of the newer key, or without it those of the older one."""
        extra = self.extra_special_tokens if isinstance(self.extra_special_tokens, list) else []
        return extra or self.additional_special_tokens or []


class _Settings(_Class, _Tokens):
    """The contents of tokenizer_config.json."""

    do_lower_case: bool | None = None
    strip_accents: bool | None = None
    keep_accents: bool | None = None
    add_prefix_space: bool | None = None
    model_max_length: float | None = None
    added_tokens_decoder: dict[str, _Piece] = {}
    pad_token: str | _Piece | None = None
    unk_token: str | _Piece | None = None
    cls_token: str | _Piece | None = None
    sep_token: str | _Piece | None = None
    mask_token: str | _Piece | None = None


def read_tokenizer(directory: Path, config: ModelConfig, lowercase: bool | None = None) -> Tokenizer:
    """Reads the first that exists of tokenizer.model (sentencepiece), tokenizer.json, vocab.json with merges.txt,
    the sentencepiece models of relatives, and vocab.txt.

    `lowercase` overrides the files of a WordPiece tokenizer; if neither says, the letters in the vocabulary decide.
    Raises UsageError if there is no tokenizer, if it doesn't tokenize like BERT's, or if the files contradict each
    other or the model.
    """
    settings = read_shape(directory / SETTINGS, _Settings) if (directory / SETTINGS).is_file() else _Settings()
    named = _class_of(directory, settings)
    if (directory / SETTINGS).is_file() and not (directory / TOKENIZER).is_file():  # which says itself what it does
        check_keys(read_object(directory / SETTINGS), directory / SETTINGS, _Settings.model_fields)
    tokenizer = _first_of(directory, _CLASSES.get(named) or config.model_type, settings, lowercase)
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


def _first_of(directory: Path, model_type: str, settings: _Settings, lowercase: bool | None) -> Tokenizer:
    """The tokenizer of the first vocabulary in `directory`. Raises UsageError if there is none."""
    path = next((directory / name for name in _VOCABULARIES if (directory / name).is_file()), None)
    if path is None:
        raise UsageError(
            f"{directory} has no vocabulary; put the model's beside it: vocab.txt, tokenizer.json, tokenizer.model, "
            f"{', '.join(NUMBERED_MODELS)}, or vocab.json with merges.txt"
        )
    if path.name == SentencePieceTokenizer.file_name:
        tokenizer = read_vocabulary_file(path)
        if settings.do_lower_case and tokenizer.piece_of_word("A") not in (None, tokenizer.piece_of_word("a")):
            raise UsageError(f"{directory / SETTINGS}: do_lower_case is true, and the sentencepiece model keeps case")
        return tokenizer
    if path.name == TOKENIZER:
        value = read_object(path)
        model = value.get("model")
        if isinstance(model, dict) and model.get("type", "WordPiece") == "WordPiece":  # old files have no type
            return read_wordpiece_json(path, value, settings.do_lower_case, lowercase)
        return Tokenizer(value, str(path))
    if path.name == _PIECES:
        value = pipeline_of_merges(read_object(path), path, leading_space=bool(settings.add_prefix_space))
        return Tokenizer(value, str(path))
    if path.name in NUMBERED_MODELS:
        lowercases = settings.do_lower_case is not False
        return read_numbered_model(path, model_type, lowercases, bool(settings.keep_accents))
    vocabulary = Vocabulary.read(path)
    cased = vocabulary.share_of_capitals >= MANY_CAPITALS
    lowercase = next((value for value in (lowercase, settings.do_lower_case) if value is not None), not cased)
    return WordPieceTokenizer(vocabulary, lowercase, settings.strip_accents)


def _contradiction(settings: _Settings, vocabulary: Vocabulary, config: ModelConfig) -> str | None:
    """A description of how the vocabulary contradicts its settings or the model; None if it doesn't."""
    if len(vocabulary) > (config.vocabulary_size or 0):
        return f"the vocabulary has {len(vocabulary):,} pieces and the model's table {config.vocabulary_size:,} rows"
    for number, piece in settings.added_tokens_decoder.items():
        numbers = number.isdecimal() and len(number) <= _MOST_DIGITS
        found = vocabulary.pieces[int(number)] if numbers and int(number) < len(vocabulary) else None
        if found != piece.content:
            return (
                f"{SETTINGS} calls {quoted(piece.content)} piece {number[:_MOST_DIGITS]}, where the vocabulary has "
                f"{quoted(found)}"
            )
    for name, number in zip(SPECIAL_NAMES, vocabulary.special_ids):
        found = getattr(settings, name)
        found = found.content if isinstance(found, _Piece) else found
        if found not in (None, vocabulary.pieces[number]):
            return f"{name} in {SETTINGS} is {quoted(found)}, where the vocabulary has {vocabulary.pieces[number]!r}"
    return None


def _class_of(directory: Path, settings: _Settings) -> str | None:
    """The tokenizer class that tokenizer_config.json, or else config.json, names, without `Fast`; None if neither does.

    Raises UsageError for a class that isn't known here.
    """
    named = [(SETTINGS, settings.tokenizer_class)]
    if (directory / "config.json").is_file():
        named.append(("config.json", read_shape(directory / "config.json", _Class).tokenizer_class))
    for file, name in named:
        if name is not None and name.removesuffix("Fast") not in _CLASSES:
            raise UsageError(
                f"{directory / file}: tokenizer_class is {quoted(name)}, whose ids bert_jax can't give; it reads those "
                f"of {', '.join(_CLASSES)}"
            )
    return next((name.removesuffix("Fast") for _, name in named if name), None)


def _with_added(tokenizer: Tokenizer, directory: Path, settings: _Settings) -> Tokenizer:
    """`tokenizer` with the tokens that added_tokens.json, tokenizer_config.json and special_tokens_map.json add to it,
    unless they are special pieces. A tokenizer.json has its own.

    Raises UsageError if they are numbered otherwise than on from its last piece.
    """
    vocabulary = tokenizer.vocabulary
    if (directory / TOKENIZER).is_file():
        return tokenizer
    extra = _special_tokens(directory, settings)
    special = {one.content for one in extra}
    found = {
        vocabulary.ids[one.content]: one.model_copy(update={"special": True})
        for one in extra
        if one.content in vocabulary.ids
    }
    if (directory / ADDED).is_file():
        numbers = read_object(directory / ADDED)
        check_numbers(numbers, directory / ADDED)
        found |= {number: _Piece(content=text, special=text in special) for text, number in numbers.items()}
    found |= {
        int(number): one
        for number, one in settings.added_tokens_decoder.items()
        if number.isdecimal() and len(number) <= _MOST_DIGITS
    }
    names = {vocabulary.pieces[number] for number in vocabulary.special_ids}
    tokens = []
    for number, one in sorted(found.items()):
        if one.content not in names:
            flags = one.model_dump(exclude={"content"})
            flags["normalized"] = not one.special if one.normalized is None else one.normalized
            tokens.append(added_token(one.content, number, **flags))
    return tokenizer.with_added(tokens) if tokens else tokenizer


def _special_tokens(directory: Path, settings: _Settings) -> list[_Piece]:
    """The special tokens besides the model's own that the files name, by the precedence that transformers has.

    special_tokens_map.json is read only where `settings` have no added_tokens_decoder.
    """
    named, listed = [*settings.named, *_others(directory / SETTINGS)], settings.listed
    if "added_tokens_decoder" not in settings.model_fields_set and (directory / _SPECIAL).is_file():
        more = read_shape(directory / _SPECIAL, _Tokens)
        named += [*more.named, *_others(directory / _SPECIAL)]
        listed = [*listed, *more.listed] if more.extra_special_tokens else listed or more.listed
    return [one if isinstance(one, _Piece) else _Piece(content=one) for one in (*named, *listed)]


def _others(path: Path) -> list[str]:
    """The tokens in a file of settings under keys that its author invented, such as entity_token."""
    known = {*SPECIAL_NAMES, *_Tokens.model_fields}
    values = read_object(path) if path.is_file() else {}
    return [
        value for key, value in values.items() if key.endswith("_token") and key not in known and isinstance(value, str)
    ]


def write_tokenizer(tokenizer: Tokenizer, directory: Path, max_positions: int) -> None:
    """Writes tokenizer.json, tokenizer_config.json and the vocabulary file, for AutoTokenizer and `read_tokenizer`.

    AutoTokenizer then gives the same ids as ours, except that special pieces in a text, such as [MASK], are recognized.
    The tokenizer class is the generic one, which uses tokenizer.json unchanged: transformers' class for BERT would
    make words of over 100 characters unknown, instead of over 200.
    """
    vocabulary = tokenizer.vocabulary
    special = {name: vocabulary.pieces[number] for name, number in zip(SPECIAL_NAMES, vocabulary.special_ids)}
    theirs = tokenizer.as_pipeline().as_huggingface()
    if tokenizer.file_name != TOKENIZER:
        tokenizer.write_vocabulary(directory / tokenizer.file_name)
    elif tokenizer.kind == "byte_bpe" and not (tokenizer.added or theirs.model.ignore_merges or theirs.normalizer):
        theirs.model.save(str(directory))  # the two older files can't say any of these
    write_text(directory / TOKENIZER, theirs.to_str(pretty=True))
    of_segments = ["token_type_ids"] if vocabulary.separators == 1 else []
    casing = {}
    if isinstance(tokenizer, WordPieceTokenizer):
        casing = {"do_lower_case": tokenizer.lowercase, "strip_accents": tokenizer.strip_accents}
    write_json(
        directory / SETTINGS,
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_input_names": ["input_ids", *of_segments, "attention_mask"],
            "model_max_length": max_positions,
            **casing,
            **special,
        },
    )
