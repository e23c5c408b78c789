"""Example sentences with one masked word, a model's predictions for it, and a view of them for tables."""

import itertools
import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.text import Text

from bert_jax.config.run import RunConfig
from bert_jax.run.run_directory import RunDirectory
from bert_jax.text.scripts import sets_no_spaces
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.vocabulary import MASK, PieceSpan

_SHORTEST_WORD = 4
"""Least number of letters of a masked word, unless it is an ideograph."""
_CUT = "..."
"""Replaces text that is cut off."""

_WORD = re.compile(r"\s+|\S+")
_UNIT = re.compile(rf"{re.escape(MASK)}|.")


class MaskedText:
    """A text with [MASK] for a table of rich, which never breaks a line within [MASK].

    Lines break at spaces, and beside characters of scripts without spaces. rich itself doesn't know these scripts, and
    would also break within [MASK].
    """

    def __init__(self, text: str):
        self._text = text

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(len(MASK), cell_len(self._text))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        for line in folded(self._text, options.max_width):
            text = Text(line)
            text.highlight_words([MASK], "bold")
            yield text


def folded(text: str, width: int) -> list[str]:
    """Breaks `text` into lines of at most `width` terminal cells; `width` must have room for [MASK]."""
    lines = [""]
    for word in _WORD.findall(text):
        divisible = cell_len(word) > width or any(map(sets_no_spaces, word))
        for unit in _UNIT.findall(word) if divisible else [word]:
            if cell_len(lines[-1] + unit) > width:
                lines.append("")
            lines[-1] += unit if lines[-1] else unit.lstrip()
    return [line.rstrip() for line in lines]


class FilledExample(NamedTuple):
    """A held-out sentence with one masked word."""

    text: str
    """The sentence with [MASK] in place of the word."""
    word: str
    fills: list[tuple[str, float]]
    """The model's first five pieces for [MASK], as `Tokenizer.spelled` has them, with their probabilities."""


def filled_examples(run: RunDirectory, config: RunConfig, count: int = 5) -> list[FilledExample]:
    """At most `count` held-out sentences of a trained run with the model's predictions; none if nothing was held out.

    Raises what `prepare_lengths` and `load` raise.
    """
    # Here, because tables of other commands import this module.
    from bert_jax.inference.bert import load
    from bert_jax.pretraining.dataset import prepare_lengths

    sentences = prepare_lengths(config, run)[config.phases[-1].length].example_sentences
    bert = load(run.path)
    examples = masked_examples(sentences, bert.tokenizer, bert.config.max_positions - 2)[:count]
    return [FilledExample(text, word, bert.fill_mask(text)[0]) for text, word in examples]


def masked_examples(sentences: Iterable[str], tokenizer: Tokenizer, most: int) -> list[tuple[str, str]]:
    """Masks one word in each suitable sentence; returns pairs of the masked sentence and the word.

    A sentence is suitable if it has at most `most` pieces and a word that is a single piece of at least four letters,
    or an ideograph. Of several such words a hash chooses one.
    """
    examples = []
    for sentence in sentences:
        pieces = tokenizer.encode_spans(sentence)
        pairs = itertools.pairwise([*pieces, None])
        fitting = [piece for piece, after in pairs if piece and _fits(sentence, piece, after, tokenizer)]
        if fitting and len(pieces) <= most:
            chosen = min(fitting, key=lambda piece: blake2b(f"{piece.begin} {sentence}".encode()).digest())
            masked = sentence[: chosen.begin] + MASK + sentence[chosen.end :]
            examples.append((masked, sentence[chosen.begin : chosen.end]))
    return examples


def around_mask(text: str, most: int) -> str:
    """Cuts `text` around its first [MASK] to at most `most` terminal cells; a Chinese character takes two.

    "..." replaces the text that is cut off.
    """
    before, after = text.split(MASK, 1)
    room = most - len(MASK)
    left = max(room // 2, room - cell_len(after))
    before = _begin_of(before[::-1], left)[::-1]
    return before + MASK + _begin_of(after, room - cell_len(before))


def _begin_of(text: str, most: int) -> str:
    """`text` if it fits in `most` cells, or else its beginning, followed by "..."."""
    if cell_len(text) <= most:
        return text
    while text and cell_len(text) > most - len(_CUT):
        text = text[:-1]
    return text + _CUT


def _fits(sentence: str, piece: PieceSpan, after: PieceSpan | None, tokenizer: Tokenizer) -> bool:
    """Whether `piece` is a whole word to mask; `after` is the next piece of the sentence, None at its end."""
    starts = tokenizer.starts_word
    word = sentence[piece.begin : piece.end]
    whole = starts[piece.id] and (after is None or starts[after.id]) and piece.id != tokenizer.vocabulary.unknown_id
    return bool(whole) and word.isalpha() and (len(word) >= _SHORTEST_WORD or "\u3400" <= word <= "\u9fff")
