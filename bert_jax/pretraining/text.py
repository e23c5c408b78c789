"""Opens the text of a run."""

from bert_jax.config.run import RunConfig
from bert_jax.records.corpus import Mixture, open_corpus
from bert_jax.records.curation import curated
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.files import refuse_links, remove_directory


def open_text(config: RunConfig, run: RunDirectory, with_spans: bool = True) -> Mixture:
    """Opens the corpora of `config.data` without the documents and lines that the settings drop.

    First decides which are dropped, unless the run holds this decision already. Without `with_spans`, the text has no
    marks of `data.spans`. Raises UsageError as `open_corpus` and `curated` do.
    """
    corpus = open_corpus(config.data)
    drops = None
    if config.data.is_curated:
        drops = curated(corpus, config.data, config.preparation, run.curation)
    elif run.curation.exists():  # by earlier settings
        refuse_links(run.curation.parent, run.curation)
        remove_directory(run.curation)
    if config.data.spans and not with_spans:
        corpus = open_corpus(config.data.replace(spans=None))
    corpus.drops = drops
    return corpus
