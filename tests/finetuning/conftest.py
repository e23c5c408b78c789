"""A tokenizer of each kind, made of the same little text."""

import pytest

from bert_jax.text.byte_level_bpe import train_byte_level_bpe
from bert_jax.text.cleaning import Cleaning
from bert_jax.text.sentencepiece_training import train_sentencepiece
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.vocabulary import SPECIAL_PIECES, Vocabulary
from bert_jax.text.wordpiece import WordPieceTokenizer

PIECES = "the cat sees a dog ##s un ##seen in 東 京 大 学 cafe where when ? . , ' 1 ##2 2 house old new".split()
TEXT = [
    "the cat sees a dog dogs unseen in 東京大学 東京 大学 café cafe where when ? . , ' 1 12 2 house old new " * 3
] * 5


def sentencepiece(kind: str) -> Tokenizer:
    return train_sentencepiece(TEXT, {"unigram": 40, "bpe": 50}[kind], Cleaning(), 1.0, kind)


@pytest.fixture(scope="session")
def wordpiece() -> Tokenizer:
    return WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, *PIECES]))


@pytest.fixture(scope="session", params=["wordpiece", "unigram", "bpe", "byte_bpe"])
def tokenizer(request, wordpiece) -> Tokenizer:
    """One of each kind; the sentencepiece models join the characters of 東京."""
    if request.param == "byte_bpe":
        return train_byte_level_bpe(TEXT, 300, Cleaning())
    return wordpiece if request.param == "wordpiece" else sentencepiece(request.param)
