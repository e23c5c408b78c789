"""Sentences with one word masked, to show what a model knows."""

from collections.abc import Iterable
from hashlib import blake2b

from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.vocabulary import MASK, PieceSpan

_SHORTEST_WORD = 4


def masked_examples(sentences: Iterable[str], tokenizer: Tokenizer, most: int) -> list[tuple[str, str]]:
    """Each sentence of at most `most` pieces that has a fitting word: with that word replaced by [MASK], and the word.

    A word fits if it is one piece and either long enough to carry meaning or an ideograph.
    """
    examples = []
    for sentence in sentences:
        pieces = tokenizer.encode_spans(sentence)
        fitting = [
            piece for piece, after in zip(pieces, [*pieces[1:], None]) if _fits(sentence, piece, after, tokenizer)
        ]
        if fitting and len(pieces) <= most:
            chosen = min(fitting, key=lambda piece: blake2b(f"{piece.begin} {sentence}".encode()).digest())
            masked = sentence[: chosen.begin] + MASK + sentence[chosen.end :]
            examples.append((masked, sentence[chosen.begin : chosen.end]))
    return examples


def _fits(sentence: str, piece: PieceSpan, after: PieceSpan | None, tokenizer: Tokenizer) -> bool:
    starts = tokenizer.starts_word
    word = sentence[piece.begin : piece.end]
    whole = starts[piece.id] and (after is None or starts[after.id]) and piece.id != tokenizer.vocabulary.unknown_id
    return bool(whole) and word.isalpha() and (len(word) >= _SHORTEST_WORD or "\u3400" <= word <= "\u9fff")
