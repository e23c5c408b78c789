"""What the tests of preparation share."""

import shutil
from pathlib import Path

import pytest
from conftest import stories
from prepared_sets import build, prepare_chunks

from bert_jax.config.data import DataConfig
from bert_jax.instances.prepared_data import Recipe
from bert_jax.text.cleaning import Cleaning
from bert_jax.text.vocabulary_training import train_tokenizer


@pytest.fixture(scope="session")
def tokenizer_directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer([stories(120)], "wordpiece", 150, Cleaning()).save(directory)
    return directory


@pytest.fixture(scope="session")
def recipe(corpus, tokenizer_directory):
    return Recipe(DataConfig(source=f"text:{corpus}", held_out=0.1, chunk_megabytes=0.02), 32, 7, tokenizer_directory)


@pytest.fixture
def recipe_for(tokenizer_directory, tmp_path):
    """Makes a recipe for texts, each of which is written into a file and is a source: a.txt, b.txt, ..."""

    def written(*texts, pair="next_sentence", **settings):
        paths = [tmp_path / f"{letter}.txt" for letter, _ in zip("abc", texts)]
        for path, text in zip(paths, texts, strict=True):
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        data = DataConfig(source=tuple(f"text:{path}" for path in paths), **settings)
        return Recipe(data, 32, 0, tokenizer_directory, pair)

    return written


@pytest.fixture(scope="session")
def whole(recipe, tmp_path_factory) -> Path:
    """The data set of `recipe`. Not to be changed."""
    directory = tmp_path_factory.mktemp("whole") / "set"
    build(recipe, directory)
    return directory


@pytest.fixture(scope="session")
def chunks_finished(recipe, tmp_path_factory) -> Path:
    """The data set of `recipe`, stopped when all chunks were finished. Not to be changed."""
    directory = tmp_path_factory.mktemp("stopped") / "set"
    prepare_chunks(recipe, directory)
    return directory


@pytest.fixture
def stopped(chunks_finished, tmp_path) -> Path:
    """A copy of `chunks_finished`."""
    return shutil.copytree(chunks_finished, tmp_path / "set")
