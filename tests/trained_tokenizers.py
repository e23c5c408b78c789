"""Small tokenizers of every kind, trained on a few words."""

from functools import cache

from bert_jax.text.cleaning import Accents, Cleaning, UnicodeForm
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.vocabulary_training import train_tokenizer

WORDS = "the quick brown fox foxes jumped jumping over lazy dogs dog again Zwölf größere Übungen neue Größen".split()
TEXTS = tuple(
    f"{first} {second}, ({third}) x{first}. 中文新闻，中文报纸。"
    for first in WORDS
    for second in WORDS
    for third in WORDS[::5]
)
SIZES = {"wordpiece": 120, "unigram": 80, "bpe": 80, "byte_bpe": 320}
"""Pieces by the kind of a vocabulary."""
KINDS = tuple(SIZES)


@cache
def trained(
    kind: str,
    size: int | None = None,
    texts: tuple[str, ...] = TEXTS,
    lowercase: bool = True,
    strip_accents: Accents | None = None,
    form: UnicodeForm | None = None,
    character_coverage: float = 1.0,
    turkish: bool = False,
) -> Tokenizer:
    """A tokenizer of this kind whose vocabulary is trained on `texts`."""
    size = size or SIZES[kind]
    cleaning = Cleaning.of_training(lowercase, strip_accents, form)._replace(turkish=turkish)
    return train_tokenizer(texts, kind, size, cleaning, character_coverage)
