"""Reads, checks and makes the contents of a tokenizer.json, and the frame of special tokens.

Added tokens are found in a text before anything else splits it, as in transformers.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from bert_jax.config.model import ClassToken
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError, quoted
from bert_jax.system.json_file import JsonObject, parse_object
from bert_jax.text.charsmap import normalizer_fault
from bert_jax.text.vocabulary import (
    CONTINUATION,
    UNKNOWN,
    Content,
    Frame,
    check_numbers,
    check_spelling,
    read_file,
    read_lines,
    special_names,
)

PipelineKind = Literal["wordpiece", "unigram", "bpe", "byte_bpe", "metaspace"]
_KINDS: dict[str, PipelineKind] = {"ByteLevel": "byte_bpe", "Metaspace": "metaspace", "BertPreTokenizer": "wordpiece"}
"""Kinds of pipelines, by the type of the pre-tokenizer that splits words."""
_MODELS: dict[PipelineKind, tuple[str, ...]] = {
    "byte_bpe": ("BPE",),
    "metaspace": ("Unigram", "BPE"),
    "wordpiece": ("WordPiece",),
}
_PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder", "model")
_KEYS = ("version", "truncation", "padding", "added_tokens", *_PARTS)
_SCORE_STEP = 0.1
"""Log-probability of a new piece of a unigram model, minus that of the pieces that it replaces."""
_UNKNOWN_PENALTY = 10.0
"""Log-probability of a unigram model's least probable piece, minus that of an unknown character, in Hugging Face's
library."""
_OLD_KEYS = {"str_rep", "add_prefix_space"}
"""Keys of a Metaspace that the library reads but no longer writes."""


def read_json(path: Place, content: Content) -> JsonObject:
    """The JSON object in a vocabulary's file. Raises UsageError if the file can't be read or is damaged."""
    try:
        return parse_object(read_file(path, "a tokenizer.json", content))
    except ValueError as error:
        raise UsageError(f"{path} is no tokenizer.json ({error}); give one, a vocab.txt or a .model") from None


def pipeline_of_merges(numbers: JsonObject, path: Path) -> JsonObject:
    """A tokenizer.json like RoBERTa's, with the pieces in `numbers`, the contents of the vocab.json at `path`, and the
    merges in the merges.txt beside it.

    Raises UsageError if either file is damaged or they contradict each other.
    """
    check_numbers(numbers, path)
    check_spelling(numbers, str(path))
    merges_path = path.with_name("merges.txt")
    lines = read_lines(merges_path, "merges.txt beside the vocab.json", "a merges.txt, one merge of two pieces a line")
    merges = []
    for number, line in enumerate(lines, 1):
        if not line or (number == 1 and line.startswith("#version")):
            continue
        first, _, second = line.partition(" ")
        if not {first, second, first + second} <= numbers.keys():
            raise UsageError(
                f"{merges_path}, line {number:,}: {quoted(line)} isn't two pieces of {path.name} that make a third; "
                "put the files there that were made together"
            )
        merges.append((first, second))
    return finished(byte_level(models.BPE(numbers, merges)), special_names(numbers), str(path))


def byte_level(
    model: models.BPE, leading_space: bool = False, normalizer: normalizers.Normalizer | None = None
) -> Tokenizer:
    """The pipeline of a byte-level BPE. `leading_space`: the first word is encoded as after a space."""
    pipeline = Tokenizer(model)
    if normalizer:
        pipeline.normalizer = normalizer
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=leading_space)
    pipeline.decoder = decoders.ByteLevel()
    return pipeline


def pipeline_kind(file: JsonObject, name: str) -> PipelineKind:
    """The kind of the pipeline in `file`. Raises UsageError if the kind isn't read here."""
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
            "within words; give a tokenizer.json with these"
        )
    return kind


def built(file: JsonObject, name: str) -> Tokenizer:
    """The library's tokenizer for `file`, read from `name`.

    Raises UsageError if the library refuses it, or if it has what makes the library take all memory: a piece with a
    very large number, or an added token that the normalizer removes.
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
    except BaseException as error:  # the library raises Exception itself, and its panics are BaseException
        raise UsageError(f"{name} is no good tokenizer.json ({quoted(str(error))}); give another") from None
    for token in tokens or [] if tokenizer.normalizer else []:
        # The library (tokenizers 0.23) would find it everywhere, take all memory and abort the process.
        if token.get("normalized") and not tokenizer.normalizer.normalize_str(str(token.get("content"))):
            raise UsageError(
                f"{name}: its normalizer removes the added token {quoted(token['content'])}, which could be found "
                "everywhere; give the token normalized=false, or leave it out"
            )
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def patterns_of(part: object) -> list[str]:
    """The regular expressions in a part of a tokenizer.json."""
    if isinstance(part, dict) and isinstance(part.get("Regex"), str):
        return [part["Regex"]]
    inside = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return [pattern for each in inside if isinstance(each, dict | list) for pattern in patterns_of(each)]


def check_keys(file: JsonObject, tokenizer: Tokenizer, name: str) -> None:
    """Raises UsageError for keys of `file` that `tokenizer` doesn't know, and for added tokens that have another number
    in it.

    `tokenizer` is built from `file`.
    """
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


def _unknown(part: object, written: object, path: str) -> list[str]:
    """The keys in a part of a file that are missing from what the library makes of that part."""
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


def added_token(content: str, number: int, **flags: bool) -> JsonObject:
    """An entry of `added_tokens`. It matches its exact text anywhere, unless `flags` say otherwise."""
    default = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    return {"id": number, "content": content, **default, **flags}


def with_unigram_pieces(
    vocab: Sequence[tuple[str, float]], tokens: Sequence[str], pieces: Sequence[str]
) -> list[tuple[str, float]]:
    """The `vocab` of a unigram model, each piece with its log-probability, followed by `tokens` and `pieces`. `tokens`
    are found in a text before the model sees it. Each of `pieces` gets a score so high that its text is encoded as this
    piece alone.

    The score is that of the best split into other pieces, plus `_SCORE_STEP`. It isn't below the lowest score in
    `vocab`, since the library derives the score of unknown characters from the lowest score. So a text in which none of
    `pieces` occurs is encoded as before.
    """
    scores = dict(vocab)
    lowest = min(scores.values())
    scores |= dict.fromkeys(tokens, lowest)
    for piece in sorted(pieces, key=len):  # a new piece may be split into shorter new ones
        best = [0.0]  # score of the best split of each beginning
        for end in range(1, len(piece) + 1):
            splits = [best[begin] + scores[part] for begin in range(end) if (part := piece[begin:end]) in scores]
            if piece[end - 1] not in scores:
                splits.append(best[end - 1] + lowest - _UNKNOWN_PENALTY)
            best.append(max(splits))
        scores[piece] = max(best[-1] + _SCORE_STEP, lowest)
    return [(piece, scores[piece]) for piece in (*dict(vocab), *tokens, *pieces)]


def ordinary(file: JsonObject, name: str, special: Sequence[str], finds_special: bool = False) -> Tokenizer:
    """The library's pipeline for `file`, in which the `special` pieces in a text are ordinary characters or, with
    `finds_special`, are found.

    All other added tokens are recognized. In this pipeline the library's flag `special` marks the tokens that aren't
    recognized.
    """
    hidden = () if finds_special else special
    added = [token | {"special": token["content"] in hidden} for token in file.get("added_tokens") or []]
    absent = [piece for piece in special if piece not in {token["content"] for token in added}]
    model = file["model"]
    if model.get("type") == "Unigram":
        # The model itself would find special pieces in a text. A space before a piece prevents that: the model's
        # pieces write spaces as another character.
        vocab = [[f" {piece}" if piece in hidden else piece, score] for piece, score in model["vocab"]]
        own = {piece for piece, _ in model["vocab"]}
        added = [token for token in added if not (token["special"] and token["content"] in own)]
        model = model | {"vocab": vocab}
    tokenizer = built(file | {"model": model, "added_tokens": added}, name)
    tokenizer.encode_special_tokens = True
    if finds_special:
        tokenizer.add_tokens([AddedToken(piece, normalized=False) for piece in absent])
    return tokenizer


def finished(pipeline: Tokenizer, special: Sequence[str], name: str, class_token: ClassToken = "first") -> JsonObject:
    """The tokenizer.json of a pipeline, with its special pieces (from `special_names`) around one text or two.

    A byte-level BPE sets them as RoBERTa does, with two separators between two texts, and its mask includes the spaces
    before it. Other pipelines set them as BERT does or, with [CLS] last, as XLNet does. Raises UsageError, with `name`,
    if a special piece isn't in the model.
    """
    ids = pipeline.get_vocab()
    if missing := [piece for piece in special if piece not in ids]:
        raise UsageError(f"{name} lacks {', '.join(missing)}, which such a model has")
    *others, mask = special
    of_bytes = isinstance(pipeline.pre_tokenizer, pre_tokenizers.ByteLevel)
    pipeline.add_special_tokens([AddedToken(piece, normalized=False) for piece in others])
    pipeline.add_special_tokens([AddedToken(mask, lstrip=of_bytes, normalized=False)])
    cls, sep = ((piece, ids[piece]) for piece in special[2:4])
    if of_bytes:
        leading_space = pipeline.pre_tokenizer.add_prefix_space
        pipeline.post_processor = processors.RobertaProcessing(sep, cls, True, leading_space)
    else:
        pipeline.post_processor = frame_template(cls, sep, class_token)
    return json.loads(pipeline.to_str())


def frame_template(
    cls: tuple[str, int], sep: tuple[str, int], class_token: ClassToken, separators: int = 1
) -> processors.PostProcessor:
    """The step that sets special tokens, each a piece with its id, around texts as BERT does or, with [CLS] last, as
    XLNet does, where [CLS] is in segment 2. With two separators between the texts of a pair, as in RoBERTa, both are in
    segment 0."""
    before, after = (f"{cls[0]} ", "") if class_token == "first" else ("", f" {cls[0]}:2")
    second = ":1" if separators == 1 else ":0"
    return processors.TemplateProcessing(
        single=f"{before}$A {sep[0]}{after}",
        pair=f"{before}$A {' '.join([sep[0]] * separators)} $B{second} {sep[0]}{second}{after}",
        special_tokens=[cls, sep],
    )


def frame_of(step: object, ids: dict[str, int], name: str) -> Frame:
    """The frame of special tokens that the post-processor `step` of the tokenizer.json `name` sets.

    `ids` has the ids of the pieces. Raises UsageError for a frame that can't be used here, such as one with the second
    text first.
    """
    parts = step.get("processors") or [] if isinstance(step, dict) and step.get("type") == "Sequence" else [step]
    setting = [part for part in parts if isinstance(part, dict) and part.get("type") != "ByteLevel"]
    if len(setting) > 1:
        raise UsageError(f"{name}: two steps of its post_processor set special tokens; one is read here")
    if not setting:
        return Frame(((), ()), ((), (), ()), 0)
    [only] = setting
    if only["type"] == "TemplateProcessing":
        tokens = {key: tuple(token["ids"]) for key, token in only["special_tokens"].items()}
        set_tokens = [part["SpecialToken"]["id"] for part in only["single"] + only["pair"] if "SpecialToken" in part]
        for token in set_tokens:
            if token not in tokens or not {*tokens[token]} <= {*ids.values()}:
                raise UsageError(
                    f"{name}: its post_processor sets {quoted(token)}, which its special_tokens lack or give a number "
                    "that no piece has; give the file that its maker published"
                )
        single, _ = _parts(only["single"], tokens, "A", name)
        pair, of_first = _parts(only["pair"], tokens, "AB", name)
        between = len(pair[1])
        return Frame((single[0], single[1]), (pair[0], pair[1], pair[2]), min(of_first, between), of_first <= between)
    if "cls" not in only or "sep" not in only:
        raise UsageError(f"{name}: a post_processor of type {quoted(only.get('type'))} in a Sequence isn't read here")
    (cls, cls_id), (sep, sep_id) = only["cls"], only["sep"]
    if (ids.get(cls), ids.get(sep)) != (cls_id, sep_id):
        raise UsageError(
            f"{name}: its post_processor numbers {quoted(cls)} and {quoted(sep)} otherwise than its pieces"
        )
    return Frame.of_separators(cls_id, sep_id, 2 if only["type"] == "RobertaProcessing" else 1)


def _parts(
    template: list[JsonObject], tokens: dict[str, tuple[int, ...]], texts: str, name: str
) -> tuple[list[tuple[int, ...]], int]:
    """The ids before, between and after a template's `texts`; how many tokens after the first text are in segment 0.

    Raises UsageError for other texts, another order, or segments that don't rise from 0 to 1 after the first text.
    """
    runs: list[tuple[int, ...]] = [()]
    segments: list[int] = []
    order, last = "", 0
    for part in template:
        [(kind, value)] = part.items()
        ids = tokens[value["id"]] if kind == "SpecialToken" else (0,)
        segments += [value["type_id"]] * len(ids)
        if kind == "SpecialToken":
            runs[-1] += ids
        else:
            order, last = order + value["id"], len(segments)
            runs.append(())
    if runs[-1] and segments[-1] == 2:  # as in XLNet, the last token may have a third segment
        segments[-1] = segments[-2]
    in_order = segments == sorted(segments) and {*segments} <= {0, len(texts) - 1}
    of_first = segments.count(0) - len(runs[0]) - 1
    # The first text is in segment 0. What follows the second text is in the same segment as that text.
    if order != texts or not in_order or of_first < 0 or (texts == "AB" and {*segments[last - 1 :]} == {0, 1}):
        raise UsageError(
            f"{name}: its post_processor sets {quoted(' '.join(order))} with the segments {segments}; a frame that is "
            "read here has the first text in segment 0, and after it the second one in segment 0 or 1"
        )
    return runs, of_first
