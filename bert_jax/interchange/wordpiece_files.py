"""A tokenizer.json of BERT as other programs write it."""

from pathlib import Path
from typing import Any

from bert_jax.system.errors import UsageError, quoted
from bert_jax.text.pipeline import Tokenizer
from bert_jax.text.vocabulary import Vocabulary, check_numbers
from bert_jax.text.wordpiece import MAX_WORD_CHARACTERS, WordPieceTokenizer

_MODEL: dict[str, Any] = {
    "type": "WordPiece",
    "unk_token": "[UNK]",
    "continuing_subword_prefix": "##",
    "max_input_chars_per_word": 100,
}
_SPLITTING = {"type": "BertPreTokenizer"}
_CLEANING = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
_CASING = {"strip_accents": None, "lowercase": True}
"""Settings of BERT's model and normalizer that old files leave out."""


def read_wordpiece_json(
    path: Path, value: dict[str, Any], do_lower_case: bool | None, lowercase: bool | None
) -> Tokenizer:
    """The tokenizer in `value`, the contents of the tokenizer.json at `path`, with a model of type WordPiece.

    It is a WordPieceTokenizer if its steps are BERT's and it adds no tokens; the longest word that has pieces is then
    that of the original BERT, 200 characters, though most files say 100. `do_lower_case` is that of
    tokenizer_config.json, and `lowercase` what the user asks for. Raises UsageError if the file is invalid or
    contradicts them.
    """
    vocab, cleaning = value["model"].get("vocab"), value.get("normalizer")
    if not isinstance(vocab, dict):
        raise UsageError(f"{path}: model.vocab is {quoted(vocab)}; an object with a number for each piece was expected")
    check_numbers(vocab, path)
    if isinstance(cleaning, dict) and cleaning.get("type") == _CLEANING["type"]:
        cleaning = _CLEANING | _CASING | cleaning
        if lowercase is None and do_lower_case not in (None, cleaning["lowercase"]):
            raise UsageError(
                f"{path.parent}: lowercase in {path.name} is {cleaning['lowercase']} and do_lower_case in "
                f"tokenizer_config.json is {do_lower_case}; say which by --lowercase True or False"
            )
        cleaning["lowercase"] = cleaning["lowercase"] if lowercase is None else lowercase
    elif lowercase is not None:
        raise UsageError(f"{path}: its normalizer isn't BERT's, so --lowercase can't be applied; leave the option out")
    model = _MODEL | value["model"]
    whole = Tokenizer(value | {"model": model, "normalizer": cleaning}, str(path))
    if whole.added or cleaning is None:
        return whole
    has_berts_steps = (
        {**cleaning, **_CLEANING} == cleaning
        and value["pre_tokenizer"] == _SPLITTING
        and _MODEL["max_input_chars_per_word"] <= model["max_input_chars_per_word"] <= MAX_WORD_CHARACTERS
    )
    if not has_berts_steps:
        return whole
    vocabulary = Vocabulary(whole.vocabulary.pieces, str(path))
    return WordPieceTokenizer(vocabulary, cleaning["lowercase"], cleaning["strip_accents"])
