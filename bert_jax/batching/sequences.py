"""Builds token sequences: adds the special tokens to one or two texts, and cuts them to a length."""

from collections.abc import Sequence

from bert_jax.layout import TokenSequence
from bert_jax.text.vocabulary import Vocabulary


def joined(segments: Sequence[list[int]], vocabulary: Vocabulary, longest: int) -> TokenSequence:
    """Joins the piece ids of a text or a pair of texts with [CLS] and [SEP], cut to at most `longest` tokens.

    The vocabulary defines how many [SEP] stand between two texts; they belong to the first.

    A pair that is too long loses pieces from the end of the longer text, or of the second one if both are equally
    long, as in run_classifier.py of the original BERT.
    """
    sizes = truncated_sizes(tuple(map(len, segments)), longest, vocabulary.separators)
    parts = [segment[:size] for segment, size in zip(segments, sizes, strict=True)]
    first, *second = parts
    ids = [vocabulary.cls_id, *first, vocabulary.sep_id]
    if second:
        ids += [vocabulary.sep_id] * (vocabulary.separators - 1)
    first_length = len(ids)
    for part in second:
        ids += [*part, vocabulary.sep_id]
    return TokenSequence(ids, first_length, sum(sizes) < sum(map(len, segments)))


def truncated_sizes(sizes: tuple[int, ...], longest: int, separators: int) -> tuple[int, ...]:
    """The number of pieces to keep of each of one or two segments, for a sequence of at most `longest` tokens with
    `separators` between two."""
    if len(sizes) == 1:
        return (min(sizes[0], longest - 2),)
    most = longest - 2 - separators
    first, second = sizes
    second = min(second, max(most - min(first, most), most // 2))
    return min(first, most - second), second
