"""The first step of a run: its tokenizer."""

import json
from pathlib import Path

from bert_jax.config.run import RunConfig
from bert_jax.data.chunk_worker import is_held_out
from bert_jax.data.corpus import open_corpus
from bert_jax.data.sample import sample_documents
from bert_jax.system.errors import UsageError
from bert_jax.system.files import write_json
from bert_jax.system.progress import say, stage
from bert_jax.text.tokenizer import load_tokenizer
from bert_jax.text.vocabulary import Vocabulary
from bert_jax.text.wordpiece import WordPieceTokenizer, train_wordpiece
from bert_jax.training.run_directory import RunDirectory


def make_tokenizer(config: RunConfig, run: RunDirectory) -> WordPieceTokenizer:
    """The run's tokenizer: what is there already if the same settings made it, a given vocabulary, or a trained one."""
    marker = run.tokenizer / "origin.json"
    origin = {"vocabulary": config.vocabulary.model_dump(mode="json"), "data": config.data.model_dump(mode="json")}
    if run.under_way or (marker.exists() and json.loads(marker.read_text(encoding="utf-8")) == origin):
        return load_tokenizer(run.tokenizer)
    marker.unlink(missing_ok=True)
    if config.vocabulary.file:
        vocabulary = Vocabulary.read(Path(config.vocabulary.file))
    else:
        vocabulary = _train(config)
    tokenizer = WordPieceTokenizer(vocabulary, config.vocabulary.lowercase, config.vocabulary.strip_accents)
    tokenizer.save(run.tokenizer)
    write_json(marker, origin)
    say(f"vocabulary of {len(vocabulary):,} pieces: {run.tokenizer}")
    return tokenizer


def _train(config: RunConfig) -> Vocabulary:
    settings = config.vocabulary
    corpus = open_corpus(config.data)

    def training_documents(shown):
        for document in corpus.documents():
            shown.advance(corpus.position - shown.done)
            if not is_held_out(document, config.data.held_out):
                yield document

    with stage("Reading text for the vocabulary", corpus.total, corpus.unit) as shown:
        texts = sample_documents(training_documents(shown), settings.sample_megabytes * 1_000_000)
    if not texts:
        raise UsageError(f"data.source={config.data.source!r} holds no text; give a corpus")
    with stage(f"Training a vocabulary of {settings.size:,}", None, "pieces") as shown:
        vocabulary = train_wordpiece(
            texts,
            settings.size,
            lowercase=settings.lowercase,
            strip_accents=settings.strip_accents,
            character_coverage=settings.character_coverage,
        )
        shown.advance(len(vocabulary))
    return vocabulary
