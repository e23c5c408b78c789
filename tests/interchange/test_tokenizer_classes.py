"""Tokenizers of transformers' classes; test_made_folders.py compares their ids, special tokens and segments."""

import json
from pathlib import Path

import pytest
from tokenizer_folders import GOLDEN, OF_FAIRSEQ, byte_file, unigram_file, wordpiece_file

from bert_jax.batching.sequences import joined
from bert_jax.config.data import VocabularyConfig
from bert_jax.config.model import ModelConfig
from bert_jax.interchange.tokenizer_config import PublishedFolder
from bert_jax.interchange.tokenizer_files import read_tokenizer, write_tokenizer
from bert_jax.interchange.vocabulary_files import vocabulary_path
from bert_jax.pretraining.vocabulary import learned_tokenizer
from bert_jax.system.errors import UsageError
from bert_jax.text.vocabulary import MASK

JAPANESE = "今日は天気がいいので、散歩に行きました。東京の町は人がたくさんいます。猫は机の上で寝ている。これは本です。"


def folder_of(file: dict, settings: dict, folder: Path) -> PublishedFolder:
    (folder / "tokenizer.json").write_text(json.dumps(file))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return PublishedFolder(folder)


def test_the_facts_say_where_they_come_from(tmp_path):
    settings = {"tokenizer_class": "BertTokenizer", "model_input_names": ["input_ids", "attention_mask"]}
    folder = folder_of(wordpiece_file(cased=True), settings, tmp_path)
    facts = {fact.name: fact for fact in read_tokenizer(folder, ModelConfig(vocabulary_size=1000)).facts}
    assert facts["tokenizer"].known_by == "tokenizer_config.json"
    assert facts["text"].value == "lower-cased, accents dropped, Chinese characters apart"
    assert facts["text"].known_by == facts["words"].known_by == "default of BertTokenizer"
    assert "up to 100 characters" in facts["words"].value and "in segment 0" in facts["special tokens"].value


def test_a_frame_without_class_token_is_for_joining_alone(tmp_path):
    folder = folder_of(byte_file(), {"tokenizer_class": "PreTrainedTokenizerFast"} | OF_FAIRSEQ, tmp_path)
    vocabulary = read_tokenizer(folder, ModelConfig(vocabulary_size=1000)).tokenizer.vocabulary
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
    (tmp_path / "tokenizer.json").write_text(json.dumps(unigram_file("albert", GOLDEN / "spiece.model")))
    assert vocabulary_path(PublishedFolder(tmp_path)).name == "tokenizer.json"
