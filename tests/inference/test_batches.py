from pathlib import Path

import pytest

import bert_jax
from bert_jax.inference import batches
from bert_jax.inference.batches import token_sequences

GOLDEN = Path(__file__).parents[1] / "golden"
LONG = [
    "The old cat sees the dog. " * 2000,
    "dog\n" * 12_000,
    ("The old cat", "A quiet house " * 3000),
    ("A quiet house " * 3000, "dog " * 9000),
    "x" * 50_000,
    "x" * 30_000 + " The old cat",
    "cat " + " " * 40_000 + "sees the dog " * 20,
    "猫は犬を見る。" * 5000,
    "cat",
]
"""Texts with and without white space where they are cut, and with few pieces in many characters."""


@pytest.mark.parametrize("name", ["vectors/bert", "vectors/roberta", "relatives/albert"])
def test_the_tokens_of_a_very_long_text_are_those_of_its_beginning(name, monkeypatch):
    tokenizer = bert_jax.load(GOLDEN / name).tokenizer
    whole = list(token_sequences(LONG, tokenizer, 16))
    monkeypatch.setattr(batches, "_VERY_LONG", 10_000)
    assert list(token_sequences(LONG, tokenizer, 16)) == whole


def test_only_the_beginning_of_a_very_long_text_is_tokenized(vectors_run, monkeypatch, capsys):
    tokenizer, encoded = bert_jax.load(vectors_run.path).tokenizer, []
    encode_batch = type(tokenizer).encode_batch
    monkeypatch.setattr(
        type(tokenizer), "encode_batch", lambda self, texts: encoded.extend(texts) or encode_batch(self, texts)
    )
    rows = list(token_sequences(["The old cat sees the dog. " * 50_000, "dog"], tokenizer, 16))
    assert sum(map(len, encoded)) < 11_000 and len(rows[0].ids) == 16 and rows[0].cut
    assert "1 of 2 texts are longer than 16 tokens and were cut" in capsys.readouterr().err
