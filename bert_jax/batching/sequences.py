"""Builds token sequences: adds the special tokens to one or two texts, and cuts them to a length."""

from collections.abc import Sequence

from bert_jax.config.vectors import Prompt
from bert_jax.layout import TokenSequence
from bert_jax.system.errors import UsageError
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.vocabulary import Frame, Vocabulary


def joined(segments: Sequence[list[int]], vocabulary: Vocabulary, longest: int) -> TokenSequence:
    """Joins the piece ids of a text or a pair of texts with the special tokens of the vocabulary's frame, such as [CLS]
    and [SEP], cut to at most `longest` tokens.

    A pair that is too long loses pieces from the end of the longer text, or of the second one if both are equally
    long, as in run_classifier.py of the original BERT. Raises UsageError if the sequence would be empty, or if the
    special tokens alone are more than `longest`.
    """
    frame = vocabulary.frame
    if (least := frame.size(len(segments))) > longest:
        raise UsageError(f"a sequence has {least} special tokens, and only {longest} fit; raise the model's positions")
    sizes = truncated_sizes(tuple(map(len, segments)), longest, frame)
    parts = [segment[:size] for segment, size in zip(segments, sizes, strict=True)]
    before, *after = frame.around(len(parts))
    ids = [*before]
    for part, special in zip(parts, after, strict=True):
        ids += [*part, *special]
    if not ids:
        raise UsageError("a text is empty, and this tokenizer sets no special tokens round it; leave the text out")
    first_length = len(ids) if len(parts) == 1 else len(before) + len(parts[0]) + frame.first_separators
    return TokenSequence(ids, first_length, sum(sizes) < sum(map(len, segments)))


def unpooled_tokens(prompt: Prompt, tokenizer: Tokenizer, longest: int) -> int:
    """The number of tokens at the beginning of a text with `prompt` that aren't pooled.

    They are [CLS] and the prompt's tokens. The prompt is encoded by itself, as in sentence-transformers, although its
    tokens may differ when a text follows.
    """
    if prompt.pooled or not prompt.text:
        return 0
    ids = joined(tokenizer.encode_batch([prompt.text]), tokenizer.vocabulary, longest).ids
    vocabulary = tokenizer.vocabulary
    return len(ids) - (ids[-1] in vocabulary.special_ids) - (vocabulary.class_token == "last")  # [CLS] after [SEP]


def truncated_sizes(sizes: tuple[int, ...], longest: int, frame: Frame) -> tuple[int, ...]:
    """The number of pieces to keep of each of one or two segments, for a sequence of at most `longest` tokens."""
    most = longest - frame.size(len(sizes))
    if len(sizes) == 1:
        return (min(sizes[0], most),)
    first, second = sizes
    second = min(second, max(most - min(first, most), most // 2))
    return min(first, most - second), second
