"""Byte-level BPE (Radford et al. 2019, section 2.2), as RoBERTa has it: from vocab.json and merges.txt, and trained."""

from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Pipeline
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from bert_jax.config.vocabulary import MIN_BYTE_BPE_SIZE
from bert_jax.system.errors import UsageError, quoted
from bert_jax.text.cleaning import Cleaning
from bert_jax.text.pipeline import BYTES, Tokenizer
from bert_jax.text.tokenizer_json import finished, read_json
from bert_jax.text.vocabulary import VocabularySizeError, check_numbers, check_spelling, read_lines, special_names

SPECIAL_PIECES = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
"""The first pieces of a trained vocabulary. The first four have RoBERTa's numbers."""


def read_pipeline(path: Path) -> Tokenizer:
    """Reads a tokenizer.json, or a vocab.json with the merges.txt beside it. Raises UsageError if it is neither."""
    value = read_json(path)
    return Tokenizer(value if type(value.get("model")) is dict else pipeline_of_merges(value, path), str(path))


def pipeline_of_merges(numbers: dict[str, Any], path: Path) -> dict[str, Any]:
    """RoBERTa's tokenizer.json with the pieces of the vocab.json at `path`, `numbers`, and the merges.txt beside it.

    Raises UsageError if either file is damaged or they contradict each other.
    """
    check_numbers(numbers, path)
    check_spelling(numbers, str(path))
    merges_path = path.with_name("merges.txt")
    lines = read_lines(merges_path, "merges.txt beside the vocab.json", "a merges.txt, one merge of two pieces a line")
    merges = []
    for number, line in enumerate(lines, 1):
        if not line or (number == 1 and line.startswith("#version")):
            continue
        first, _, second = line.partition(" ")
        if not {first, second, first + second} <= numbers.keys():
            raise UsageError(
                f"{merges_path}, line {number:,}: {quoted(line)} isn't two pieces of {path.name} that make a third; "
                "put the files there that were made together"
            )
        merges.append((first, second))
    return _framed(_pipeline(models.BPE(numbers, merges), False), numbers, str(path), leading_space=False)


def train_byte_level_bpe(texts: Sequence[str], size: int, cleaning: Cleaning) -> Tokenizer:
    """Trains a vocabulary of `size` pieces on `texts`, in parallel over them; deterministic.

    The first are SPECIAL_PIECES and the 256 bytes, so no text has an unknown piece. A text's first word is written as
    if a space were before it: sentences are encoded one by one, and a word is the same piece wherever it stands. Raises
    UsageError if `size` is less than these, or more than the text can give.
    """
    if size < MIN_BYTE_BPE_SIZE:
        raise UsageError(
            f"vocabulary.size={size:,} is less than the {MIN_BYTE_BPE_SIZE} special pieces and bytes; raise it"
        )
    steps = cleaning.composing() if cleaning.strip_accents or cleaning.form == "NFKC" or cleaning.turkish else []
    steps += [normalizers.Lowercase()] if cleaning.lowercase else []
    normalizer = normalizers.Sequence(steps) if steps else None
    tokenizer = _pipeline(models.BPE(), True, normalizer)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=list(SPECIAL_PIECES),
        initial_alphabet=sorted(BYTES),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer, length=len(texts))
    count = tokenizer.get_vocab_size()
    if count < size:
        raise VocabularySizeError.too_large(size, count)
    without_added = _pipeline(tokenizer.model, True, normalizer)
    return Tokenizer(_framed(without_added, SPECIAL_PIECES, "the vocabulary", leading_space=True))


def _pipeline(model: models.BPE, leading_space: bool, cleaning: normalizers.Normalizer | None = None) -> Pipeline:
    tokenizer = Pipeline(model)
    if cleaning:
        tokenizer.normalizer = cleaning
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=leading_space)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _framed(tokenizer: Pipeline, pieces: Container[str], name: str, leading_space: bool) -> dict[str, Any]:
    """A tokenizer.json with RoBERTa's frame: [CLS] text [SEP], and [CLS] first [SEP] [SEP] second [SEP]."""
    special = special_names(pieces)
    _, _, cls, sep, _ = special
    cls_id, sep_id = tokenizer.token_to_id(cls), tokenizer.token_to_id(sep)
    if cls_id is not None and sep_id is not None:
        tokenizer.post_processor = processors.RobertaProcessing((sep, sep_id), (cls, cls_id), True, leading_space)
    return finished(tokenizer, special, name)
