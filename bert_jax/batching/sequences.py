"""Builds token sequences: adds the special tokens to one or two texts, and cuts them to a length."""

from collections.abc import Sequence

from bert_jax.layout import TokenSequence
from bert_jax.text.vocabulary import Vocabulary


def joined(segments: Sequence[list[int]], vocabulary: Vocabulary, longest: int) -> TokenSequence:
    """Joins the piece ids of a text or a pair of texts with [CLS] and [SEP], cut to at most `longest` tokens.

    A pair that is too long loses pieces from the end of the longer text, or of the second one if both are equally
    long, as in run_classifier.py of the original BERT.
    """
    sizes = kept(tuple(map(len, segments)), longest)
    parts = [segment[:size] for segment, size in zip(segments, sizes)]
    ids = [vocabulary.cls_id]
    for part in parts:
        ids += [*part, vocabulary.sep_id]
    return TokenSequence(ids, len(parts[0]) + 2, sum(sizes) < sum(map(len, segments)))


def kept(sizes: tuple[int, ...], longest: int) -> tuple[int, ...]:
    """The number of pieces to keep of each of one or two segments, for a sequence of at most `longest` tokens."""
    most = longest - 1 - len(sizes)
    if len(sizes) == 1:
        return (min(sizes[0], most),)
    first, second = sizes
    second = min(second, max(most - min(first, most), most // 2))
    return min(first, most - second), second
