"""Prepared data sets, made and compared."""

from bert_jax.corpora.corpus import open_corpus
from bert_jax.instances.preparation import prepare


def files(directory):
    """Every file's content by its path."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def build(recipe, directory, processes=1):
    """Prepares the text that `recipe` names."""
    (made,) = prepare(open_corpus(recipe.data), {directory: recipe}, processes)
    return made
