"""Reads and writes tokenizers: in the formats of Hugging Face and Google, and for AutoTokenizer of transformers."""

from pathlib import Path
from typing import Any

from tokenizers import AddedToken, decoders

from bert_jax.config.model import ModelConfig
from bert_jax.interchange.json_file import read_object, read_shape
from bert_jax.interchange.tokenizer_classes import (
    CLASSES,
    GENERIC,
    GENERIC_NAMES,
    NAMES,
    OF_MODELS,
    with_class,
    with_tokens,
)
from bert_jax.interchange.tokenizer_config import Piece, Settings, Tokens, check_keys
from bert_jax.interchange.vocabulary_files import (
    SETTINGS,
    TOKENIZER,
    read_sentencepiece,
    read_vocabulary,
    simplest,
    vocabulary_path,
    with_casing,
)
from bert_jax.system.errors import UsageError, quoted
from bert_jax.system.files import write_json, write_text
from bert_jax.system.progress import say
from bert_jax.system.reading import Fact
from bert_jax.text.sentencepiece import SentencePieceTokenizer
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.vocabulary import CONTINUATION, Vocabulary, check_numbers
from bert_jax.text.wordpiece import MANY_CAPITALS, MAX_WORD_CHARACTERS, WordPieceTokenizer

ADDED = "added_tokens.json"
_CONFIG = "config.json"
_SPECIAL = "special_tokens_map.json"
SPECIAL_NAMES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
"""Names of the special pieces in tokenizer_config.json, in the order of Vocabulary.special_ids."""
_OF_FILES = {WordPieceTokenizer.file_name: "BertTokenizer", "vocab.json": "RobertaTokenizer"}
"""The class that reads a file, where none is named."""
_UNLIMITED = 1_000_000
"""A model_max_length from this value on means that there is no limit."""
_MOST_DIGITS = 9
"""Most digits of a piece's number: int() raises for strings of some thousand digits."""


def read_tokenizer(directory: Path, config: ModelConfig, lowercase: bool | None = None) -> Tokenizer:
    """Reads the tokenizer in `directory` as transformers' class for it does: from tokenizer_config.json and the
    vocabulary, or, if it is the generic class, from tokenizer.json.

    The class is the one that the files name, or else the model's. `lowercase` overrides the files of a WordPiece.
    Raises UsageError if there is no tokenizer, if it doesn't tokenize like BERT's, or if the files contradict each
    other or the model.
    """
    settings, path = _settings(directory), vocabulary_path(directory)
    name, _ = _class_of(path, settings, config.model_type)
    check_keys(settings.unknown, directory / SETTINGS, follows_file=path.name == TOKENIZER)
    if path.name == SentencePieceTokenizer.file_name:
        tokenizer = read_sentencepiece(path, settings.do_lower_case)
        tokens, _ = _tokens({}, directory, settings, {})
        if tokens := [token for token in tokens if token.content not in tokenizer.vocabulary.special]:
            tokenizer = Tokenizer(with_tokens(tokenizer.as_pipeline().contents, tokens, str(path)), str(path))
    else:
        tokenizer = _of_class(path, name, settings, lowercase)
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


def _settings(directory: Path) -> Settings:
    return read_shape(directory / SETTINGS, Settings) if (directory / SETTINGS).is_file() else Settings()


def _of_class(path: Path, name: str, settings: Settings, lowercase: bool | None) -> Tokenizer:
    """The tokenizer that the class `name` makes of the vocabulary at `path`; `lowercase` is what the user asks for."""
    directory, has_file = path.parent, path.name == TOKENIZER
    has_settings = (directory / SETTINGS).is_file()
    value = read_vocabulary(path, name)
    if CLASSES[name].model == "WordPiece":
        if lowercase is None and not has_file and not has_settings:  # as Google's: the letters decide
            lowercase = Vocabulary(value["model"]["vocab"], str(path)).share_of_capitals < MANY_CAPITALS
        if lowercase is not None:
            settings = settings.model_copy(update={"do_lower_case": lowercase})
    elif name in GENERIC_NAMES:
        value = with_casing(value, path, lowercase, settings.do_lower_case)
    named = _named(settings, name, directory)
    if name == "GPT2Tokenizer":  # whose own names a RoBERTa's vocabulary lacks
        named = {key: piece for key, piece in named.items() if piece.content in value["model"]["vocab"]}
    tokens, numbers = _tokens(value, directory, settings, named)
    value = with_class(value, name, settings, named, tokens, path)
    if path.name == WordPieceTokenizer.file_name and not has_settings and not (directory / _CONFIG).is_file():
        value["model"]["max_input_chars_per_word"] = MAX_WORD_CHARACTERS  # Google's
    tokenizer = Tokenizer(value, str(path))
    for key, special in zip(SPECIAL_NAMES, tokenizer.vocabulary.special, strict=True):
        theirs = named[key].content if key in named and not getattr(settings, key) else special
        if theirs != special and name != "GPT2Tokenizer":
            fault = f"{key} of {name} is {quoted(theirs)}, where the vocabulary has {special!r}"
            raise UsageError(f"{path}: {fault}; name it in {SETTINGS}")
    for token, number in numbers.items():
        if tokenizer.vocabulary.ids[token] != number:
            raise UsageError(
                f"{path}: the added token {quoted(token)} has the number {number} and its place is "
                f"{tokenizer.vocabulary.ids[token]}; added tokens are numbered on from the model's pieces"
            )
    return simplest(tokenizer)


def _contradiction(settings: Settings, vocabulary: Vocabulary, config: ModelConfig) -> str | None:
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
        token: Piece | None = getattr(settings, name)
        if token and token.content != special:
            return f"{name} in {SETTINGS} is {quoted(token.content)}, where the vocabulary has {special!r}"
    return None


def _class_of(path: Path, settings: Settings, model_type: str = "bert") -> tuple[str, str]:
    """The tokenizer class that reads the vocabulary at `path`, without `Fast`, and how it is known.

    It is that of tokenizer_config.json, or else of config.json, or else of the model, whose `model_type` may be in
    config.json. Raises UsageError for a class
    that isn't known here.
    """
    directory = path.parent
    values = read_object(directory / _CONFIG) if (directory / _CONFIG).is_file() else {}
    named = [(SETTINGS, settings.tokenizer_class), (_CONFIG, values.get("tokenizer_class"))]
    model_type = values.get("model_type", model_type)
    for file, name in named:
        if name is not None and str(name).removesuffix("Fast") not in CLASSES:
            raise UsageError(
                f"{directory / file}: tokenizer_class is {quoted(name)}, whose ids bert_jax can't give; it reads those "
                f"of {', '.join(CLASSES)}"
            )
    own = OF_MODELS.get(model_type, GENERIC)
    file, name = next(((file, name) for file, name in named if name), ("", own))
    name, known_by = (
        (own, f"model_type {model_type}") if own == GENERIC or not file else (name.removesuffix("Fast"), file)
    )
    of_file = _OF_FILES.get(path.name, name)
    if CLASSES[of_file].model != CLASSES[name].model and (known_by != file or name in GENERIC_NAMES):
        return of_file, path.name  # the other class doesn't read such a file
    return name, known_by


def _named(settings: Tokens, name: str, directory: Path) -> dict[str, Piece]:
    """The special tokens by their keys, in the order in which the class `name` adds them."""
    more, defaults = _special_map(directory, settings), CLASSES[name].tokens
    tokens = {key: Piece(content=piece) for key, piece in defaults.items()}
    if name == "CamembertTokenizer" or (name == "RobertaTokenizer" and not settings.model_fields_set):
        tokens["mask_token"] = Piece(content="<mask>", lstrip=True)  # RoBERTa's own takes the space before it
    for key in NAMES:
        if piece := getattr(more, key) or getattr(settings, key):
            tokens[key] = piece
    return {key: tokens[key] for key in NAMES if key in tokens}


def _special_map(directory: Path, settings: Tokens) -> Tokens:
    """special_tokens_map.json, which is read only where `settings` have no added_tokens_decoder."""
    if "added_tokens_decoder" not in settings.model_fields_set and (directory / _SPECIAL).is_file():
        return read_shape(directory / _SPECIAL, Tokens)
    return Tokens()


def _tokens(
    value: dict[str, Any], directory: Path, settings: Settings, named: dict[str, Piece]
) -> tuple[list[AddedToken], dict[str, int]]:
    """The tokens that the files add to those of `value`, in order, and the numbers that they give some."""
    extra = _special_tokens(directory, settings)
    numbered: dict[int, AddedToken] = {}
    numbers: dict[str, int] = {}
    if "added_tokens_decoder" in settings.model_fields_set:
        for number, one in settings.added_tokens_decoder.items():
            if number.isdecimal() and len(number) <= _MOST_DIGITS:
                numbered[int(number)] = one.added()
    else:
        if (directory / ADDED).is_file():
            special, old = {one.content for one in extra}, read_object(directory / ADDED)
            check_numbers(old, directory / ADDED)
            for text, number in old.items():
                numbered[number] = Piece(content=text, special=text in special).added()
        for token in value.get("added_tokens") or []:
            numbered[token["id"]] = AddedToken(**{key: flag for key, flag in token.items() if key != "id"})
        numbers = {token.content: number for number, token in numbered.items()}
    tokens = [numbered[number] for number in sorted(numbered)]
    known = {token.content for token in tokens}
    return tokens + [one.added(special=True) for one in (*named.values(), *extra) if one.content not in known], numbers


def _special_tokens(directory: Path, settings: Settings) -> list[Piece]:
    """The further special tokens that the files name, by the precedence that transformers has."""
    more = _special_map(directory, settings)
    listed = [*settings.listed, *more.listed] if more.extra_special_tokens else settings.listed or more.listed
    return [*settings.named, *more.named, *listed]


def has_segments(directory: Path, tokenizer: Tokenizer) -> bool:
    """Whether the second text of a pair is in segment 1 for models that transformers gives the tokenizer's ids.

    It isn't if the names of a model's inputs lack token_type_ids, or if the frame of special tokens has no segments.
    """
    settings = _settings(directory)
    name, _ = _class_of(vocabulary_path(directory), settings)
    named = settings.model_input_names
    gives = CLASSES[name].segments if named is None else "token_type_ids" in named
    return gives and tokenizer.vocabulary.frame.segments


def tokenizer_facts(directory: Path, tokenizer: Tokenizer) -> list[Fact]:
    """What the tokenizer in `directory` was taken for, and where each fact comes from."""
    settings, path, vocabulary = _settings(directory), vocabulary_path(directory), tokenizer.vocabulary
    name, known_by = _class_of(path, settings)
    default = f"default of {name}"
    of_file = CLASSES[name].model is None or path.name == SentencePieceTokenizer.file_name
    cleaning = path.name if of_file else default
    if not of_file and {"do_lower_case", "strip_accents", "tokenize_chinese_chars"} & settings.model_fields_set:
        cleaning = SETTINGS
    elif not of_file and path.name == WordPieceTokenizer.file_name and not (directory / SETTINGS).is_file():
        cleaning = "letters of the vocabulary"
    shown, unknown = (settings.tokenizer_class if known_by == SETTINGS else name), vocabulary.special[1]
    words = "bytes" if tokenizer.kind == "byte_bpe" else f"characters without a piece are {unknown}"
    if tokenizer.kind == "wordpiece":
        longest = tokenizer.contents["model"]["max_input_chars_per_word"]
        words = f"up to {longest} characters; longer ones, and those without pieces, are {unknown}"
    second = 1 if has_segments(directory, tokenizer) else 0
    frame = f"{vocabulary.framed('text')}; {vocabulary.framed('first', 'second')}, the second in segment {second}"
    return [
        Fact(name="tokenizer", value=f"{shown}, {tokenizer.kind} of {len(vocabulary):,} pieces", known_by=known_by),
        Fact(name="text", value=_cleaning(tokenizer), known_by=cleaning),
        Fact(name="words", value=words, known_by=path.name if of_file else default),
        Fact(name="special tokens", value=frame, known_by=path.name if of_file else default),
    ]


def _cleaning(tokenizer: Tokenizer) -> str:
    """How the tokenizer treats case, accents and Chinese characters, by what it makes of some."""
    clean = tokenizer.cleaned
    accents = "kept" if "é" in clean("é") else "dropped"
    text = f"{'lower-cased' if 'a' in clean('A') else 'case kept'}, accents {accents}"
    chinese = "apart" if " " in clean("中中").strip() else "together"
    return f"{text}, Chinese characters {chinese}" if tokenizer.kind == "wordpiece" else text


def write_tokenizer(tokenizer: Tokenizer, directory: Path, max_positions: int, num_segments: int = 2) -> None:
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
    if num_segments > 1 and not vocabulary.frame.segments:
        say("the exported tokenizer has no segments: in transformers both texts of a pair are in segment 0")
    of_segments = ["token_type_ids"] if vocabulary.frame.segments and num_segments != 1 else []
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
