"""Writes tokenizers for AutoTokenizer of transformers."""

from pathlib import Path

from tokenizers import AddedToken, processors

from bert_jax.interchange.tokenizer_reading import SETTINGS, SPECIAL_NAMES, TOKENIZER
from bert_jax.system.files import write_json, write_text
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.wordpiece import WordPieceTokenizer


def write_tokenizer(tokenizer: Tokenizer, directory: Path, max_positions: int) -> None:
    """Writes tokenizer.json, tokenizer_config.json and the vocabulary file, for AutoTokenizer and `read_tokenizer`.

    AutoTokenizer then gives the same ids as ours, except that special pieces in a text, such as [MASK], are recognized.
    The tokenizer class is the generic one, which uses tokenizer.json unchanged: transformers' class for BERT would
    make words of over 100 characters unknown, instead of over 200.
    """
    vocabulary = tokenizer.vocabulary
    cls, sep = vocabulary.pieces[vocabulary.cls_id], vocabulary.pieces[vocabulary.sep_id]
    theirs = tokenizer.as_huggingface()
    theirs.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B:1 {sep}:1",
        special_tokens=[(cls, vocabulary.cls_id), (sep, vocabulary.sep_id)],
    )
    special = {name: vocabulary.pieces[number] for name, number in zip(SPECIAL_NAMES, vocabulary.special_ids)}
    theirs.add_special_tokens([AddedToken(piece, normalized=False) for piece in special.values()])
    write_text(directory / TOKENIZER, theirs.to_str(pretty=True))
    tokenizer.write_vocabulary(directory / tokenizer.file_name)
    casing = {}
    if isinstance(tokenizer, WordPieceTokenizer):
        casing = {"do_lower_case": tokenizer.lowercase, "strip_accents": tokenizer.strip_accents}
    write_json(
        directory / SETTINGS,
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
            "model_max_length": max_positions,
            **casing,
            **special,
        },
    )
