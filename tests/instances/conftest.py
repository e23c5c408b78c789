"""What the tests of preparation share."""

import pytest
from conftest import stories

from bert_jax.config.data import DataConfig
from bert_jax.instances.chunk_text import Recipe
from bert_jax.text.wordpiece import WordPieceTokenizer, train_wordpiece


@pytest.fixture(scope="session")
def tokenizer_directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tokenizer")
    vocabulary = train_wordpiece([stories(120)], 150, lowercase=True, strip_accents=None, character_coverage=1.0)
    WordPieceTokenizer(vocabulary).save(directory)
    return directory


@pytest.fixture
def recipe(corpus, tokenizer_directory):
    return Recipe(DataConfig(source=f"text:{corpus}", held_out=0.1, chunk_megabytes=0.02), 32, 7, tokenizer_directory)
