"""Reads tokenizers in the formats of Hugging Face and Google, and writes them for AutoTokenizer of transformers."""

from pathlib import Path

from tokenizers import decoders

from bert_jax.config.model import ClassToken, ModelConfig
from bert_jax.interchange.tokenizer_classes import (
    CLASSES,
    GENERIC_NAMES,
    MODEL_CONFIG,
    class_of,
    named_tokens,
    with_class,
    with_tokens,
)
from bert_jax.interchange.tokenizer_config import (
    MOST_DIGITS,
    SPECIAL_NAMES,
    Piece,
    TokenizerConfig,
    added_tokens,
    check_settings,
    read_tokenizer_config,
)
from bert_jax.interchange.vocabulary_files import TOKENIZER, read_vocabulary, vocabulary_path
from bert_jax.system.errors import UsageError, quoted
from bert_jax.system.files import write_json, write_text
from bert_jax.system.json_file import JsonObject, read_foreign_object
from bert_jax.system.progress import say
from bert_jax.system.reading import Fact
from bert_jax.text.cleaning import Cleaning
from bert_jax.text.pipeline import TOKENIZER_CONFIG
from bert_jax.text.sentencepiece import SentencePieceTokenizer
from bert_jax.text.tokenizer import Tokenizer, read_vocabulary_file
from bert_jax.text.tokenizer_json import frame_of
from bert_jax.text.vocabulary import CONTINUATION, SPECIAL_PIECES, Frame, Vocabulary
from bert_jax.text.wordpiece import MANY_CAPITALS, MAX_WORD_CHARACTERS, WordPieceTokenizer

_UNLIMITED = 1_000_000
"""Least model_max_length that means no limit."""


def read_tokenizer(directory: Path, model: ModelConfig, lowercase: bool | None = None) -> Tokenizer:
    """Reads the tokenizer in `directory` as transformers' class for it does: from tokenizer_config.json and the
    vocabulary, or, if it is the generic class, from tokenizer.json.

    The class is the one that the files name or, if they name none, the model's. `lowercase` overrides the files of a
    WordPiece. Raises UsageError if there is no tokenizer, if it doesn't tokenize like BERT's, or if the files
    contradict each other or the model.
    """
    config, path = read_tokenizer_config(directory), vocabulary_path(directory)
    name, _ = class_of(path, config, model.model_type)
    check_settings(config.unknown, directory / TOKENIZER_CONFIG, follows_file=path.name == TOKENIZER)
    if path.name == SentencePieceTokenizer.file_name:
        tokenizer = _of_sentencepiece(path, config)
        tokenizer = tokenizer.with_class_token(_class_token(directory, name, tokenizer.vocabulary) or model.class_token)
    else:
        tokenizer = _of_class(path, name, config, lowercase)
    if lowercase is not None and tokenizer.kind != "wordpiece":
        raise UsageError(
            f"--{'' if lowercase else 'no-'}lowercase is for a WordPiece; the vocabulary in {directory} is a "
            f"{tokenizer.kind} and says itself how text is cleaned; leave the option out"
        )
    if contradiction := _contradiction(config, tokenizer.vocabulary, model.vocabulary_size or 0):
        raise UsageError(f"{directory}: {contradiction}; tokenizer and model don't belong together")
    if config.model_max_length and model.max_positions < config.model_max_length < _UNLIMITED:
        say(
            f"model_max_length in {TOKENIZER_CONFIG} is {config.model_max_length:,.0f} pieces and the model has "
            f"{model.max_positions:,} positions: the smaller number is taken"
        )
    return tokenizer


def _of_sentencepiece(path: Path, config: TokenizerConfig) -> Tokenizer:
    """The tokenizer of a sentencepiece model that cleans text itself, with the tokens that the folder adds."""
    tokenizer = read_vocabulary_file(path)
    if config.do_lower_case and tokenizer.piece_of_word("A") not in (None, tokenizer.piece_of_word("a")):
        raise UsageError(
            f"{path.parent / TOKENIZER_CONFIG}: do_lower_case is true, and the sentencepiece model keeps case"
        )
    tokens, _ = added_tokens(path.parent, config, {}, [])
    tokens = [token for token in tokens if token.content not in tokenizer.vocabulary.special]
    if not tokens:
        return tokenizer
    return Tokenizer(with_tokens(tokenizer.as_pipeline().contents, tokens, str(path)), str(path))


def _class_token(directory: Path, name: str, vocabulary: Vocabulary) -> ClassToken | None:
    """The place of [CLS] in the tokenizer.json of `directory` if the class `name` follows that file; None if there is
    no such file or it sets no special tokens. A sentencepiece model says nothing of the place."""
    file = directory / TOKENIZER
    step = read_foreign_object(file).get("post_processor") if name in GENERIC_NAMES and file.is_file() else None
    return frame_of(step, vocabulary.ids, str(file)).class_token(vocabulary.cls_id) if step else None


def _of_class(path: Path, name: str, config: TokenizerConfig, lowercase: bool | None) -> Tokenizer:
    """The tokenizer that the class `name` makes of the vocabulary at `path`; `lowercase` is the user's choice."""
    directory = path.parent
    has_config = (directory / TOKENIZER_CONFIG).is_file()
    file = read_vocabulary(path, name)
    if CLASSES[name].model == "WordPiece":
        # As for Google's files, the letters in the vocabulary decide.
        if lowercase is None and path.name != TOKENIZER and not has_config:
            lowercase = Vocabulary(file["model"]["vocab"], str(path)).share_of_capitals < MANY_CAPITALS
        if lowercase is not None:
            config = config.model_copy(update={"do_lower_case": lowercase})
    elif name in GENERIC_NAMES:
        file = _with_casing(file, path, lowercase, config.do_lower_case)
    named = named_tokens(directory, config, name)
    if name == "GPT2Tokenizer":  # a RoBERTa's vocabulary lacks the class's own special tokens
        named = {key: piece for key, piece in named.items() if piece.content in file["model"]["vocab"]}
    tokens, numbers = added_tokens(directory, config, named, file.get("added_tokens") or [])
    file = with_class(file, name, config, named, tokens, path)
    if path.name == WordPieceTokenizer.file_name and not has_config and not (directory / MODEL_CONFIG).is_file():
        file["model"]["max_input_chars_per_word"] = MAX_WORD_CHARACTERS  # Google's
    tokenizer = Tokenizer(file, str(path))
    for key, special in zip(SPECIAL_NAMES, tokenizer.vocabulary.special, strict=True):
        theirs = named[key].content if key in named and not getattr(config, key) else special
        if theirs != special and name != "GPT2Tokenizer":
            fault = f"{key} of {name} is {quoted(theirs)}, where the vocabulary has {special!r}"
            raise UsageError(f"{path}: {fault}; name it in {TOKENIZER_CONFIG}")
    for token, number in numbers.items():
        if tokenizer.vocabulary.ids[token] != number:
            raise UsageError(
                f"{path}: the added token {quoted(token)} has the number {number} and its place is "
                f"{tokenizer.vocabulary.ids[token]}; added tokens are numbered on from the model's pieces"
            )
    return _simplest(tokenizer)


def _with_casing(value: JsonObject, path: Path, lowercase: bool | None, do_lower_case: bool | None) -> JsonObject:
    """The tokenizer.json `value`, read from `path`, with its casing replaced by `lowercase`, the user's choice.

    Raises UsageError if the file doesn't say how it treats case, or if it contradicts `do_lower_case`.
    """
    cleaning = value.get("normalizer")
    if not isinstance(cleaning, dict) or cleaning.get("type") != "BertNormalizer":
        if lowercase is not None:
            raise UsageError(
                f"{path}: its normalizer isn't BERT's, so --lowercase can't be applied; leave the option out"
            )
        return value
    if lowercase is None and do_lower_case not in (None, cleaning["lowercase"]):
        raise UsageError(
            f"{path.parent}: lowercase in {path.name} is {cleaning['lowercase']} and do_lower_case in "
            f"tokenizer_config.json is {do_lower_case}; say which by --lowercase True or False"
        )
    return value | {"normalizer": cleaning | ({} if lowercase is None else {"lowercase": lowercase})}


def _simplest(tokenizer: Tokenizer) -> Tokenizer:
    """A WordPieceTokenizer, which encodes faster, if the steps are BERT's and no tokens are added; else `tokenizer`."""
    value = tokenizer.contents
    cleaning, model = value.get("normalizer") or {}, value["model"]
    vocabulary = tokenizer.vocabulary
    has_berts_steps = (
        model["type"] == "WordPiece"
        and not tokenizer.added
        and {**cleaning, "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True} == cleaning
        and value["pre_tokenizer"] == {"type": "BertPreTokenizer"}
        and vocabulary.special == SPECIAL_PIECES
        and vocabulary.frame
        == Frame.of_separators(vocabulary.cls_id, vocabulary.sep_id, class_token=vocabulary.class_token)
    )
    if not has_berts_steps:
        return tokenizer
    cleaning = Cleaning.of_file(cleaning["lowercase"], cleaning["strip_accents"])
    pieces = Vocabulary(vocabulary.pieces, tokenizer.name, frame=vocabulary.frame)
    return WordPieceTokenizer(pieces, cleaning, model["max_input_chars_per_word"])


def _contradiction(config: TokenizerConfig, vocabulary: Vocabulary, rows: int) -> str | None:
    """How the vocabulary contradicts its settings or the number of `rows` of the model's table; None if it doesn't."""
    if len(vocabulary) > rows:
        return f"the vocabulary has {len(vocabulary):,} pieces and the model's table {rows:,} rows"
    for number, piece in config.added_tokens_decoder.items():
        numbers = number.isdecimal() and len(number) <= MOST_DIGITS
        listed = vocabulary.pieces[int(number)] if numbers and int(number) < len(vocabulary) else None
        if listed != piece.content:
            return (
                f"{TOKENIZER_CONFIG} calls {quoted(piece.content)} piece {number[:MOST_DIGITS]}, where the vocabulary "
                f"has {quoted(listed)}"
            )
    for key, special in zip(SPECIAL_NAMES, vocabulary.special, strict=True):
        token: Piece | None = getattr(config, key)
        if token and token.content != special:
            return f"{key} in {TOKENIZER_CONFIG} is {quoted(token.content)}, where the vocabulary has {special!r}"
    return None


def has_segments(directory: Path, tokenizer: Tokenizer) -> bool:
    """Whether transformers puts the second text of a pair in segment 1. It doesn't if the names of the model's inputs
    lack token_type_ids, or if the special tokens round texts have no segments.
    """
    config = read_tokenizer_config(directory)
    name, _ = class_of(vocabulary_path(directory), config)
    named = config.model_input_names
    gives = CLASSES[name].segments if named is None else "token_type_ids" in named
    return gives and tokenizer.vocabulary.frame.segments


def tokenizer_facts(directory: Path, tokenizer: Tokenizer) -> list[Fact]:
    """How the tokenizer in `directory` was understood, and where each fact comes from."""
    config, path, vocabulary = read_tokenizer_config(directory), vocabulary_path(directory), tokenizer.vocabulary
    name, known_by = class_of(path, config)
    default = f"default of {name}"
    of_file = CLASSES[name].model is None or path.name == SentencePieceTokenizer.file_name
    cleaning = path.name if of_file else default
    if not of_file and {"do_lower_case", "strip_accents", "tokenize_chinese_chars"} & config.model_fields_set:
        cleaning = TOKENIZER_CONFIG
    elif not of_file and path.name == WordPieceTokenizer.file_name and not (directory / TOKENIZER_CONFIG).is_file():
        cleaning = "letters of the vocabulary"
    shown, unknown = (config.tokenizer_class if known_by == TOKENIZER_CONFIG else name), vocabulary.special[1]
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
    """How the tokenizer treats case, accents and Chinese characters, found by cleaning examples."""
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
        theirs.model.save(str(directory))  # the two older files can't express any of these
    write_text(directory / TOKENIZER, theirs.to_str(pretty=True))
    if num_segments > 1 and not vocabulary.frame.segments:
        say("the exported tokenizer has no segments: in transformers both texts of a pair are in segment 0")
    of_segments = ["token_type_ids"] if vocabulary.frame.segments and num_segments != 1 else []
    casing = {}
    if isinstance(tokenizer, WordPieceTokenizer):
        cleaning = tokenizer.cleaning
        casing = {"do_lower_case": cleaning.lowercase, "strip_accents": cleaning.strip_accents}
        if cleaning.form:  # tokenizer.json contains it, and no setting of BERT's tokenizer does
            del casing["strip_accents"]
    write_json(
        directory / TOKENIZER_CONFIG,
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_input_names": ["input_ids", *of_segments, "attention_mask"],
            "model_max_length": max_positions,
            # XLNet's classes take a sequence's last place for [CLS].
            **({"padding_side": "left"} if vocabulary.class_token == "last" else {}),
            **casing,
            **dict(zip(SPECIAL_NAMES, vocabulary.special, strict=True)),
        },
    )
