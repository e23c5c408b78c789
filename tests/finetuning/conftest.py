"""A tokenizer of each kind, made of the same little text."""

import pytest
from trained_tokenizers import trained

from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.vocabulary import SPECIAL_PIECES, Vocabulary
from bert_jax.text.wordpiece import WordPieceTokenizer

PIECES = "the cat sees a dog ##s un ##seen in 東 京 大 学 cafe where when ? . , ' 1 ##2 2 house old new".split()
TEXT = "the cat sees a dog dogs unseen in 東京大学 東京 大学 café cafe where when ? . , ' 1 12 2 house old new " * 3
SIZES = {"unigram": 40, "bpe": 50, "byte_bpe": 300}


@pytest.fixture(scope="session")
def wordpiece() -> Tokenizer:
    return WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, *PIECES]))


@pytest.fixture(scope="session", params=["wordpiece", *SIZES])
def tokenizer(request, wordpiece) -> Tokenizer:
    """One of each kind; the sentencepiece models join the characters of 東京."""
    kind = request.param
    return wordpiece if kind == "wordpiece" else trained(kind, SIZES[kind], (TEXT,) * 5)
