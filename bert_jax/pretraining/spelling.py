"""The bytes of the pieces of a vocabulary, for models that read characters."""

import numpy as np
from jaxtyping import Float

from bert_jax.config.model import ModelConfig
from bert_jax.model.bert import Parameters
from bert_jax.model.embeddings import padded_vocabulary_size
from bert_jax.model.relatives.characters import (
    BEGIN_SENTENCE,
    BEGIN_WORD,
    END_SENTENCE,
    END_WORD,
    LONGEST_PIECE,
    PADDING,
)
from bert_jax.text.tokenizer import Tokenizer


def with_spelling(params: Parameters | None, config: ModelConfig, tokenizer: Tokenizer) -> Parameters | None:
    """`params` with the spelling of the tokenizer's pieces, if the model reads characters; None are no parameters."""
    if not config.character_filters:
        return params
    params = params or {"bert": {}}
    sized = config.replace(vocabulary_size=len(tokenizer.vocabulary))
    return {**params, "bert": {**params["bert"], "spelling": {"numbers": _numbers(sized, tokenizer)}}}


def _numbers(config: ModelConfig, tokenizer: Tokenizer) -> Float[np.ndarray, "V C"]:
    """The numbers of each piece: the mark of a word's begin, the bytes, the mark of a piece's end, and padding.

    A piece that continues a word has no mark of a begin, and marks such as ## aren't among the bytes. [CLS] and [SEP]
    are spelled as begin and end of a sentence.
    """
    vocabulary, numbers = tokenizer.vocabulary, np.zeros((padded_vocabulary_size(config), LONGEST_PIECE), np.float32)
    marks = {vocabulary.cls_id: [BEGIN_SENTENCE], vocabulary.sep_id: [END_SENTENCE]}
    for piece, begins in enumerate(tokenizer.starts_word):
        letters = marks.get(piece) or [byte + 1 for byte in tokenizer.piece_text(piece).encode("utf-8", "replace")]
        begin = [BEGIN_WORD] if begins or piece in marks else []
        spelled = [*begin, *letters[: LONGEST_PIECE - 2], END_WORD]
        numbers[piece] = spelled + [PADDING] * (LONGEST_PIECE - len(spelled))
    return numbers
