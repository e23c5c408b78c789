"""The first step of a run: makes its tokenizer."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from bert_jax.config.data import VocabularyConfig
from bert_jax.config.language import has_turkish_case
from bert_jax.config.model import ModelConfig
from bert_jax.config.run import RunConfig
from bert_jax.instances.held_out import training_documents
from bert_jax.interchange.tokenizer_config import ADDED_TOKENS, SPECIAL_TOKENS_MAP, PublishedFolder
from bert_jax.interchange.tokenizer_files import read_tokenizer
from bert_jax.interchange.vocabulary_files import VOCABULARIES
from bert_jax.pretraining.mixture import open_text
from bert_jax.records.corpus import text_content
from bert_jax.records.sample import sample_documents, sample_mixture
from bert_jax.run.opened_models import OpenedModels
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.bucket import Place, place_of
from bert_jax.system.content import content_hash
from bert_jax.system.copies import fetched
from bert_jax.system.errors import UsageError
from bert_jax.system.json_file import read_object
from bert_jax.system.progress import say, stage, warn
from bert_jax.system.reading import Reading
from bert_jax.text.cleaning import Cleaning
from bert_jax.text.pipeline import TOKENIZER_CONFIG
from bert_jax.text.tokenizer import Tokenizer, load_tokenizer, read_vocabulary_file, tokenizer_directory
from bert_jax.text.vocabulary import MOST_PIECES
from bert_jax.text.vocabulary_training import share_of_long_words, train_tokenizer
from bert_jax.text.wordpiece import WordPieceTokenizer

_FILES = {*VOCABULARIES, "merges.txt", ADDED_TOKENS, SPECIAL_TOKENS_MAP}
"""Names of files that a published tokenizer is read from, beside those that begin with tokenizer or vocab."""
_MOST_CUT = 0.01
"""Largest share of characters in words that are too long for a WordPiece tokenizer; above it, a warning is printed."""
_FEW_CAPITALS = 1e-3
"""A WordPiece vocabulary is lower-cased if its text has fewer capitals for each small letter: by default the rarest
0.01% of the characters get no piece (`vocabulary.character_coverage`). Text of ten languages had 0.017 to 0.088."""
_TEXTS_LOOKED_AT = 200
"""About the number of texts in which capitals are counted."""


def make_tokenizer(
    config: RunConfig, run: RunDirectory, existing: Tokenizer | None = None, initial: Tokenizer | None = None
) -> Tokenizer:
    """The run's tokenizer: the saved one if settings and text are unchanged; otherwise `existing`, which the settings
    name, or a new one, trained on the text. With `vocabulary.exchange`, it sets special tokens around pairs as the
    tokenizer of the `initial` model does. Raises UsageError if the text can't give a vocabulary."""
    if run.under_way:
        return run.files.tokenizer
    origin = {
        "vocabulary": config.vocabulary.model_dump(mode="json"),
        "data": config.data.model_dump(mode="json"),
        "init": config.init,
        "read": _content(config),
    }
    if config.teacher:
        origin["teacher"] = config.teacher
    if config.model.class_token != "first":  # a vocabulary without this key is BERT's
        origin["class_token"] = config.model.class_token
    if _is_current(origin, run.tokenizer_origin):
        damage = run.manifest.damage(run.tokenizer_directory)
        if not damage:
            run.manifest.note(run.tokenizer_directory)
            return run.files.tokenizer
        warn(f"{run.path}: {damage}: it is made again (to use your vocabulary, set --vocabulary.file)")
    tokenizer = existing or _train(config, run)
    if config.vocabulary.file and (remark := tokenizer.impossible_remark):
        say(
            f"{remark}; if it was made with another cleaning, set --vocabulary.strip-accents "
            "(cased or False) or --vocabulary.unicode-form"
        )
    turkish = " ".join(filter(has_turkish_case, dict.fromkeys(config.data.languages)))
    if turkish and tokenizer.encode("I") == tokenizer.encode("i"):
        warn(
            f"data.language has {turkish}, and the vocabulary lower-cases I to i, not to ı, and mixes words up; set "
            "--vocabulary.lowercase False, or train a vocabulary on text in that language alone"
        )
    # Raises if its special tokens differ from those of prepared sequences.
    tokenizer = tokenizer.with_class_token(config.model.class_token)
    if config.vocabulary.exchange and initial:
        tokenizer = tokenizer.with_separators(initial.vocabulary.separators)
    run.save_tokenizer(tokenizer, origin)
    say(f"vocabulary of {len(tokenizer.vocabulary):,} pieces: {run.tokenizer_directory}")
    return tokenizer


def existing_tokenizer(config: RunConfig, opened: OpenedModels) -> tuple[Tokenizer | None, tuple[Reading, ...]]:
    """The tokenizer of `config.vocabulary_origin`, None if one is to be trained; and how the files of another program's
    tokenizer were understood. Raises UsageError if the tokenizer can't be read.

    A plain vocabulary file gets the cleaning (casing, accents) of the tokenizer of `config.vocabulary_model`, if this
    is a WordPiece tokenizer.
    """
    theirs = opened.tokenizer(config.vocabulary_model) if config.vocabulary_model else None
    if not config.vocabulary.file:
        return theirs, ()
    return tokenizer_of_file(config.vocabulary, theirs, config.model, opened)


def tokenizer_of_file(
    settings: VocabularyConfig, theirs: Tokenizer | None, model: ModelConfig, opened: OpenedModels
) -> tuple[Tokenizer, tuple[Reading, ...]]:
    """The tokenizer that `settings.file` names for a model of settings `model`, read once, and how it was understood.

    A plain vocabulary file gets the cleaning of `theirs`, if this is a WordPiece tokenizer, or else that of `settings`.
    Raises UsageError if the tokenizer can't be read.
    """
    assert settings.file, "the caller checks it"
    path, known = place_of(settings.file), opened.vocabularies
    if folder := _foreign_folder(settings):
        key = (path, model.model_type, model.class_token, model.max_positions)  # what the reading depends on
        if key not in known:
            published = read_tokenizer(PublishedFolder(folder), model.replace(vocabulary_size=MOST_PIECES))
            known[key] = published.tokenizer, (Reading(subject=f"vocabulary {folder}", facts=published.facts),)
        return known[key]
    cleaning = Cleaning.of_file(settings.lowercase, settings.strip_accents, settings.unicode_form)
    if isinstance(theirs, WordPieceTokenizer):
        cleaning = theirs.cleaning
    if path not in known:
        known[path] = load_tokenizer(path) if path.is_dir() else read_vocabulary_file(path, cleaning), ()
    tokenizer, readings = known[path]
    if isinstance(tokenizer, WordPieceTokenizer) and not path.is_dir() and tokenizer.cleaning != cleaning:
        tokenizer = WordPieceTokenizer(tokenizer.vocabulary, cleaning)
    return tokenizer, readings


def _foreign_folder(settings: VocabularyConfig) -> Path | None:
    """A local copy of the folder that `vocabulary.file` names, if it holds another program's tokenizer; or None."""
    path = place_of(settings.file) if settings.file else None
    if path is None or not path.is_dir():
        return None
    directory = tokenizer_directory(path)
    return None if directory and "kind" in read_object(directory / TOKENIZER_CONFIG) else fetched(path)


def _is_current(origin: dict[str, Any], written: Place) -> bool:
    """Whether the saved tokenizer was made with these settings and this text, if the text is on this machine."""
    try:
        before = read_object(written)
    except (OSError, ValueError):
        return False
    return before == origin | {"read": origin["read"] or before.get("read")}


def _content(config: RunConfig) -> str | None:
    """Hash of the file or text from which the vocabulary is made; None if it isn't on this machine."""
    places = [place_of(path) for path in (config.vocabulary.file, config.vocabulary_model) if path]
    if not places:
        return text_content(config.data)
    files = [file for path in places for file in vocabulary_files(path)]
    return content_hash(*files) if all(file.is_file() for file in files) else None


def vocabulary_files(path: Place) -> list[Place]:
    """The files from which the vocabulary at `path`, a file or the folder of a tokenizer or model, is read."""
    if path.is_dir():
        inside = sorted((tokenizer_directory(path) or path).iterdir())
        return [file for file in inside if file.name.startswith(("tokenizer", "vocab")) or file.name in _FILES]
    merges = path.with_name("merges.txt")  # read with a vocab.json
    return [path, merges] if path.suffix == ".json" and merges.is_file() else [path]


def _train(config: RunConfig, run: RunDirectory) -> Tokenizer:
    settings, data = config.vocabulary, config.data
    corpus, limit = open_text(config, run, marked=False), settings.sample_megabytes * 1_000_000

    def shown_while_read(progress):
        for sourced in corpus.sourced_documents():
            progress.advance(corpus.position - progress.done)
            yield sourced

    with stage("Reading text for the vocabulary", corpus.total, corpus.unit) as progress:
        documents = training_documents(shown_while_read(progress), data)
        if data.has_shares:
            sample, sizes = sample_mixture(documents, len(data.source), data.shares, limit)
        else:
            sample, sizes = sample_documents(documents, limit), []
    if sizes:
        for name, language, size, share in zip(data.source, data.languages, sizes, data.shares(sizes), strict=True):
            say(f"{name} ({language}): {size / 1e6:,.3g} MB of text, {share:.1%} of the vocabulary's sample")
    if not sample:
        raise UsageError(f"{config.data.described} holds no text; give a corpus")
    with stage(f"Training a vocabulary of {settings.size:,}", None, "pieces") as progress:
        lines = [line for _, document in sample for line in document]
        tokenizer = learned_tokenizer(lines, settings, data.languages)
        progress.advance(len(tokenizer.vocabulary))
    if settings.kind == "wordpiece" and (share := share_of_long_words(lines)) > _MOST_CUT:
        warn(
            f"{share:.1%} of the characters are in long stretches without spaces, which a WordPiece cuts anywhere; set "
            "--vocabulary.kind unigram, or put spaces or U+200B between words by a segmenter"
        )
    return tokenizer


def learned_tokenizer(texts: list[str], settings: VocabularyConfig, languages: Collection[str] = ()) -> Tokenizer:
    """A tokenizer trained on `texts`, with Turkish casing if all of `languages` have it. A WordPiece of texts with
    hardly any capitals is lower-cased. Raises UsageError if the texts can't give the vocabulary its size."""
    cleaning = training_cleaning(settings, languages)
    if settings.kind == "wordpiece" and not settings.lowercase and _lack_capitals(texts):
        say(
            "the text has hardly any capitals: its vocabulary is lower-cased, so that capitalised words elsewhere are "
            "known"
        )
        cleaning = cleaning._replace(lowercase=True)
    return train_tokenizer(texts, settings.kind, settings.size, cleaning, settings.character_coverage)


def _lack_capitals(texts: Sequence[str]) -> bool:
    """Whether the texts have letters with case, of which hardly any is a capital. Pieces with capitals would be too
    rare for the vocabulary, and a WordPiece without any is taken for a lower-cased one."""
    some = "".join(texts[:: max(1, len(texts) // _TEXTS_LOOKED_AT)])
    return sum(map(str.isupper, some)) < _FEW_CAPITALS * sum(map(str.islower, some))


def training_cleaning(settings: VocabularyConfig, languages: Collection[str]) -> Cleaning:
    """The cleaning of a vocabulary that is trained, with the casing of Turkish if all of `languages` have it."""
    cleaning = Cleaning.of_training(settings.lowercase, settings.strip_accents, settings.unicode_form)
    turkish = settings.lowercase and bool(languages) and all(map(has_turkish_case, languages))
    return cleaning._replace(turkish=turkish)
