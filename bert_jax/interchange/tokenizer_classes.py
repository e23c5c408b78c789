"""Tokenizer classes of transformers: the steps that each builds from its settings, whatever its tokenizer.json says."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Pipeline

from bert_jax.system.errors import UsageError, quoted
from bert_jax.system.json_file import Shape
from bert_jax.text.tokenizer_json import built
from bert_jax.text.vocabulary import BOUNDARY, CONTINUATION

GENERIC = "TokenizersBackend"
"""The class that follows a tokenizer.json; its older names are in `GENERIC_NAMES`."""
GENERIC_NAMES = (GENERIC, "PreTrainedTokenizer")
LONGEST_WORD = 100
"""Most characters of a word in BertTokenizer; the original BERT has 200."""


class ClassSettings(Shape):
    """The settings from which the classes build their steps; None is the default of a class."""

    do_lower_case: bool | None = None
    strip_accents: bool | None = None
    keep_accents: bool | None = None
    tokenize_chinese_chars: bool | None = None
    add_prefix_space: bool | None = None
    trim_offsets: bool | None = None


class Piece(Shape):
    """An added token as tokenizer_config.json describes it."""

    content: str
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    special: bool = False
    normalized: bool | None = None
    """None: unless it is special."""

    def added(self, special: bool = False) -> AddedToken:
        """The token for the library; `special` makes it one."""
        flags = self.model_dump(exclude={"content", "normalized"}) | {"special": self.special or special}
        normalized = not flags["special"] if self.normalized is None else self.normalized
        return AddedToken(self.content, normalized=normalized, **flags)


class TokenizerClass(NamedTuple):
    """A class, with the defaults of what a folder's settings may leave out."""

    model: str | None
    """The type of its model in a tokenizer.json; None: any."""
    tokens: dict[str, str]
    """Its special tokens by their keys in tokenizer_config.json, in the order in which they are added."""
    segments: bool = False
    """Whether token_type_ids are among its model_input_names."""


NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_OF_BERT = dict(zip(NAMES[2:], ("[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"), strict=True))
_OF_FAIRSEQ = dict(zip(NAMES, ("<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>"), strict=True))
_OF_ALBERT = dict(zip(NAMES, ("[CLS]", "[SEP]", "<unk>", "[SEP]", "<pad>", "[CLS]", "[MASK]"), strict=True))
_END = "<|endoftext|>"
CLASSES = {
    "BertTokenizer": TokenizerClass("WordPiece", _OF_BERT, segments=True),
    "ElectraTokenizer": TokenizerClass("WordPiece", _OF_BERT, segments=True),
    "DistilBertTokenizer": TokenizerClass("WordPiece", _OF_BERT),
    "RobertaTokenizer": TokenizerClass("BPE", _OF_FAIRSEQ),
    # A RoBERTa's files may name GPT-2's class, whose pieces are the same.
    "GPT2Tokenizer": TokenizerClass("BPE", dict.fromkeys(NAMES[:3], _END)),
    "XLMRobertaTokenizer": TokenizerClass("Unigram", _OF_FAIRSEQ),
    "CamembertTokenizer": TokenizerClass("Unigram", _OF_FAIRSEQ),
    "AlbertTokenizer": TokenizerClass("Unigram", _OF_ALBERT),
    **dict.fromkeys(GENERIC_NAMES, TokenizerClass(None, {})),
}
"""By name, without the `Fast` at the end of some."""
OF_MODELS = {
    **dict.fromkeys(("bert", "electra", "ernie"), "BertTokenizer"),
    **{"roberta": "RobertaTokenizer", "xlm-roberta": "XLMRobertaTokenizer", "camembert": "CamembertTokenizer"},
    **{"albert": "AlbertTokenizer", "modernbert": GENERIC},
}
"""The class for a model_type of config.json where no file names one."""


def with_class(
    file: dict[str, Any],
    name: str,
    settings: ClassSettings,
    special: Mapping[str, Piece],
    tokens: list[AddedToken],
    path: Path,
) -> dict[str, Any]:
    """The tokenizer.json that the class `name` makes of `file`, read from `path`, with `tokens` added in their order.

    `special` are special tokens by their keys. Raises UsageError if `file` has another model than the class.
    """
    own = CLASSES[name]
    if own.model is None:
        return with_tokens(file, tokens, str(path)) if tokens else file
    if file["model"].get("type", own.model) != own.model:
        raise UsageError(
            f"{path}: its model is {quoted(file['model'].get('type'))}, and {name} has a {own.model}; set "
            f"tokenizer_class in tokenizer_config.json to PreTrainedTokenizerFast to follow {path.name}"
        )
    named = {key: piece.content for key, piece in special.items()}
    pipeline = _STEPS[own.model](file, name, settings, named)
    pipeline.add_tokens(tokens)
    if step := _post_processor(name, settings, named, pipeline):
        pipeline.post_processor = step
    made = json.loads(pipeline.to_str())
    if name in ("GPT2Tokenizer", "AlbertTokenizer") and file.get("post_processor"):
        made["post_processor"] = file["post_processor"]  # these two keep the file's
    return made


def with_tokens(file: dict[str, Any], tokens: list[AddedToken], name: str) -> dict[str, Any]:
    """`file` with `tokens` added as the library adds them: one that is there gets the new flags."""
    pipeline = built(file, name)
    pipeline.add_tokens(tokens)
    return file | {"added_tokens": json.loads(pipeline.to_str())["added_tokens"]}


def _wordpiece(file: dict[str, Any], name: str, settings: ClassSettings, named: dict[str, str]) -> Pipeline:
    """The steps of BertTokenizer."""
    model = models.WordPiece(
        file["model"]["vocab"], unk_token=named["unk_token"], max_input_chars_per_word=LONGEST_WORD
    )
    pipeline = Pipeline(model)
    pipeline.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.tokenize_chinese_chars is not False,
        strip_accents=settings.strip_accents,
        lowercase=settings.do_lower_case is not False,
    )
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.WordPiece(CONTINUATION)
    return pipeline


def _byte_level(file: dict[str, Any], name: str, settings: ClassSettings, named: dict[str, str]) -> Pipeline:
    """The steps of RobertaTokenizer and GPT2Tokenizer."""
    merges = [tuple(one.split(" ") if isinstance(one, str) else one) for one in file["model"]["merges"]]
    pipeline = Pipeline(models.BPE(file["model"]["vocab"], merges))
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(settings.add_prefix_space))
    pipeline.decoder = decoders.ByteLevel()
    return pipeline


def _unigram(file: dict[str, Any], name: str, settings: ClassSettings, named: dict[str, str]) -> Pipeline:
    """The steps of AlbertTokenizer, XLMRobertaTokenizer and CamembertTokenizer."""
    vocab = [(piece, score) for piece, score in file["model"]["vocab"]]
    steps: list[normalizers.Normalizer] = []
    unknown = {"AlbertTokenizer": 1, "XLMRobertaTokenizer": 3}.get(name, 0)
    if name == "CamembertTokenizer":
        unknown = [*(piece for piece, _ in vocab), named["unk_token"]].index(named["unk_token"]) % len(vocab)
    if name == "AlbertTokenizer":
        steps += [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
        steps += [] if settings.keep_accents else [normalizers.NFKD(), normalizers.StripAccents()]
        steps += [] if settings.do_lower_case is False else [normalizers.Lowercase()]
    cleaning = file.get("normalizer") or {}
    for step in cleaning.get("normalizers") or [cleaning]:
        if charsmap := step.get("precompiled_charsmap"):
            steps.append(normalizers.Precompiled(base64.b64decode(charsmap)))
            break
    pipeline = Pipeline(models.Unigram(vocab, unknown, False))
    pipeline.normalizer = normalizers.Sequence(steps)
    scheme = "never" if settings.add_prefix_space is False else "always"
    spaces = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(BOUNDARY, scheme)]
    pipeline.pre_tokenizer, pipeline.decoder = pre_tokenizers.Sequence(spaces), decoders.Metaspace(BOUNDARY, scheme)
    return pipeline


_STEPS = {"WordPiece": _wordpiece, "BPE": _byte_level, "Unigram": _unigram}


def _post_processor(
    name: str, settings: ClassSettings, named: dict[str, str], pipeline: Pipeline
) -> processors.PostProcessor | None:
    """The step that sets special tokens; None for none."""
    if name == "GPT2Tokenizer":
        return None
    of_fairseq = name in ("XLMRobertaTokenizer", "CamembertTokenizer")
    keys = ("bos_token", "eos_token") if of_fairseq else ("cls_token", "sep_token")
    first, last = ((named[key], pipeline.get_vocab()[named[key]]) for key in keys)
    if name == "RobertaTokenizer":
        trim = settings.trim_offsets is not False
        return processors.RobertaProcessing(last, first, trim, bool(settings.add_prefix_space))
    between, second = (f"{last[0]} {last[0]}", ":0") if of_fairseq else (last[0], ":1")
    return processors.TemplateProcessing(
        single=f"{first[0]} $A {last[0]}",
        pair=f"{first[0]} $A {between} $B{second} {last[0]}{second}",
        special_tokens=[first, last],
    )
