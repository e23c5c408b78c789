"""Reads tokenizers in the formats of Hugging Face and Google, and writes them for AutoTokenizer of transformers."""

from pathlib import Path
from typing import NamedTuple

from tokenizers import decoders

from bert_jax.config.model import ClassToken, ModelConfig
from bert_jax.interchange.tokenizer_classes import (
    CLASSES,
    GENERIC_NAMES,
    special_pieces,
    special_tokens,
    with_class,
    with_tokens,
)
from bert_jax.interchange.tokenizer_config import (
    SPECIAL_NAMES,
    Piece,
    PublishedFolder,
    added_tokens,
    check_settings,
    given_tokens,
)
from bert_jax.interchange.vocabulary_files import MODEL_CONFIG, TOKENIZER, class_of, read_vocabulary
from bert_jax.system.errors import UsageError, command_line, quoted
from bert_jax.system.files import write_json, write_text
from bert_jax.system.json_file import JsonObject
from bert_jax.system.progress import say
from bert_jax.system.reading import Fact
from bert_jax.text.cleaning import Cleaning
from bert_jax.text.pipeline import TOKENIZER_CONFIG
from bert_jax.text.sentencepiece import SentencePieceTokenizer
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.tokenizer_json import frame_of
from bert_jax.text.vocabulary import BLANKS_AT_ENDS, CONTINUATION, SPECIAL_PIECES, Frame, Vocabulary
from bert_jax.text.wordpiece import MANY_CAPITALS, MAX_WORD_CHARACTERS, WordPieceTokenizer

_UNLIMITED = 1_000_000
"""Least model_max_length that means no limit."""


class PublishedTokenizer(NamedTuple):
    """The tokenizer in another program's folder."""

    tokenizer: Tokenizer
    has_segments: bool
    """Whether transformers puts the second text of a pair in segment 1. It doesn't if the names of the model's inputs
    lack token_type_ids, or if the special tokens have no segments."""
    facts: list[Fact]
    """How it was understood, and where each fact comes from."""


def read_tokenizer(folder: PublishedFolder, model: ModelConfig, lowercase: bool | None = None) -> PublishedTokenizer:
    """Reads the tokenizer in `folder` as transformers' class for it does: from tokenizer_config.json and the
    vocabulary, or, if it is the generic class, from tokenizer.json.

    The class is the one that the files name or, if they name none, the model's. `lowercase` overrides the files of a
    WordPiece. Raises UsageError if there is no tokenizer, if it doesn't tokenize like BERT's, or if the files
    contradict each other or the model.
    """
    directory, config = folder.path, folder.config
    path, name, known_by = class_of(folder, model.model_type)
    check_settings(config, directory / TOKENIZER_CONFIG, path.name == TOKENIZER)
    if path.name == SentencePieceTokenizer.file_name and not CLASSES[name].numbering:
        tokenizer = _of_sentencepiece(folder, path)
        tokenizer = tokenizer.with_class_token(_class_token(folder, name, tokenizer.vocabulary) or model.class_token)
    else:
        tokenizer = _of_class(folder, path, name, lowercase)
    _say_differences(path, name, known_by, tokenizer)
    if lowercase is not None and tokenizer.kind != "wordpiece":
        raise UsageError(
            f"--lowercase {lowercase} is for a WordPiece; the vocabulary in {directory} is a "
            f"{tokenizer.kind} and says itself how text is cleaned; leave the option out"
        )
    if (pieces := len(tokenizer.vocabulary)) > (rows := model.vocabulary_size or 0):
        raise UsageError(
            f"{directory}: the vocabulary has {pieces:,} pieces and the model's table {rows:,} rows; tokenizer and "
            "model don't belong together"
        )
    if config.model_max_length and model.max_positions < config.model_max_length < _UNLIMITED:
        say(
            f"model_max_length in {TOKENIZER_CONFIG} is {config.model_max_length:,.0f} pieces and the model has "
            f"{model.max_positions:,} positions: the smaller number is taken"
        )
    named = config.model_input_names
    gives_segments = CLASSES[name].segments if named is None else "token_type_ids" in named
    has_segments = gives_segments and tokenizer.vocabulary.frame.segments
    return PublishedTokenizer(tokenizer, has_segments, _facts(folder, path, name, known_by, tokenizer, has_segments))


def _of_sentencepiece(folder: PublishedFolder, path: Path) -> Tokenizer:
    """The tokenizer of a sentencepiece model that cleans text itself, with the tokens that the folder adds."""
    tokenizer: Tokenizer = folder.sentencepiece
    if folder.config.do_lower_case and tokenizer.piece_of_word("A") not in (None, tokenizer.piece_of_word("a")):
        raise UsageError(
            f"{path.parent / TOKENIZER_CONFIG}: do_lower_case is true, and the sentencepiece model keeps case"
        )
    given = given_tokens(folder)
    named, listed = special_tokens(given, GENERIC_NAMES[0], path)
    tokens, numbers = added_tokens(folder, given, [*named.values(), *listed], {})
    tokens = [token for token in tokens if token.content not in tokenizer.vocabulary.special]
    if tokens:
        file = with_tokens(tokenizer.as_pipeline().contents, tokens, named, str(path))
        tokenizer = Tokenizer(file, str(path))
    _check_tokens(named, numbers, tokenizer.vocabulary, path)
    return tokenizer


def _class_token(folder: PublishedFolder, name: str, vocabulary: Vocabulary) -> ClassToken | None:
    """The place of [CLS] in the tokenizer.json of `folder` if the class `name` follows that file; None if there is
    no such file or it sets no special tokens. A sentencepiece model says nothing of the place."""
    step = (folder.values(TOKENIZER) or {}).get("post_processor") if name in GENERIC_NAMES else None
    return frame_of(step, vocabulary.ids, str(folder.path / TOKENIZER)).class_token(vocabulary.cls_id) if step else None


def _of_class(folder: PublishedFolder, path: Path, name: str, lowercase: bool | None) -> Tokenizer:
    """The tokenizer that the class `name` makes of the vocabulary at `path`; `lowercase` is the user's choice."""
    directory, config = folder.path, folder.config
    has_config = (directory / TOKENIZER_CONFIG).is_file()
    file = read_vocabulary(folder, path, name)
    if CLASSES[name].model == "WordPiece":
        # As for Google's files, a vocabulary with few capital letters means lower case.
        if lowercase is None and path.name != TOKENIZER and not has_config:
            pieces = Vocabulary(file["model"]["vocab"], str(path), special_pieces(name))
            lowercase = pieces.share_of_capitals < MANY_CAPITALS
        if lowercase is not None:
            config = config.model_copy(update={"do_lower_case": lowercase})
    elif name in GENERIC_NAMES:
        file = _with_casing(file, path, lowercase, config.do_lower_case)
    of_model = None
    if path.suffix == ".model":
        of_model = [Piece(**token) for token in file.pop("added_tokens")]
        config = config.model_copy(update={"unk_id": file["model"]["unk_id"]})
    given = given_tokens(folder, of_model)
    if name in GENERIC_NAMES and (padding := file.get("padding")):
        given.setdefault("pad_token", Piece.of_text(padding["pad_token"]))
    named, listed = special_tokens(given, name, directory / TOKENIZER_CONFIG)
    for key in ("bos_token", "eos_token") if of_model is not None and name == "XLMRobertaTokenizer" else ():
        if named[key].content != (usual := CLASSES[name].tokens[key]):  # transformers renames the piece of that number
            raise UsageError(f"{path}: {key} is {quoted(named[key].content)}, no piece of it; write {usual!r}")
    present = {token["content"] for token in file.get("added_tokens") or []}
    if name == "GPT2Tokenizer":  # a RoBERTa's vocabulary lacks the class's own special tokens
        present |= set(map(str, file["model"]["vocab"]))
        for key in [key for key in named if key not in given and named[key].content not in present]:
            say(f"{path} lacks {named.pop(key).content}, {key} of {name}; transformers adds it, and bert_jax doesn't")
    # With the generic class, the vocabulary already has the file's tokens.
    special = [one for one in (*named.values(), *listed) if name not in GENERIC_NAMES or one.content not in present]
    tokens, numbers = added_tokens(folder, given, special, file)
    pieces = file["model"]["vocab"]
    file, pipeline = with_class(file, name, config, named, tokens, path)
    if path.name == WordPieceTokenizer.file_name and not has_config and not (directory / MODEL_CONFIG).is_file():
        file["model"]["max_input_chars_per_word"] = MAX_WORD_CHARACTERS  # Google's limit
    tokenizer = Tokenizer(file, str(path), pipeline)
    if path.suffix == ".txt" and len(tokenizer.vocabulary) > len(pieces) > len(
        {one.rstrip(BLANKS_AT_ENDS) for one in pieces}
    ):
        raise UsageError(
            f"{path}: several lines have blanks alone, which are one piece in transformers, so that added tokens have "
            "other numbers there; write unused names like [unused0] in these lines"
        )
    named = {key: piece for key, piece in named.items() if key in given or name != "GPT2Tokenizer"}
    _check_tokens(named, numbers, tokenizer.vocabulary, path)
    return _simplest(tokenizer)


def _check_tokens(named: dict[str, Piece], numbers: dict[str, int], vocabulary: Vocabulary, path: Path) -> None:
    """Raises UsageError if the vocabulary from `path` has other special pieces than those `named`, or if the number of
    an added token isn't the one that a file states."""
    for key, special in zip(SPECIAL_NAMES, vocabulary.special, strict=True):
        if (theirs := named[key].content if key in named else special) != special:
            raise UsageError(
                f"{path}: {key} is {quoted(theirs)}, where the vocabulary has {special!r}; give the vocabulary that "
                f"belongs to {TOKENIZER_CONFIG}, or name its piece there"
            )
    for token, number in numbers.items():
        if (place := vocabulary.ids.get(token)) != number:
            raise UsageError(
                f"{path}: the added token {quoted(token)} has the number {number} and its place is {place}; added "
                "tokens are numbered on from the model's pieces"
            )


def _say_differences(path: Path, name: str, known_by: str, tokenizer: Tokenizer) -> None:
    """Prints a line for each deliberate difference from how transformers reads the tokenizer."""
    own = CLASSES[name]
    is_bare = (path.parent / MODEL_CONFIG).is_file() and not (path.parent / TOKENIZER_CONFIG).is_file()
    if not (path.parent / TOKENIZER).is_file() and (path.name != own.file or known_by == path.name):
        say(f"{path} is read as {name} reads it; transformers reads it otherwise; for its ids add its {TOKENIZER}")
    elif is_bare and path.name == WordPieceTokenizer.file_name and "A" in tokenizer.cleaned("A"):
        say(f"{path}: case is kept, where transformers lower-cases text without {TOKENIZER_CONFIG}; set do_lower_case")
    elif is_bare and path.name == own.file and name == "RobertaTokenizer":
        mask = tokenizer.vocabulary.special[-1]
        say(f"{path}: {mask} takes the spaces before it; transformers keeps them without {TOKENIZER_CONFIG}")


def _with_casing(value: JsonObject, path: Path, lowercase: bool | None, do_lower_case: bool | None) -> JsonObject:
    """The tokenizer.json `value`, read from `path`, with its casing replaced by `lowercase`, the user's choice. Raises
    UsageError if the file doesn't say how it treats case, or if it contradicts `do_lower_case`."""
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
            f"tokenizer_config.json is {do_lower_case}; say which is right, True or False, when you import the model: "
            f"{command_line('bert-jax', 'import', path.parent, 'RUN', '--lowercase', cleaning['lowercase'])}"
        )
    return value | {"normalizer": cleaning | ({} if lowercase is None else {"lowercase": lowercase})}


def _simplest(tokenizer: Tokenizer) -> Tokenizer:
    """A WordPieceTokenizer, which encodes faster, if the steps are BERT's and no tokens are added; else `tokenizer`."""
    value = tokenizer.contents
    cleaning, model = value.get("normalizer") or {}, value["model"]
    vocabulary = tokenizer.vocabulary
    mask: JsonObject = next((token for token in value["added_tokens"] if token["id"] == vocabulary.mask_id), {})
    has_berts_steps = (
        model["type"] == "WordPiece"
        and not tokenizer.added
        and not any(mask.get(flag) for flag in ("lstrip", "rstrip", "single_word", "normalized"))
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


def _facts(
    folder: PublishedFolder, path: Path, name: str, known_by: str, tokenizer: Tokenizer, has_segments: bool
) -> list[Fact]:
    """How the class `name`, known by `known_by`, reads the vocabulary at `path`."""
    config, vocabulary = folder.config, tokenizer.vocabulary
    default = f"default of {name}"
    of_file = CLASSES[name].model is None or path.name == SentencePieceTokenizer.file_name
    cleaning = path.name if of_file else default
    if not of_file and {"do_lower_case", "strip_accents", "tokenize_chinese_chars"} & config.model_fields_set:
        cleaning = TOKENIZER_CONFIG
    elif not of_file and path.name == WordPieceTokenizer.file_name and not (folder.path / TOKENIZER_CONFIG).is_file():
        cleaning = "letters of the vocabulary"
    shown, unknown = (config.tokenizer_class if known_by == TOKENIZER_CONFIG else name), vocabulary.special[1]
    words = "bytes" if tokenizer.kind == "byte_bpe" else f"characters without a piece are {unknown}"
    if tokenizer.kind == "wordpiece":
        longest = tokenizer.contents["model"]["max_input_chars_per_word"]
        words = f"up to {longest} characters; longer ones, and those without pieces, are {unknown}"
    second = 1 if has_segments else 0
    shared = vocabulary.pad_id == vocabulary.sep_id
    padding = TOKENIZER_CONFIG if "pad_token" in given_tokens(folder) else "no piece of its own"
    frame = f"{vocabulary.framed('text')}; {vocabulary.framed('first', 'second')}, the second in segment {second}"
    return [
        Fact(name="tokenizer", value=f"{shown}, {tokenizer.kind} of {len(vocabulary):,} pieces", known_by=known_by),
        Fact(name="text", value=_cleaning(tokenizer), known_by=cleaning),
        Fact(name="words", value=words, known_by=path.name if of_file else default),
        Fact(name="special tokens", value=frame, known_by=path.name if of_file else default),
        *([Fact(name="padding", value=f"{vocabulary.special[0]}, which also ends a text", known_by=padding)] * shared),
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
    # Without a table of segments only XLNet, whose class token is the last, takes them.
    takes_segments = num_segments > 1 or not num_segments and vocabulary.class_token == "last"
    of_segments = ["token_type_ids"] if vocabulary.frame.segments and takes_segments else []
    special = dict(zip(SPECIAL_NAMES, vocabulary.special, strict=True))
    if not vocabulary.has_unknown:
        del special["unk_token"]
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
            # XLNet's classes expect [CLS] at the last place, so padding comes first.
            **({"padding_side": "left"} if vocabulary.class_token == "last" else {}),
            **casing,
            **special,
        },
    )
