"""Tokenizers of transformers' classes: the same ids, special tokens and segments, or a refusal."""

import json
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

from bert_jax.batching.sequences import joined
from bert_jax.config.data import VocabularyConfig
from bert_jax.config.model import ModelConfig
from bert_jax.interchange.tokenizer_config import PublishedFolder
from bert_jax.interchange.tokenizer_files import read_tokenizer, write_tokenizer
from bert_jax.interchange.vocabulary_files import vocabulary_path
from bert_jax.pretraining.vocabulary import learned_tokenizer
from bert_jax.system.errors import UsageError
from bert_jax.text.vocabulary import MASK

SPECIAL = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFé中文'."
FAIRSEQ = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
TEXTS = [
    "Hello é World",
    "a" * 101 + " b",
    "中文 abc'def",
    "  Déjà\u200b vu.\t",
    "x [E1] bE1 E1 ①",
    "don't ﬁne 🙂",
    "ab\x00c\u00a0D",
]
JAPANESE = "今日は天気がいいので、散歩に行きました。東京の町は人がたくさんいます。猫は机の上で寝ている。これは本です。"


def wordpiece(**settings) -> Tokenizer:
    pieces = [*SPECIAL.values(), *LETTERS, *(f"##{letter}" for letter in LETTERS), "hello", "##llo", "world"]
    ids = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=200))
    tokenizer.normalizer = normalizers.BertNormalizer(**{"lowercase": False, "strip_accents": False} | settings)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def byte_level(**settings) -> Tokenizer:
    pieces = [*FAIRSEQ, *sorted(pre_tokenizers.ByteLevel.alphabet()), "he", "ll"]
    ids = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(ids, [("h", "e"), ("l", "l")], **settings))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    return tokenizer


def unigram(special=FAIRSEQ) -> Tokenizer:
    pieces = [*((piece, 0.0) for piece in special), *((letter, -4.0) for letter in "▁" + LETTERS), ("▁hello", -3.0)]
    tokenizer = Tokenizer(models.Unigram(pieces, 3, False))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokenizer


def template(tokenizer: Tokenizer, single: str, pair: str) -> Tokenizer:
    """`tokenizer` with a frame in which C and S stand for its first and its separating special token."""
    names = {"C": "[CLS]", "S": "[SEP]"} if tokenizer.token_to_id("[CLS]") is not None else {"C": "<s>", "S": "</s>"}
    written = [text.translate(str.maketrans(names)) for text in (single, pair)]
    ids = [(name, tokenizer.token_to_id(name)) for name in names.values()]
    tokenizer.post_processor = processors.TemplateProcessing(*written, special_tokens=ids)
    return tokenizer


def added(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.add_tokens([AddedToken("[E1]", special=True, lstrip=True), AddedToken("E1", single_word=True)])
    return tokenizer


BERT, GENERIC = {"tokenizer_class": "BertTokenizer"}, {"tokenizer_class": "PreTrainedTokenizerFast"}
OF_FAIRSEQ = dict(zip(SPECIAL, ["<pad>", "<unk>", "<s>", "</s>", "<mask>"], strict=True))
IDS_ALONE = {"model_input_names": ["input_ids", "attention_mask"]}
CASES = {
    "a class lower-cases": (wordpiece(), BERT),
    "a class follows its settings": (
        wordpiece(lowercase=True),
        BERT | {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False},
    ),
    "the class is the model's": (added(wordpiece()), {}),
    "a class adds": (added(wordpiece()), BERT | {"extra_special_tokens": ["b."]}),
    "the generic class follows the file": (template(wordpiece(), "C $A S", "C $A S $B:1 S:1"), GENERIC),
    "two separators": (template(wordpiece(), "C $A S", "C $A S S $B:1 S:1"), GENERIC | IDS_ALONE),
    "no frame": (byte_level(), GENERIC | OF_FAIRSEQ),
    "a frame on one side": (template(byte_level(), "$A S", "$A S $B S"), GENERIC | OF_FAIRSEQ),
    "the class token last": (template(wordpiece(), "$A S C", "$A S $B:1 S:1 C:1"), GENERIC),
    "RoBERTa's": (byte_level(), {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": False} | OF_FAIRSEQ),
    "GPT-2's": (template(byte_level(), "C $A", "C $A S $B"), {"tokenizer_class": "GPT2Tokenizer"} | OF_FAIRSEQ),
    "XLM-R's": (unigram(), {"tokenizer_class": "XLMRobertaTokenizer"}),
    "ALBERT's": (
        template(unigram(["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]), "C $A S", "C $A S $B:1 S:1"),
        {"tokenizer_class": "AlbertTokenizerFast", "keep_accents": True},
    ),
}


def folder_of(tokenizer: Tokenizer, settings: dict, folder: Path) -> Path:
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text('{"model_type": "bert"}')
    return folder


@pytest.mark.parametrize("name", CASES)
def test_ids_frames_and_segments_are_those_of_transformers(name, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(folder_of(*CASES[name], tmp_path))
    published = read_tokenizer(PublishedFolder(tmp_path), ModelConfig(vocabulary_size=len(theirs)))
    ours = published.tokenizer
    for text, other in zip(TEXTS, TEXTS[::-1], strict=True):
        ids = ours.encode(text)
        assert ids == theirs(text, add_special_tokens=False).input_ids == ours.encode_batch([text])[0], text
        assert joined([ids], ours.vocabulary, 10_000).ids == theirs(text).input_ids, text
        pair, found = (
            theirs(text, other, return_token_type_ids=True),
            joined([ids, ours.encode(other)], ours.vocabulary, 10_000),
        )
        assert found.ids == pair.input_ids, text
        second = len(found.ids) - found.first_length if ours.vocabulary.frame.segments else 0
        assert [0] * (len(found.ids) - second) + [1] * second == pair.token_type_ids
    assert published.has_segments == ("token_type_ids" in theirs.model_input_names and 1 in pair.token_type_ids)


@pytest.mark.parametrize(
    ("tokenizer", "settings", "words"),
    [
        (byte_level(dropout=0.5), GENERIC, "drops merges at random (dropout 0.5)"),
        (template(wordpiece(), "C $A S", "C $B S $A:1 S:1"), GENERIC, "post_processor sets 'B A'"),
        (template(wordpiece(), "C:1 $A:1 S:1", "C $A S $B:1 S:1"), GENERIC, "with the segments [1, 1, 1]"),
        (byte_level(), BERT, "its model is 'BPE', and BertTokenizer has a WordPiece"),
        (wordpiece(), BERT | {"split_special_tokens": True}, "split_special_tokens is True"),
        (unigram([*SPECIAL.values()]), {"tokenizer_class": "XLMRobertaTokenizer"}, "where the vocabulary has '[PAD]'"),
    ],
)  # fmt: skip
def test_what_sequences_cannot_have_is_refused_in_one_line(tokenizer, settings, words, tmp_path):
    with pytest.raises(UsageError) as refused:
        read_tokenizer(PublishedFolder(folder_of(tokenizer, settings, tmp_path)), ModelConfig(vocabulary_size=1000))
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_the_facts_say_where_they_come_from(tmp_path):
    folder_of(wordpiece(), BERT | IDS_ALONE, tmp_path)
    facts = {
        fact.name: fact for fact in read_tokenizer(PublishedFolder(tmp_path), ModelConfig(vocabulary_size=1000)).facts
    }
    assert facts["tokenizer"].known_by == "tokenizer_config.json"
    assert facts["text"].value == "lower-cased, accents dropped, Chinese characters apart"
    assert facts["text"].known_by == facts["words"].known_by == "default of BertTokenizer"
    assert "up to 100 characters" in facts["words"].value and "in segment 0" in facts["special tokens"].value


def test_a_frame_without_class_token_is_for_joining_alone(tmp_path):
    folder_of(byte_level(), GENERIC | OF_FAIRSEQ, tmp_path)
    vocabulary = read_tokenizer(PublishedFolder(tmp_path), ModelConfig(vocabulary_size=1000)).tokenizer.vocabulary
    with pytest.raises(UsageError, match="the tokenizer sets text and first second, and what was asked"):
        _ = vocabulary.separators
    with pytest.raises(UsageError, match="a text is empty"):
        joined([[]], vocabulary, 8)


@pytest.mark.parametrize("kind", ["unigram", "bpe", "wordpiece", "byte_bpe"])
def test_an_export_begins_no_word_after_a_mask(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    transformers = pytest.importorskip("transformers")
    lines = [JAPANESE[at : at + 9] for at in range(40)] * 3 + ["the river runs", "the old house runs"] * 9
    size = 265 if kind == "byte_bpe" else 90
    ours = learned_tokenizer(lines, VocabularyConfig(kind=kind, size=size))
    write_tokenizer(ours, tmp_path, 512)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in (
        *(JAPANESE[at : at + 4] + MASK + JAPANESE[at + 4 : at + 9] for at in range(20)),
        *(f"the{left}{MASK}{right}runs {MASK}" for left in ("", " ", "\u3000") for right in ("", " ", "  ")),
        f" {MASK}の本", f"{MASK} {MASK}river", f"ล\u00a0ุ{MASK}\u00a0ุ",
    ):  # fmt: skip
        masked = text.replace(MASK, theirs.mask_token)
        assert ours.encode_special(text) == theirs(masked, add_special_tokens=False).input_ids, text


def test_a_sentencepiece_model_beside_another_tokenizer_json_is_not_read(tmp_path):
    lines = ["the river runs", "the old house runs"] * 9
    write_tokenizer(learned_tokenizer(lines, VocabularyConfig(kind="unigram", size=20)), tmp_path, 512)
    assert vocabulary_path(PublishedFolder(tmp_path)).name == "tokenizer.model"
    unigram().save(str(tmp_path / "tokenizer.json"))
    assert vocabulary_path(PublishedFolder(tmp_path)).name == "tokenizer.json"
