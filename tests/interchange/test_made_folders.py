"""Folders with the edits that people's folders have give transformers' ids, or they are refused, or a line says it."""

import collections
import json
import os
import random
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from tokenizer_folders import (
    BASES,
    BLANKS,
    GOLDEN,
    MODEL_FILES,
    MODEL_TYPES,
    OF_BERT,
    OF_FAIRSEQ,
    Folder,
    byte_file,
    template,
    texts_for,
    unigram_file,
    wordpiece_file,
    wordpieces,
    write_vocabulary,
)
from tokenizers import AddedToken
from tokenizers import Tokenizer as Tokenizers

from bert_jax.batching.sequences import joined
from bert_jax.config.model import ModelConfig
from bert_jax.interchange.tokenizer_config import PublishedFolder
from bert_jax.interchange.tokenizer_files import PublishedTokenizer, read_tokenizer
from bert_jax.system import progress
from bert_jax.system.errors import UsageError
from bert_jax.text.sentencepiece import read_model
from bert_jax.text.tokenizer import Tokenizer

DIFFERENCE = "transformers"
"""Word of every line about ids that differ from those of transformers."""


class Outcome(NamedTuple):
    """What became of a folder."""

    kind: str
    """equal, refused, said, silent, or unread: transformers can't read it."""
    detail: str = ""


def difference(published: PublishedTokenizer, theirs, seed: str) -> str:
    """The first text whose ids differ, with both; empty if none does."""
    ours = published.tokenizer
    draw, texts = random.Random(seed), texts_for(seed, {*ours.vocabulary.special})
    all_ids = ours.encode_batch(texts)
    for text, ids, other, other_ids in zip(texts, all_ids, texts[::-1], all_ids[::-1], strict=True):
        if ids != (right := theirs(text, add_special_tokens=False).input_ids):
            return f"{text!r}: {shown(ours, ids)}, {shown(ours, right)}"
        if draw.random() < 0.2:
            if ours.encode(text) != ids:
                return f"in a batch {text!r}"
            if ids and other_ids and (fault := difference_of_frames(published, theirs, text, other)):
                return fault
            spaces = [draw.choice(["", " ", "  "]) for _ in range(2)]
            mask = ours.vocabulary.special[-1]
            masked = f"{text}{spaces[0]}{mask}{spaces[1]}{other}"
            if theirs.mask_token == mask:
                ids, right = ours.encode_special(masked), theirs(masked, add_special_tokens=False).input_ids
                if ids != right:
                    return f"masked {masked!r}: {shown(ours, ids)}, {shown(ours, right)}"
    return ""


def difference_of_frames(published: PublishedTokenizer, theirs, text: str, other: str) -> str:
    """How special tokens and segments of a text or a pair differ."""
    ours, vocabulary = published.tokenizer, published.tokenizer.vocabulary
    ids = ours.encode(text)
    single = joined([ids], vocabulary, 10_000).ids
    if single != (right := theirs(text).input_ids):
        return f"framed {text!r}: {shown(ours, single)}, {shown(ours, right)}"
    pair = joined([ids, ours.encode(other)], vocabulary, 10_000)
    right = theirs(text, other, return_token_type_ids=True)
    if pair.ids != right.input_ids:
        return f"pair {text!r}: {shown(ours, pair.ids)}, {shown(ours, right.input_ids)}"
    second = len(pair.ids) - pair.first_length if published.has_segments else 0
    segments = [0] * (len(pair.ids) - second) + [1] * second
    gives = "token_type_ids" in theirs.model_input_names  # XLNet's class gives segments only where it is asked for them
    found = [min(number, 1) for number in right.token_type_ids] if gives or second else segments
    return "" if segments == found else f"segments of {text!r}: {segments} {found}"


def shown(tokenizer: Tokenizer, ids: list[int]) -> str:
    pieces = tokenizer.vocabulary.pieces
    return " ".join(f"{pieces[number] if number < len(pieces) else '?'}/{number}" for number in ids[:40])


def outcome(folder: Path, seed: str, said: list[str]) -> Outcome:
    from transformers import AutoTokenizer

    try:
        theirs = AutoTokenizer.from_pretrained(folder)
        theirs("a river", "b")
    except BaseException as error:  # the library's panics are BaseException
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        theirs, reason = None, f"{type(error).__name__} {error}"
    model_type = json.loads((folder / "config.json").read_text())["model_type"]
    place = "last" if model_type == "xlnet" else "first"
    model = ModelConfig(vocabulary_size=90_000, model_type=model_type, class_token=place)
    try:
        ours = read_tokenizer(PublishedFolder(folder), model)
    except UsageError as error:
        assert "\n" not in str(error), error
        return Outcome("refused", str(error).replace(str(folder), ""))
    if theirs is None:
        return Outcome("unread", reason.replace(str(folder), "")[:150].split("\n")[0])
    try:
        fault = difference(ours, theirs, seed)
    except UsageError as error:  # a text at which the library panics, in transformers too
        return Outcome("refused", str(error))
    if not fault:
        return Outcome("equal")
    return Outcome("said" if any(DIFFERENCE in line for line in said) else "silent", fault)


@pytest.fixture
def quiet_transformers(transformers):
    """The library, which warns of none of the folders."""
    transformers.logging.set_verbosity_error()


@pytest.fixture
def lines(monkeypatch):
    """The lines that are printed."""
    found: list[str] = []
    monkeypatch.setattr(progress.console, "print", lambda text, **_: found.append(text))
    return found


def written(kind: str, path: Path, config: dict | None, form: str = "old", change=lambda model: None, **files) -> None:
    """Writes a folder of this kind, and other `files`: its vocabulary in the old file, also in a tokenizer.json (json),
    in the tokenizer.json of `files` (alone), or under another name."""
    model = write_vocabulary(kind, path)
    if kind in MODEL_FILES:
        proto = read_model(model)
        change(proto)
        model.write_bytes(proto.SerializeToString(deterministic=True))
    if form == "json":
        files["tokenizer.json"] = unigram_file(kind, model)
    if form.endswith(".model"):
        model.rename(path / form)
    if form == "alone":
        for file in path.iterdir():
            file.unlink()
    files["config.json"] = {"model_type": MODEL_TYPES.get(kind, kind)}
    if config is not None:
        files["tokenizer_config.json"] = {"tokenizer_class": BASES[kind][0], **config}
    for file, value in files.items():
        (path / file).write_text(value if isinstance(value, str) else json.dumps(value))


def with_piece(kind: int, piece: str = "<lang>"):
    return lambda model: model.pieces.add(piece=piece, score=0.0, type=kind)


def never_split(model) -> None:
    for piece in model.pieces:
        piece.type = FORCED if piece.piece in ("(", ".", "-", '"') else piece.type


def unknown(model) -> None:
    model.trainer_spec.unk_id = 7


CONTROL, FORCED = 3, 4
TABLE = {"1": {"content": "<pad>", "special": True, "normalized": False}}
SINGLE = {"__type": "AddedToken", "content": "[MASK]", "single_word": True}
ENTITY = {"__type": "AddedToken", "content": "THE"}
LINES = "\n".join([*wordpieces(cased=False), *(f"piece{number}{blank}" for number, blank in enumerate(BLANKS[:8]))])
CASED = "\n".join(wordpieces(cased=True))
PADDING = {"pad_id": 0, "pad_type_id": 0, "pad_to_multiple_of": None, "pad_token": "<pad>"}
PADDING |= {"strategy": "BatchLongest", "direction": "Right"}
PADDED = {"tokenizer.json": wordpiece_file(cased=False) | {"padding": PADDING}}
GENERIC = {"tokenizer_class": "PreTrainedTokenizerFast"}
OF_RIVER = GENERIC | {"extra_special_tokens": ["river"]}
WITHOUT_MASK = {"tokenizer.json": byte_file() | {"added_tokens": []}}
IDS_ALONE = {"model_input_names": ["input_ids", "attention_mask"]}
FOUND = [{"content": "[E1]", "special": True, "lstrip": True}, {"content": "E1", "single_word": True}]


def file_of(kind: str, *frame: str, found=(), **changes) -> dict:
    """A tokenizer.json with `changes`, the added tokens `found`, and a frame as `template` takes it."""
    value = wordpiece_file(cased=True) if kind == "bert" else byte_file()
    if kind in MODEL_FILES:
        value = unigram_file(kind, GOLDEN / MODEL_FILES[kind])
    tokenizer, special = Tokenizers.from_str(json.dumps(value)), BASES[kind][1]
    if frame:
        changes["post_processor"] = template(tokenizer.get_vocab(), special["cls_token"], special["sep_token"], *frame)
    tokenizer.add_tokens([AddedToken(**token) for token in found])
    return {"tokenizer.json": json.loads(tokenizer.to_str()) | changes}


LOWERED = {"normalizer": {"type": "Lowercase"}}
SPACED = {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}}
MAP = {"additional_special_tokens": ["<ent>", "river"]}
CAUSES = {
    "null for a space before": ("equal", "xlm-roberta", {"add_prefix_space": None}),
    "null for ALBERT's case": ("equal", "albert", {"do_lower_case": None}),
    "null for accents": ("equal", "albert", {"keep_accents": None}),
    "null for BERT's case": ("refused", "bert", {"do_lower_case": None}),
    "null for a space before bytes": ("refused", "roberta", {"add_prefix_space": None}),
    "null for a special token": ("refused", "xlm-roberta", {"bos_token": None}),
    "XLNet's settings": ("equal", "xlnet", {"do_lower_case": True, "keep_accents": True, "padding_side": "left"}),
    "no special tokens in the list": ("equal", "xlnet", {"additional_special_tokens": []}),
    "null for the list": ("equal", "xlnet", {"additional_special_tokens": None}),
    "an empty list beside forced pieces": ("equal", "albert", {"additional_special_tokens": []}, with_piece(FORCED)),
    "an empty table": ("equal", "albert", {"added_tokens_decoder": {}}, with_piece(FORCED)),
    "pieces that are never split": ("equal", "albert", {}, never_split),
    "control pieces": ("equal", "xlm-roberta", {}, with_piece(CONTROL)),
    "unk_id of the model": ("equal", "xlnet", {}, unknown),
    "unk_id beside a model": ("equal", "xlnet", {"unk_id": 5}, unknown),
    "a mask that the table lacks": ("equal", "camembert", {"mask_token": "<mask>", "added_tokens_decoder": TABLE}),
    "frames by settings": ("refused", "albert", {"add_bos_token": False}),
    "another tokenizer.json": ("refused", "xlm-roberta", {"fast_tokenizer_files": ["tokenizer.4.0.0.json"]}),
    "flags of a listed token": ("equal", "bert", {"additional_special_tokens": [ENTITY]}),
    "a mask as a single word": ("equal", "bert", {"mask_token": SINGLE}),
    "another name of the first piece": ("refused", "xlm-roberta", {"bos_token": "[BOS]"}),
    "RoBERTa's mask": ("said", "roberta", None),
    "a token that GPT-2 adds": ("said", "gpt2", {"additional_special_tokens": ["<ent>"]}),
}
OF_FILES = {
    "another name of the model": ("equal", "xlm-roberta", {}, "tokenizer.model", {}),
    "unk_id beside a tokenizer.json": ("equal", "xlnet", {"unk_id": 5}, "json", {}),
    "a list in special_tokens_map.json": ("equal", "albert", {}, "old", {"special_tokens_map.json": MAP}),
    "a list beside an empty one": (
        "equal", "bert", {"additional_special_tokens": []}, "old", {"special_tokens_map.json": MAP}
    ),
    "blanks at the ends of lines": ("equal", "bert", {}, "old", {"vocab.txt": LINES}),
    "a cased vocabulary": ("said", "bert", None, "old", {"vocab.txt": CASED}),
    "a padding token of the tokenizer.json alone": ("refused", "bert", OF_RIVER, "old", PADDED),
    "a mask that the tokenizer.json lacks": ("equal", "roberta", None, "old", WITHOUT_MASK),
    "two vocabularies": ("equal", "bert", {}, "old", {"vocab.json": "{}"}),
    "a class lower-cases": ("equal", "bert", {}, "alone", file_of("bert")),
    "a class follows its settings": (
        "equal", "bert", {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False}, "alone",
        {"tokenizer.json": wordpiece_file(cased=False)},
    ),
    "the class is the model's": (
        "equal", "bert", None, "alone", file_of("bert", found=FOUND) | {"tokenizer_config.json": {}}
    ),
    "a class adds": ("equal", "bert", {"extra_special_tokens": ["b."]}, "alone", file_of("bert", found=FOUND)),
    "the generic class follows the file": (
        "equal", "bert", GENERIC | OF_BERT, "alone", file_of("bert", "C $A S", "C $A S $B:1 S:1")
    ),
    "two separators": (
        "equal", "bert", GENERIC | OF_BERT | IDS_ALONE, "alone", file_of("bert", "C $A S", "C $A S S $B:1 S:1")
    ),
    "no frame": ("equal", "roberta", GENERIC | OF_FAIRSEQ, "alone", file_of("roberta", **SPACED)),
    "a frame on one side": (
        "equal", "roberta", GENERIC | OF_FAIRSEQ, "alone", file_of("roberta", "$A S", "$A S $B S", **SPACED)
    ),
    "the class token last": (
        "equal", "bert", GENERIC | OF_BERT, "alone", file_of("bert", "$A S C", "$A S $B:1 S:1 C:1")
    ),
    "RoBERTa's": (
        "equal", "roberta", {"add_prefix_space": False} | OF_FAIRSEQ, "alone", file_of("roberta", **SPACED)
    ),
    "GPT-2's": ("equal", "gpt2", OF_FAIRSEQ, "alone", file_of("gpt2", "C $A", "C $A S $B", **SPACED)),
    "XLM-R's": ("equal", "xlm-roberta", {}, "alone", file_of("xlm-roberta", **LOWERED)),
    "ALBERT's": (
        "equal", "albert", {"tokenizer_class": "AlbertTokenizerFast", "keep_accents": True}, "alone",
        file_of("albert", "C $A S", "C $A S $B:1 S:1", **LOWERED),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [*CAUSES, *OF_FILES])
def test_each_cause_of_other_ids(name, quiet_transformers, tmp_path, lines):
    if name in OF_FILES:
        kind, base, config, form, files = OF_FILES[name]
        written(base, tmp_path, config, form, **files)
    else:
        kind, base, config, *change = CAUSES[name]
        written(base, tmp_path, config, "old", *change)
    found = outcome(tmp_path, name, lines)
    assert found.kind == kind, (found, lines)


@pytest.mark.long
def test_no_ids_differ_in_silence(quiet_transformers, tmp_path, lines, slow):
    first = os.environ.get("BERT_JAX_FOLDERS", "0")
    kinds, silent = collections.Counter(), []
    for seed in (f"{first}.{number}" for number in range(2000 if slow else 40)):
        path = tmp_path / seed
        path.mkdir()
        lines.clear()
        Folder(seed, path)
        found = outcome(path, seed, lines)
        kinds[found.kind] += 1
        if found.kind == "silent":
            silent.append((path, found.detail))
        else:
            shutil.rmtree(path)
    print(dict(kinds))
    assert not silent, silent[:5]
