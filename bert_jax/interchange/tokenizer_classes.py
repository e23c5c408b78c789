"""Tokenizer classes of transformers, and the steps that each class builds from its settings, regardless of its
tokenizer.json."""

import base64
import json
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Pipeline

from bert_jax.interchange.tokenizer_config import SPECIAL_NAMES, TOKEN_KEYS, Piece, TokenizerConfig
from bert_jax.system.errors import UsageError, quoted
from bert_jax.system.json_file import JsonObject
from bert_jax.text.pipeline import TOKENIZER_CONFIG, Tokenizer
from bert_jax.text.tokenizer_json import built, byte_level, frame_template
from bert_jax.text.vocabulary import BOUNDARY, CONTINUATION

GENERIC = "TokenizersBackend"
"""Name of the class that follows a tokenizer.json; its older names are in `GENERIC_NAMES`."""
GENERIC_NAMES = (GENERIC, "PreTrainedTokenizer")
LONGEST_WORD = 100
"""Most characters of a word in BertTokenizer; the original BERT has 200."""


class Numbering(NamedTuple):
    """How a tokenizer class numbers the pieces of a sentencepiece model."""

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
    """Its special tokens by their keys in tokenizer_config.json."""
    file: str | None = None
    """Its vocabulary file, which transformers reads if there is no tokenizer.json."""
    listed: tuple[str, ...] = ()
    """Further special tokens, unless a file has a list of them."""
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
_OF_DEBERTA = dict(zip(TOKEN_KEYS, ("[CLS]", "[SEP]", "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"), strict=True))
_OF_GPT2 = dict.fromkeys(TOKEN_KEYS[:3], "<|endoftext|>")
_MASK_LAST = {"<mask>": 0.0}
_NUMBERING_OF_XLMR = Numbering(dict.fromkeys(("<s>", "<pad>", "</s>", "<unk>"), 0.0), 3, _MASK_LAST)
_NUMBERING_OF_CAMEMBERT = Numbering(
    {"<s>NOTUSED": 0.0, "<pad>": 0.0, "</s>NOTUSED": 0.0, "<unk>": 0.0, "<unk>NOTUSED": -100.0}, 1, _MASK_LAST
)
_NOT_USED = ("<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED")
_BYTES, _FAIRSEQ_MODEL, _MODEL = "vocab.json", "sentencepiece.bpe.model", "spiece.model"
CLASSES = {
    "BertTokenizer": TokenizerClass("WordPiece", _OF_BERT, "vocab.txt", frame="bert", segments=True),
    "ElectraTokenizer": TokenizerClass("WordPiece", _OF_BERT, "vocab.txt", frame="bert", segments=True),
    "DistilBertTokenizer": TokenizerClass("WordPiece", _OF_BERT, "vocab.txt", frame="bert"),
    "MPNetTokenizer": TokenizerClass("WordPiece", _OF_FAIRSEQ | {"unk_token": "[UNK]"}, "vocab.txt", frame="roberta"),
    "RobertaTokenizer": TokenizerClass("BPE", _OF_FAIRSEQ, _BYTES, frame="roberta"),
    # Files of RoBERTa may name GPT-2's class, which splits text into the same pieces.
    "GPT2Tokenizer": TokenizerClass("BPE", _OF_GPT2, _BYTES, follows_frame=True),
    "XLMRobertaTokenizer": TokenizerClass(
        "Unigram", _OF_FAIRSEQ, _FAIRSEQ_MODEL, frame="fairseq", numbering=_NUMBERING_OF_XLMR, unknown=3
    ),
    "CamembertTokenizer": TokenizerClass(
        "Unigram", _OF_FAIRSEQ, _FAIRSEQ_MODEL, _NOT_USED, frame="fairseq", numbering=_NUMBERING_OF_CAMEMBERT
    ),
    "AlbertTokenizer": TokenizerClass(
        "Unigram", _OF_ALBERT, _MODEL, frame="bert", follows_frame=True, numbering=Numbering(), unknown=1
    ),
    "DebertaV2Tokenizer": TokenizerClass(
        "Unigram", _OF_DEBERTA, "spm.model", frame="bert", segments=True, numbering=Numbering()
    ),
    # transformers 5 gives token_type_ids only where it is asked for them; the original XLNet always had segments.
    "XLNetTokenizer": TokenizerClass(
        "Unigram", _OF_XLNET, _MODEL, ("<eop>", "<eod>"), frame="xlnet", segments=True, numbering=Numbering()
    ),
    **dict.fromkeys(GENERIC_NAMES, TokenizerClass(None, {})),
}
"""The classes by name, without a `Fast` at its end."""


def special_pieces(class_name: str) -> tuple[str, ...]:
    """The special pieces of a WordPiece class in the order of SPECIAL_PIECES; BERT's for any other class."""
    own = CLASSES[class_name]
    return tuple((own.tokens if own.model == "WordPiece" else _OF_BERT)[key] for key in SPECIAL_NAMES)


def special_tokens(given: dict[str, Any], class_name: str, path: Path) -> tuple[dict[str, Piece], list[Piece]]:
    """The special tokens that the class adds, in their order: those with keys, and those of lists. `given`: the special
    tokens in the files beside `path`. Raises UsageError if a token that the class needs is null."""
    own = CLASSES[class_name]
    tokens: dict[str, Any] = dict.fromkeys(TOKEN_KEYS)
    tokens |= {key: Piece.of_text(piece) for key, piece in own.tokens.items()}
    tokens |= {key: piece for key, piece in given.items() if not isinstance(piece, list)}
    for key in (*SPECIAL_NAMES, *(TOKEN_KEYS[:2] if own.frame == "fairseq" else ())):
        if own.frame and tokens[key] is None:
            raise UsageError(f"{path}: {key} is null, and {class_name} needs it; write {own.tokens[key]!r}")
    # RoBERTa's mask token includes the space before it, which transformers 5 forgets where no file describes the token.
    described = path.is_file() or path.with_name(Tokenizer.file_name).is_file()
    strips = class_name == "RobertaTokenizer" and not described and "mask_token" not in given
    if (strips or class_name in ("CamembertTokenizer", "XLNetTokenizer", "MPNetTokenizer")) and tokens[
        "mask_token"
    ].written == "text":
        tokens["mask_token"] = tokens["mask_token"].model_copy(update={"lstrip": True})
    older = given.get("additional_special_tokens")
    older = [Piece.of_text(piece) for piece in own.listed] if older is None else older
    return {key: piece for key, piece in tokens.items() if piece}, given.get("extra_special_tokens", older) or []


def with_class(
    file: JsonObject, name: str, config: TokenizerConfig, named: dict[str, Piece], tokens: list[Piece], path: Path
) -> tuple[JsonObject, Pipeline | None]:
    """The tokenizer.json that the class `name` makes of `file`, read from `path`, with `tokens` added in their order;
    and the library's pipeline that wrote it, or None if the class follows `file`.

    `named` are special tokens by their keys. Raises UsageError if the model in `file` isn't that of the class.
    """
    own = CLASSES[name]
    if own.model is None:
        return with_tokens(file, tokens, named, str(path)) if tokens else file, None
    if file["model"].get("type", own.model) != own.model:
        raise UsageError(
            f"{path}: its model is {quoted(file['model'].get('type'))}, and {name} has a {own.model}; set "
            f"tokenizer_class in tokenizer_config.json to PreTrainedTokenizerFast to follow {path.name}"
        )
    for key in ("add_bos_token", "add_eos_token"):
        replaces = own.follows_frame and key in config.unknown and (own.frame or config.unknown[key])
        if replaces and path.name != Tokenizer.file_name:
            raise UsageError(
                f"{path.parent / TOKENIZER_CONFIG}: {key} is {quoted(config.unknown[key])}, which replaces the special "
                f"tokens that {name} sets round texts; take the key out"
            )
    for key in () if own.model == "Unigram" else ("do_lower_case", "tokenize_chinese_chars", "add_prefix_space"):
        if key in config.model_fields_set and getattr(config, key) is None and (own.model == "BPE") == (key[0] == "a"):
            raise UsageError(f"{path.parent / TOKENIZER_CONFIG}: {key} is null; write true or false, or take it out")
    special = {key: piece.content for key, piece in named.items()}
    if own.model == "WordPiece":
        pipeline = _wordpiece(file, config, special)
    elif own.model == "BPE":
        pipeline = _byte_level(file, config)
    elif name == "DebertaV2Tokenizer":
        pipeline = _deberta(file, config, special)
    else:
        pipeline = _unigram(file, name, config, special)
    pipeline.add_tokens(_of_library(tokens, named))
    if own.frame:
        pipeline.post_processor = _frame(own.frame, config, special, pipeline)
    built_file = json.loads(pipeline.to_str())
    if own.follows_frame and file.get("post_processor"):
        built_file["post_processor"] = file["post_processor"]
    return built_file, pipeline


def with_tokens(file: JsonObject, tokens: list[Piece], named: dict[str, Piece], name: str) -> JsonObject:
    """`file` with `tokens` added as the library adds them: an existing token gets the new flags."""
    pipeline = built(file, name)
    pipeline.add_tokens(_of_library(tokens, named))
    return file | {"added_tokens": json.loads(pipeline.to_str())["added_tokens"]}


def _of_library(tokens: list[Piece], named: dict[str, Piece]) -> list[AddedToken]:
    texts = {piece.content for piece in named.values()}
    return [piece.added(special=piece.content in texts) for piece in tokens]


def _wordpiece(file: JsonObject, config: TokenizerConfig, special: dict[str, str]) -> Pipeline:
    """The steps of BertTokenizer."""
    model = models.WordPiece(
        file["model"]["vocab"], unk_token=special["unk_token"], max_input_chars_per_word=LONGEST_WORD
    )
    pipeline = Pipeline(model)
    pipeline.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=config.switch("tokenize_chinese_chars", True),
        strip_accents=config.strip_accents,
        lowercase=config.switch("do_lower_case", True),
    )
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.WordPiece(CONTINUATION)
    return pipeline


def _byte_level(file: JsonObject, config: TokenizerConfig) -> Pipeline:
    """The steps of RobertaTokenizer and GPT2Tokenizer."""
    merges = [tuple(one.split(" ") if isinstance(one, str) else one) for one in file["model"]["merges"]]
    return byte_level(models.BPE(file["model"]["vocab"], merges), config.switch("add_prefix_space", False))


def _unigram(file: JsonObject, name: str, config: TokenizerConfig, special: dict[str, str]) -> Pipeline:
    """The steps of AlbertTokenizer, XLNetTokenizer, XLMRobertaTokenizer and CamembertTokenizer."""
    vocab = [(piece, score) for piece, score in file["model"]["vocab"]]
    of_xlnet = name == "XLNetTokenizer"  # which ignores keep_accents and add_prefix_space, and keeps case
    unknown = config.unk_id if of_xlnet else CLASSES[name].unknown
    if of_xlnet and not (unknown is not None and 0 <= unknown < len(vocab)):
        raise UsageError(f"unk_id of the tokenizer is {quoted(unknown)}; expected the number of a piece, mostly 0")
    if unknown is None:
        unknown = next((number for number, (piece, _) in enumerate(vocab) if piece == special["unk_token"]), 0)
    steps: list[normalizers.Normalizer] = []
    if of_xlnet or name == "AlbertTokenizer":
        steps += [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
        keeps = config.switch("keep_accents", False) and not of_xlnet
        steps += [] if keeps else [normalizers.NFKD(), normalizers.StripAccents()]
        steps += [normalizers.Lowercase()] if config.switch("do_lower_case", not of_xlnet) else []
    cleaning = file.get("normalizer") or {}
    for step in cleaning.get("normalizers") or [cleaning]:
        if charsmap := step.get("precompiled_charsmap"):
            steps.append(normalizers.Precompiled(base64.b64decode(charsmap)))
            break
    pipeline = Pipeline(models.Unigram(vocab, unknown, False))
    pipeline.normalizer = normalizers.Sequence(steps)
    scheme = "always" if of_xlnet or config.switch("add_prefix_space", True) else "never"
    spaces = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(BOUNDARY, scheme)]
    pipeline.pre_tokenizer, pipeline.decoder = pre_tokenizers.Sequence(spaces), decoders.Metaspace(BOUNDARY, scheme)
    return pipeline


def _deberta(file: JsonObject, config: TokenizerConfig, special: dict[str, str]) -> Pipeline:
    """The steps of DebertaV2Tokenizer, which leaves out the cleaning of its sentencepiece model."""
    vocab = [(piece, score) for piece, score in file["model"]["vocab"]]
    unknown = (special["unk_token"], 0.0)
    pipeline = Pipeline(models.Unigram(vocab, vocab.index(unknown) if unknown in vocab else 1, False))
    steps: list[normalizers.Normalizer] = [normalizers.Lowercase()] if config.switch("do_lower_case", False) else []
    steps += [normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "), normalizers.NFC()]
    pipeline.normalizer = normalizers.Sequence([*steps, normalizers.Strip(left=False, right=True)])
    scheme = "always" if config.switch("add_prefix_space", True) else "first"
    divided: list[pre_tokenizers.PreTokenizer] = []
    if config.switch("split_by_punct", False):
        divided.append(pre_tokenizers.Punctuation("isolated"))
    pipeline.pre_tokenizer = pre_tokenizers.Sequence([*divided, pre_tokenizers.Metaspace(BOUNDARY, scheme)])
    pipeline.decoder = decoders.Metaspace(BOUNDARY, scheme)
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
        trim, leading_space = config.switch("trim_offsets", True), config.switch("add_prefix_space", False)
        return processors.RobertaProcessing(last, first, trim, leading_space)
    return frame_template(first, last, "first", separators=2 if frame == "fairseq" else 1)
