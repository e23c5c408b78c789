"""Tokenizer classes of transformers, and the steps that each class builds from its settings, regardless of its
tokenizer.json."""

import base64
import json
from pathlib import Path
from typing import Literal, NamedTuple

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Pipeline

from bert_jax.interchange.relatives import RELATIVES
from bert_jax.interchange.tokenizer_config import TOKEN_KEYS, Piece, TokenizerConfig, special_tokens_map
from bert_jax.system.errors import UsageError, quoted
from bert_jax.system.json_file import JsonObject, read_foreign_object
from bert_jax.text.pipeline import TOKENIZER_CONFIG
from bert_jax.text.tokenizer_json import built, byte_level, frame_template
from bert_jax.text.vocabulary import BOUNDARY, CONTINUATION
from bert_jax.text.wordpiece import WordPieceTokenizer

MODEL_CONFIG = "config.json"
GENERIC = "TokenizersBackend"
"""Name of the class that follows a tokenizer.json; its older names are in `GENERIC_NAMES`."""
GENERIC_NAMES = (GENERIC, "PreTrainedTokenizer")
LONGEST_WORD = 100
"""Most characters of a word in BertTokenizer; the original BERT has 200."""
_OF_FILES = {WordPieceTokenizer.file_name: "BertTokenizer", "vocab.json": "RobertaTokenizer"}
"""The class for a vocabulary file, if no class is named."""


class Numbering(NamedTuple):
    """The numbering of the pieces of a sentencepiece model by a class."""

    first: dict[str, float] = {}
    """The first pieces, which fairseq adds, with their scores."""
    replaced: int = 0
    """Number of the model's first pieces that these replace."""
    last: dict[str, float] = {}
    """Pieces after those of the model."""


class TokenizerClass(NamedTuple):
    """A tokenizer class, with defaults for settings that a folder may leave out."""

    model: str | None
    """The type of its model in a tokenizer.json; None: any."""
    tokens: dict[str, str]
    """Its special tokens by their keys in tokenizer_config.json; those with other keys than TOKEN_KEYS come last."""
    frame: Literal["bert", "roberta", "fairseq", "xlnet"] | None = None
    """The model whose special tokens it sets round texts; None: the special tokens of its tokenizer.json."""
    follows_frame: bool = False
    """Whether the special tokens that a tokenizer.json sets round texts replace those of the class."""
    segments: bool = False
    """Whether token_type_ids are among its model_input_names."""
    numbering: Numbering | None = None
    """How it numbers the pieces of a sentencepiece file; None: the class reads no such file."""
    unknown: int | None = None
    """The number of the unknown piece in its Unigram model; None: that of its unknown token."""


_OF_BERT = dict(zip(TOKEN_KEYS[2:], ("[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"), strict=True))
_OF_FAIRSEQ = dict(zip(TOKEN_KEYS, ("<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>"), strict=True))
_OF_ALBERT = dict(zip(TOKEN_KEYS, ("[CLS]", "[SEP]", "<unk>", "[SEP]", "<pad>", "[CLS]", "[MASK]"), strict=True))
_OF_XLNET = dict(zip(TOKEN_KEYS, ("<s>", "</s>", "<unk>", "<sep>", "<pad>", "<cls>", "<mask>"), strict=True))
_OF_XLNET |= {"eop_token": "<eop>", "eod_token": "<eod>"}
_OF_GPT2 = dict.fromkeys(TOKEN_KEYS[:3], "<|endoftext|>")
_MASK_LAST = {"<mask>": 0.0}
_NUMBERING_OF_XLMR = Numbering(dict.fromkeys(("<s>", "<pad>", "</s>", "<unk>"), 0.0), 3, _MASK_LAST)
_NUMBERING_OF_CAMEMBERT = Numbering(
    {"<s>NOTUSED": 0.0, "<pad>": 0.0, "</s>NOTUSED": 0.0, "<unk>": 0.0, "<unk>NOTUSED": -100.0}, 1, _MASK_LAST
)
CLASSES = {
    "BertTokenizer": TokenizerClass("WordPiece", _OF_BERT, "bert", segments=True),
    "ElectraTokenizer": TokenizerClass("WordPiece", _OF_BERT, "bert", segments=True),
    "DistilBertTokenizer": TokenizerClass("WordPiece", _OF_BERT, "bert"),
    "RobertaTokenizer": TokenizerClass("BPE", _OF_FAIRSEQ, "roberta"),
    # Files of RoBERTa may name GPT-2's class, which splits text into the same pieces.
    "GPT2Tokenizer": TokenizerClass("BPE", _OF_GPT2, follows_frame=True),
    "XLMRobertaTokenizer": TokenizerClass("Unigram", _OF_FAIRSEQ, "fairseq", numbering=_NUMBERING_OF_XLMR, unknown=3),
    "CamembertTokenizer": TokenizerClass("Unigram", _OF_FAIRSEQ, "fairseq", numbering=_NUMBERING_OF_CAMEMBERT),
    "AlbertTokenizer": TokenizerClass(
        "Unigram", _OF_ALBERT, "bert", follows_frame=True, numbering=Numbering(), unknown=1
    ),
    # transformers 5 gives token_type_ids only where it is asked for them; the original XLNet always had segments.
    "XLNetTokenizer": TokenizerClass("Unigram", _OF_XLNET, "xlnet", segments=True, numbering=Numbering(), unknown=0),
    **dict.fromkeys(GENERIC_NAMES, TokenizerClass(None, {})),
}
"""The classes by name, without a `Fast` at its end."""


def class_of(path: Path, config: TokenizerConfig, model_type: str = "bert") -> tuple[str, str]:
    """The tokenizer class that reads the vocabulary at `path`, without `Fast`, and how it is known.

    The class is taken from tokenizer_config.json, else from config.json, else from the model's type, which is
    `model_type` if config.json names none. Raises UsageError for an unknown class.
    """
    file = path.parent / MODEL_CONFIG
    values = read_foreign_object(file) if file.is_file() else {}
    named = {TOKENIZER_CONFIG: config.tokenizer_class, MODEL_CONFIG: values.get("tokenizer_class")}
    for place, name in named.items():
        if name is not None and str(name).removesuffix("Fast") not in CLASSES:
            raise UsageError(
                f"{path.parent / place}: tokenizer_class is {quoted(name)}, whose ids bert_jax can't give; it reads "
                f"those of {', '.join(CLASSES)}"
            )
    model_type = str(values.get("model_type", model_type))
    own = RELATIVES[model_type].tokenizer if model_type in RELATIVES else None
    name = own or GENERIC
    known_by = f"model_type {model_type}"
    follows_model = not own or not any(named.values())
    if not follows_model:
        known_by, name = next((place, name.removesuffix("Fast")) for place, name in named.items() if name)
    of_file = _OF_FILES.get(path.name, name)
    if CLASSES[of_file].model != CLASSES[name].model and (follows_model or name in GENERIC_NAMES):
        return of_file, path.name  # the class `name` doesn't read such a file
    return name, known_by


def named_tokens(directory: Path, config: TokenizerConfig, class_name: str) -> dict[str, Piece]:
    """The special tokens by their keys, in the order in which the class adds them."""
    more = special_tokens_map(directory, config)
    tokens = {key: Piece(content=piece) for key, piece in CLASSES[class_name].tokens.items()}
    unset = class_name == "RobertaTokenizer" and not config.model_fields_set
    if class_name in ("CamembertTokenizer", "XLNetTokenizer") or unset:
        tokens["mask_token"] = Piece(content="<mask>", lstrip=True)  # RoBERTa's mask token includes the space before it
    for key in TOKEN_KEYS:
        if piece := getattr(more, key) or getattr(config, key):
            tokens[key] = piece
    return {key: tokens[key] for key in dict.fromkeys((*TOKEN_KEYS, *tokens)) if key in tokens}


def with_class(
    file: JsonObject, name: str, config: TokenizerConfig, named: dict[str, Piece], tokens: list[AddedToken], path: Path
) -> JsonObject:
    """The tokenizer.json that the class `name` makes of `file`, read from `path`, with `tokens` added in their order.

    `named` are special tokens by their keys. Raises UsageError if the model in `file` isn't that of the class.
    """
    own = CLASSES[name]
    if own.model is None:
        return with_tokens(file, tokens, str(path)) if tokens else file
    if file["model"].get("type", own.model) != own.model:
        raise UsageError(
            f"{path}: its model is {quoted(file['model'].get('type'))}, and {name} has a {own.model}; set "
            f"tokenizer_class in tokenizer_config.json to PreTrainedTokenizerFast to follow {path.name}"
        )
    special = {key: piece.content for key, piece in named.items()}
    if own.model == "WordPiece":
        pipeline = _wordpiece(file, config, special)
    elif own.model == "BPE":
        pipeline = _byte_level(file, config)
    else:
        pipeline = _unigram(file, name, config, special)
    pipeline.add_tokens(tokens)
    if own.frame:
        pipeline.post_processor = _frame(own.frame, config, special, pipeline)
    built_file = json.loads(pipeline.to_str())
    if own.follows_frame and file.get("post_processor"):
        built_file["post_processor"] = file["post_processor"]
    return built_file


def with_tokens(file: JsonObject, tokens: list[AddedToken], name: str) -> JsonObject:
    """`file` with `tokens` added as the library adds them: an existing token gets the new flags."""
    pipeline = built(file, name)
    pipeline.add_tokens(tokens)
    return file | {"added_tokens": json.loads(pipeline.to_str())["added_tokens"]}


def _wordpiece(file: JsonObject, config: TokenizerConfig, special: dict[str, str]) -> Pipeline:
    """The steps of BertTokenizer."""
    model = models.WordPiece(
        file["model"]["vocab"], unk_token=special["unk_token"], max_input_chars_per_word=LONGEST_WORD
    )
    pipeline = Pipeline(model)
    pipeline.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=config.tokenize_chinese_chars is not False,
        strip_accents=config.strip_accents,
        lowercase=config.do_lower_case is not False,
    )
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.WordPiece(CONTINUATION)
    return pipeline


def _byte_level(file: JsonObject, config: TokenizerConfig) -> Pipeline:
    """The steps of RobertaTokenizer and GPT2Tokenizer."""
    merges = [tuple(one.split(" ") if isinstance(one, str) else one) for one in file["model"]["merges"]]
    return byte_level(models.BPE(file["model"]["vocab"], merges), leading_space=bool(config.add_prefix_space))


def _unigram(file: JsonObject, name: str, config: TokenizerConfig, special: dict[str, str]) -> Pipeline:
    """The steps of AlbertTokenizer, XLNetTokenizer, XLMRobertaTokenizer and CamembertTokenizer."""
    vocab = [(piece, score) for piece, score in file["model"]["vocab"]]
    unknown = CLASSES[name].unknown
    if unknown is None:
        unknown = next((number for number, (piece, _) in enumerate(vocab) if piece == special["unk_token"]), 0)
    steps: list[normalizers.Normalizer] = []
    of_xlnet = name == "XLNetTokenizer"  # which ignores keep_accents and add_prefix_space, and keeps case
    if of_xlnet or name == "AlbertTokenizer":
        steps += [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
        steps += [] if config.keep_accents and not of_xlnet else [normalizers.NFKD(), normalizers.StripAccents()]
        lowercase = not of_xlnet if config.do_lower_case is None else config.do_lower_case
        steps += [normalizers.Lowercase()] if lowercase else []
    cleaning = file.get("normalizer") or {}
    for step in cleaning.get("normalizers") or [cleaning]:
        if charsmap := step.get("precompiled_charsmap"):
            steps.append(normalizers.Precompiled(base64.b64decode(charsmap)))
            break
    pipeline = Pipeline(models.Unigram(vocab, unknown, False))
    pipeline.normalizer = normalizers.Sequence(steps)
    scheme = "never" if config.add_prefix_space is False and not of_xlnet else "always"
    spaces = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(BOUNDARY, scheme)]
    pipeline.pre_tokenizer, pipeline.decoder = pre_tokenizers.Sequence(spaces), decoders.Metaspace(BOUNDARY, scheme)
    return pipeline


def _frame(
    frame: str, config: TokenizerConfig, special: dict[str, str], pipeline: Pipeline
) -> processors.PostProcessor:
    """The step that sets special tokens round texts."""
    keys = ("bos_token", "eos_token") if frame == "fairseq" else ("cls_token", "sep_token")
    first, last = ((special[key], pipeline.get_vocab()[special[key]]) for key in keys)
    if frame == "xlnet":
        return frame_template(first, last, "last")
    if frame == "roberta":
        trim = config.trim_offsets is not False
        return processors.RobertaProcessing(last, first, trim, bool(config.add_prefix_space))
    between, second = (f"{last[0]} {last[0]}", ":0") if frame == "fairseq" else (last[0], ":1")
    return processors.TemplateProcessing(
        single=f"{first[0]} $A {last[0]}",
        pair=f"{first[0]} $A {between} $B{second} {last[0]}{second}",
        special_tokens=[first, last],
    )
