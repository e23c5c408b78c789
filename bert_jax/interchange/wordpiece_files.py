"""Tokenizers of BERT as other programs write them: a vocab.txt, or a tokenizer.json of WordPiece."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from bert_jax.interchange.json_file import Shape, shaped
from bert_jax.system.errors import UsageError, shown
from bert_jax.text.pipeline import PipelineTokenizer
from bert_jax.text.vocabulary import Vocabulary, check_numbers
from bert_jax.text.wordpiece import MANY_CAPITALS, WordPieceTokenizer


class _WordPiece(Shape):
    """The `model` of a tokenizer.json, except `type` and `vocab`."""

    unk_token: Literal["[UNK]"] = "[UNK]"
    continuing_subword_prefix: Literal["##"] = "##"
    max_input_chars_per_word: Annotated[int, Field(ge=100, le=200)] = 100
    """Longest word that is split into pieces; a longer word is unknown.

    The limit is 200 characters in the original BERT and here, but 100 in most files."""


class _Cleaning(Shape):
    type: Literal["BertNormalizer"]
    clean_text: Literal[True] = True
    handle_chinese_chars: Literal[True] = True
    strip_accents: bool | None = None
    lowercase: bool = True


class _Splitting(Shape):
    type: Literal["BertPreTokenizer"]


class _TokenizerFile(Shape):
    """A tokenizer.json of BERT. Settings that would change the tokenization are refused."""

    model: _WordPiece
    normalizer: _Cleaning
    pre_tokenizer: _Splitting


def model_type_in(value: dict[str, Any]) -> Any:
    """The type of the model in a tokenizer.json; WordPiece where a file doesn't say, as old ones don't."""
    model = value.get("model")
    return model.get("type", "WordPiece") if isinstance(model, dict) else None


def read_vocabulary(path: Path, lowercase: bool | None, strip_accents: bool | None) -> WordPieceTokenizer:
    """A tokenizer with the vocabulary in the vocab.txt at `path`. `lowercase` None: its letters decide."""
    vocabulary = Vocabulary.read(path)
    if lowercase is None:
        lowercase = vocabulary.share_of_capitals < MANY_CAPITALS
    return WordPieceTokenizer(vocabulary, lowercase, strip_accents)


def read_wordpiece_json(
    path: Path, value: dict[str, Any], told: bool | None, lowercase: bool | None
) -> WordPieceTokenizer | PipelineTokenizer:
    """The tokenizer in `value`, the contents of the tokenizer.json at `path`: a pipeline if it has added tokens.

    `told` is do_lower_case of tokenizer_config.json, and `lowercase` what the user asks for. Raises UsageError if the
    file is invalid, tokenizes otherwise than BERT, or contradicts `told`.
    """
    vocab = value["model"].get("vocab")
    if not isinstance(vocab, dict):
        raise UsageError(f"{path}: model.vocab is {shown(vocab)}; an object with a number for each piece was expected")
    check_numbers(vocab, path)
    described = {name: value[name] for name in ("normalizer", "pre_tokenizer") if name in value}
    # Without the vocabulary, since pydantic would describe each of a million wrong numbers.
    model = {key: given for key, given in value["model"].items() if key != "vocab"}
    file = shaped(described | {"model": model}, _TokenizerFile, path)
    if lowercase is None and told not in (None, file.normalizer.lowercase):
        raise UsageError(
            f"{path.parent}: lowercase in {path.name} is {file.normalizer.lowercase} and do_lower_case in "
            f"tokenizer_config.json is {told}; say which by --lowercase True or False"
        )
    lowercase = file.normalizer.lowercase if lowercase is None else lowercase
    changed = {
        "model": file.model.model_dump() | value["model"],
        "normalizer": file.normalizer.model_dump() | value["normalizer"] | {"lowercase": lowercase},
    }
    whole = PipelineTokenizer(value | changed, str(path))
    if whole.added:
        return whole
    return WordPieceTokenizer(Vocabulary(whole.vocabulary.pieces, str(path)), lowercase, file.normalizer.strip_accents)
