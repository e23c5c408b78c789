"""How a tokenizer splits the words of a text, and which of them save the most pieces if they are added to it."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from pydantic import computed_field

from bert_jax.system.figures import Figures
from bert_jax.text.pipeline import Tokenizer
from bert_jax.text.scripts import is_punctuation
from bert_jax.text.vocabulary import BOUNDARY

FEWEST_OCCURRENCES = 5
"""Times that a word must occur to be proposed: a piece that is seen less often is hardly trained."""
MOST_UNKNOWN_CHARACTERS = 0.02
"""Share of a text's characters that may be unknown to a vocabulary that is kept. An initial value, to be checked by the
suite small_language."""


class WordSplits(NamedTuple):
    """What a tokenizer makes of the words of a text. Words are split at blanks, as by wc."""

    words: int
    pieces: int
    unknown: float
    """Share of the characters that are behind unknown pieces."""
    whole: float
    """Share of the words without punctuation that are one known piece."""

    @property
    def pieces_a_word(self) -> float:
        return self.pieces / max(self.words, 1)


class ProposedWord(Figures):
    """A word that the tokenizer splits."""

    word: str
    """The word as the tokenizer cleans it."""
    occurrences: int
    pieces: int
    """Number of pieces that the tokenizer splits it into."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def saved(self) -> int:
        """Number of pieces that the text saves if the word is a piece."""
        return self.occurrences * (self.pieces - 1)


def word_splits(tokenizer: Tokenizer, words: Counter[str]) -> WordSplits:
    """How `tokenizer` splits `words`, which were split at blanks and counted."""
    # A byte-level BPE has other pieces for a word after a space, which most words are.
    texts = [f" {word}" if tokenizer.kind == "byte_bpe" else word for word in words]
    ids = tokenizer.encode_batch(texts)
    lost = tokenizer.unknown_characters(texts, ids)
    pieces = characters = unknown = bare = whole = 0
    for (word, count), numbers, missing in zip(words.items(), ids, lost, strict=True):
        pieces += count * len(numbers)
        characters += count * len(word)
        unknown += count * missing
        if not any(map(is_punctuation, word)):
            bare += count
            whole += count * (len(numbers) == 1 and not missing)
    return WordSplits(words.total(), pieces, unknown / max(characters, 1), whole / max(bare, 1))


def words_that_save(tokenizer: Tokenizer, words: Counter[str], most: int) -> list[ProposedWord]:
    """At most `most` words that `tokenizer` splits, those first that save the most pieces if they are added.

    `words` were split at blanks and counted. Here they are split at punctuation, cleaned by the tokenizer, and counted
    again. Only occurrences that would use an added piece count: in a WordPiece also after punctuation, in other kinds
    only after a blank.
    """
    counts, spelled = Counter[str](), dict[str, str]()
    for word, count in words.items():
        for part in _parts(word, tokenizer.kind == "wordpiece"):
            if piece := tokenizer.piece_of_word(part):
                counts[piece] += count
                spelled.setdefault(piece, part)
    proposed = []
    for piece, count in counts.items():
        if count >= FEWEST_OCCURRENCES and (pieces := len(tokenizer.encode_piece(piece))) > 1:
            word = tokenizer.cleaned(spelled[piece]).strip(BOUNDARY)
            proposed.append(ProposedWord(word=word, occurrences=count, pieces=pieces))
    return sorted(proposed, key=lambda each: (-each.saved, each.word))[:most]


def _parts(word: str, after_punctuation: bool) -> Iterator[str]:
    """The parts of a word between punctuation that have a letter; without `after_punctuation` its beginning alone."""
    parts = "".join(" " if is_punctuation(letter) else letter for letter in word).split(" ")
    for part in parts if after_punctuation else parts[:1]:
        if any(map(str.isalpha, part)):
            yield part
