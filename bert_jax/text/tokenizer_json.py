"""The contents of a tokenizer.json: reading and checking them, and the tokens that it adds to its model's pieces.

Added tokens are found in a text before anything else splits it, as transformers finds them.
"""

import json
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, processors

from bert_jax.system.errors import UsageError, quoted
from bert_jax.system.json_file import parse_object
from bert_jax.text.charsmap import normalizer_fault
from bert_jax.text.tokenizer_settings import Kind
from bert_jax.text.vocabulary import CONTINUATION, UNKNOWN, check_numbers, read_file

_KINDS: dict[Any, Kind] = {"ByteLevel": "byte_bpe", "Metaspace": "metaspace", "BertPreTokenizer": "wordpiece"}
"""Kinds by the type of the pre-tokenizer that splits words."""
_MODELS: dict[Kind, tuple[str, ...]] = {
    "byte_bpe": ("BPE",),
    "metaspace": ("Unigram", "BPE"),
    "wordpiece": ("WordPiece",),
}
_PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder", "model")
_KEYS = ("version", "truncation", "padding", "added_tokens", *_PARTS)
_OLD_KEYS = {"str_rep", "add_prefix_space"}
"""Keys of a Metaspace that the library reads and no longer writes."""


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a vocabulary's file. Raises UsageError if it can't be read or is damaged."""
    try:
        return parse_object(read_file(path, "a tokenizer.json"))
    except ValueError as error:
        raise UsageError(f"{path} is no tokenizer.json ({error}); give one, a vocab.txt or a .model") from None


def kind_of(file: dict[str, Any], name: str) -> Kind:
    """The kind of the pipeline in `file`. Raises UsageError for one that isn't read here."""
    if unknown := [key for key in file if key not in _KEYS]:
        raise UsageError(
            f"{name} has the part {quoted(unknown[0])}, which isn't read here; known are {', '.join(_KEYS)}"
        )
    steps = file.get("pre_tokenizer")
    steps = steps if isinstance(steps, dict) else {}
    parts = steps.get("pretokenizers") if steps.get("type") == "Sequence" else [steps]
    types = [part.get("type") for part in parts or [] if isinstance(part, dict)]
    model = file.get("model")
    kind = next((kind for step, kind in _KINDS.items() if step in types), None)
    model_type = model.get("type", "WordPiece" if kind == "wordpiece" else None) if isinstance(model, dict) else None
    if kind is None or model_type not in _MODELS[kind]:
        raise UsageError(
            f"{name}: model {quoted(model_type)} over pre-tokenizers {quoted(types)} isn't read here; give a BPE over "
            "bytes (ByteLevel), a Unigram or BPE that marks spaces (Metaspace), or a WordPiece (BertPreTokenizer)"
        )
    if dropout := file["model"].get("dropout"):
        raise UsageError(
            f"{name}: its model drops merges at random (dropout {quoted(dropout)}), so a text has other ids each time; "
            "take the dropout out of the file, as it is meant for training"
        )
    if suffix := file["model"].get("end_of_word_suffix"):
        raise UsageError(
            f"{name}: its pieces have {quoted(suffix)} at the ends of words (as HerBERT's), which isn't read here; "
            "give a BPE over bytes or one that marks spaces"
        )
    wordpieces = {"unk_token": UNKNOWN, "continuing_subword_prefix": CONTINUATION}
    if kind == "wordpiece" and any(file["model"].get(key, value) != value for key, value in wordpieces.items()):
        raise UsageError(
            f"{name}: a WordPiece that is read here has {UNKNOWN} for unknown words, and {CONTINUATION} before pieces "
            "within words"
        )
    return kind


def built(file: dict[str, Any], name: str) -> Tokenizer:
    """The library's tokenizer for `file`, read from `name`.

    Raises UsageError if the library refuses it, and for numbers of pieces so large that it would take all memory.
    """
    model, tokens = file.get("model"), file.get("added_tokens")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocab, dict):
        check_numbers(vocab, name)
    for token in tokens if isinstance(tokens, list) else []:
        if isinstance(token, dict) and isinstance(token.get("id"), int):
            check_numbers({str(token.get("content")): token["id"]}, name)
    if fault := normalizer_fault(file.get("normalizer")):
        raise UsageError(f"{name}: its precompiled_charsmap is damaged ({fault}); fetch the file again")
    try:
        tokenizer = Tokenizer.from_str(json.dumps(file))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library raises Exception itself, and a panic in it is a BaseException
        raise UsageError(f"{name} is no good tokenizer.json ({quoted(str(error))}); give another") from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def check(file: dict[str, Any], tokenizer: Tokenizer, name: str) -> None:
    """Raises UsageError for keys of `file` that `tokenizer`, built from it, doesn't know, and for wrong numbers."""
    written = json.loads(tokenizer.to_str())
    unknown = [key for part in _PARTS for key in _unknown(file.get(part), written[part], part)]
    if unknown:
        raise UsageError(f"{name} has {quoted(unknown[0])}, which isn't read here; its ids may depend on it")
    for token in file.get("added_tokens") or []:
        number = tokenizer.token_to_id(token["content"])
        if number != token["id"]:
            raise UsageError(
                f"{name}: the added token {quoted(token['content'])} has the number {quoted(token['id'])} and its "
                f"place is {number}; added tokens are numbered on from the model's pieces"
            )


def _unknown(part: Any, written: Any, path: str) -> list[str]:
    """The keys in a part of a file that are not in what the library makes of that part."""
    if path in ("model.vocab", "model.merges"):
        return []
    if isinstance(part, list) and isinstance(written, list):
        return [key for one, other in zip(part, written, strict=False) for key in _unknown(one, other, path)]
    if not isinstance(part, dict) or not isinstance(written, dict):
        return []
    new = [f"{path}.{key}" for key in part if key not in written and key not in _OLD_KEYS]
    return new + [
        key for name in part.keys() & written.keys() for key in _unknown(part[name], written[name], f"{path}.{name}")
    ]


def added_token(content: str, number: int, **flags: bool) -> dict[str, Any]:
    """An entry of `added_tokens`: found exactly as it is written, anywhere, unless `flags` say otherwise."""
    default = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    return {"id": number, "content": content, **default, **flags}


def ordinary(file: dict[str, Any], name: str, hidden: Container[str], found: str | None = None) -> Tokenizer:
    """The library's pipeline for `file`, in which the special pieces `hidden`, except `found`, are ordinary characters.

    All other added tokens are recognized. The library's flag `special` here marks those that aren't.
    """
    added = [
        token | {"special": token["content"] in hidden and token["content"] != found}
        for token in file.get("added_tokens") or []
    ]
    is_added = any(token["content"] == found for token in added)
    model = file["model"]
    if model.get("type") == "Unigram":
        # The model itself would find them in a text. A piece with a space it doesn't: spaces are written otherwise.
        vocab = [
            [f" {piece}" if piece in hidden and piece != found else piece, score] for piece, score in model["vocab"]
        ]
        own = {piece for piece, _ in model["vocab"]}
        added = [token for token in added if not (token["special"] and token["content"] in own)]
        model = model | {"vocab": vocab}
    tokenizer = built(file | {"model": model, "added_tokens": added}, name)
    tokenizer.encode_special_tokens = True
    if found and not is_added:
        tokenizer.add_tokens([AddedToken(found, normalized=False)])
    return tokenizer


def finished(
    pipeline: Tokenizer, special: Sequence[str], name: str, separators: int = 1, mask_takes_space: bool = True
) -> dict[str, Any]:
    """The tokenizer.json of a pipeline, with its special pieces, which it sets round one text or two.

    With one of `separators` between two texts, the second is in segment 1, with two in segment 0. `mask_takes_space`:
    the mask includes the spaces before it. A step of the pipeline that sets special pieces stays. Raises UsageError,
    with `name`, if a special piece isn't in the model.
    """
    if missing := [piece for piece in special if pipeline.token_to_id(piece) is None]:
        raise UsageError(f"{name} lacks {', '.join(missing)}, which such a model has")
    *others, mask = special
    pipeline.add_special_tokens([AddedToken(piece, normalized=False) for piece in others])
    pipeline.add_special_tokens([AddedToken(mask, lstrip=mask_takes_space, normalized=False)])
    if pipeline.post_processor is None:
        _, _, cls, sep, _ = special
        second = ":1" if separators == 1 else ":0"
        pipeline.post_processor = processors.TemplateProcessing(
            single=f"{cls} $A {sep}",
            pair=" ".join([cls, "$A", *[sep] * separators, f"$B{second}", f"{sep}{second}"]),
            special_tokens=[(piece, pipeline.token_to_id(piece)) for piece in (cls, sep)],
        )
    return json.loads(pipeline.to_str())
