"""Texts as the model reads them: with special tokens, and cut to a length."""

from collections.abc import Sequence

from bert_jax.layout import TokenSequence
from bert_jax.text.vocabulary import Vocabulary


def joined(segments: Sequence[list[int]], vocabulary: Vocabulary, longest: int) -> TokenSequence:
    """The pieces of one text or of a pair's two, cut to `longest` tokens.

    A pair loses pieces off the end of the longer one, of the second where they are equally long, as in the original's
    run_classifier.py.
    """
    sizes = kept(tuple(map(len, segments)), longest)
    parts = [segment[:size] for segment, size in zip(segments, sizes)]
    ids = [vocabulary.cls_id]
    for part in parts:
        ids += [*part, vocabulary.sep_id]
    return TokenSequence(ids, len(parts[0]) + 2, sum(sizes) < sum(map(len, segments)))


def kept(sizes: tuple[int, ...], longest: int) -> tuple[int, ...]:
    """How many pieces of each of a sequence's one or two segments are kept so that it has at most `longest` tokens."""
    most = longest - 1 - len(sizes)
    if len(sizes) == 1:
        return (min(sizes[0], most),)
    first, second = sizes
    second = min(second, max(most - min(first, most), most // 2))
    return min(first, most - second), second
