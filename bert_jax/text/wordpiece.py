"""WordPiece: the tokenizer of the original BERT (tokenization.py)."""

import itertools
import json
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from tokenizers import Regex, models, pre_tokenizers
from tokenizers import Tokenizer as Pipeline

from bert_jax.config.data import Accents, UnicodeForm
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError
from bert_jax.system.json_file import JsonObject
from bert_jax.text.cleaning import ORIGINAL, Cleaning
from bert_jax.text.library_calls import library_method
from bert_jax.text.pipeline import Tokenizer, TokenizerSettings
from bert_jax.text.scripts import combines, script_of
from bert_jax.text.vocabulary import CONTINUATION, UNKNOWN, Vocabulary

MAX_WORD_CHARACTERS = 200
"""Most characters of a word, in the original and in vocabularies made here. A longer word is cut, or becomes a single
[UNK]."""
_STRETCH = Regex(rf".{{1,{MAX_WORD_CHARACTERS}}}(?!\p{{M}})|.{{{MAX_WORD_CHARACTERS}}}")
"""The parts that a word is cut into. A part has as many characters as allowed, and keeps a character with its marks."""
ALONE = r"!-/:-@\[-`{-~\u4e00-\u9fff"
"""ASCII punctuation and ideographs, as the inside of a character class. Each is always a word by itself."""
_SLASH = "[\u0300-\u036f]*\u0338"
"""The one mark that composes with punctuation: < and U+0338 become a single character, also if other marks, which
canonical order sets after it, are between them."""
_CUT = re.compile(rf"\n|[{ALONE}](?!{_SLASH})|(?:[^\n{ALONE}]|[{ALONE}](?={_SLASH}))+")
"""Cuts text at line breaks and at the characters of ALONE. It doesn't cut at other white space: the tokenizer removes
some of it as control characters, and joins what it separates."""
_BAR = "|"
"""Joins texts that are encoded together. It is always a word by itself."""
_BARS = re.compile("[|\uff5c]")
"""The characters that are cleaned to _BAR: U+FF5C is by the form NFKC."""
_JOINED = 100
"""Number of texts that are encoded as one. A text by itself takes as long as one of some 20 characters more."""
MANY_CAPITALS = 0.02
"""Share of pieces with capitals above which a vocabulary is cased. Published cased vocabularies have 0.16 and 0.29.
Uncased and Chinese ones have capitals only in special pieces."""
_WITH_CAPITALS = frozenset(["LATIN", "GREEK", "CYRILLIC", "ARMENIAN"])
"""Scripts whose texts have capitals. Coptic, Georgian and Cherokee have them in Unicode, and hardly in texts."""
_SHARE_IMPOSSIBLE, _EXAMPLES = 0.001, 3
"""Least share of impossible pieces that is remarked on, and the number of examples in the remark."""
_FEW_PIECES = 1000
"""Pieces of the smallest vocabulary whose casing is judged by its letters."""


class WordPieceSettings(TokenizerSettings):
    """The contents of tokenizer_config.json in the directory of a WordPiece tokenizer."""

    kind: Literal["wordpiece"]
    lowercase: bool
    strip_accents: Accents
    form: UnicodeForm | None = None
    divides_words: bool = False
    turkish: bool = False
    longest_word: Annotated[int, Field(ge=1)] = MAX_WORD_CHARACTERS
    """Most characters of a word that has pieces."""


class WordPieceTokenizer(Tokenizer):
    """The tokenizer of a vocab.txt.

    It cleans text, splits it at white space, punctuation and ideographs, and matches the longest piece greedily.
    """

    kind = "wordpiece"
    file_name = "vocab.txt"
    cuts = (
        lambda texts: _lines(texts).replace("\n", " \n ").split(" "),
        lambda texts: _CUT.findall(_lines(texts)),
    )

    def __init__(self, vocabulary: Vocabulary, cleaning: Cleaning = ORIGINAL, longest_word: int = MAX_WORD_CHARACTERS):
        """`longest_word`: most characters of a word that has pieces.

        Raises UsageError if the vocabulary was clearly made with the other casing.
        """
        if contradiction := _contradiction(vocabulary, cleaning.lowercase):
            raise UsageError(contradiction)
        self.vocabulary, self.cleaning, self.name = vocabulary, cleaning, self.file_name
        self.longest_word = longest_word
        self._encoder = wordpiece_pipeline(vocabulary.ids, cleaning, longest_word, cuts=cleaning.divides_words)
        self._normalizer = self._encoder.normalizer

    @property
    def contents(self) -> JsonObject:
        return json.loads(self._encoder.to_str())

    @library_method
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each text; uses several threads unless TOKENIZERS_PARALLELISM=false."""
        has_bar = [_BARS.search(text) is not None for text in texts]
        joined = [text for text, alone in zip(texts, has_bar, strict=True) if not alone]
        blocks = [_BAR.join((*joined[at : at + _JOINED], "")) for at in range(0, len(joined), _JOINED)]
        encoded = self._bar_encoder.encode_batch_fast(blocks, add_special_tokens=False)
        ids = [number for encoding in encoded for number in encoding.ids]
        bars = np.flatnonzero(np.array(ids) == len(self.vocabulary)).tolist()
        ids_of_joined = (ids[before + 1 : bar] for before, bar in itertools.pairwise([-1, *bars]))
        # For that pipeline, a word that must be cut is unknown. Looking for such words everywhere takes a third longer.
        again = self.vocabulary.unknown_id if self.cleaning.divides_words else len(self.vocabulary)
        by_text = [[again] if alone else next(ids_of_joined) for alone in has_bar]
        return [self.encode(text) if again in ids else ids for text, ids in zip(texts, by_text, strict=True)]

    def _offsets(self, text: str) -> Iterable[tuple[int, int, int]]:
        offsets = list(super()._offsets(text))
        if not offsets or not self.cleaning.form:
            return offsets
        # The library aligns a composed character with the first of the characters that it is composed of.
        begins = [begin for _, begin, _ in offsets[1:]] + [len(text)]
        return [
            (number, begin, end + sum(1 for _ in itertools.takewhile(combines, text[end:following])))
            for (number, begin, end), following in zip(offsets, begins, strict=True)
        ]

    @cached_property
    def _bar_encoder(self) -> Pipeline:
        """The pipeline without cuts. _BAR has an id beyond the vocabulary, which separates the ids of joined texts."""
        ids = {**self.vocabulary.ids, _BAR: len(self.vocabulary)}
        return wordpiece_pipeline(ids, self.cleaning, self.longest_word)

    def with_pieces(self, pieces: Sequence[str]) -> "WordPieceTokenizer":
        """A tokenizer with `pieces` after its own. Greedy longest match then finds them."""
        longer = Vocabulary([*self.vocabulary.pieces, *pieces], frame=self.vocabulary.frame)
        return WordPieceTokenizer(longer, self.cleaning, self.longest_word)

    @property
    def impossible_remark(self) -> str | None:
        clean, pieces = self._encoder.normalizer.normalize_str, self.vocabulary.pieces
        ordinary = [piece.removeprefix(CONTINUATION) for piece in pieces if piece not in self.vocabulary.special]
        changed = [text for text in ordinary if clean(text).strip() != text]
        if len(changed) < _SHARE_IMPOSSIBLE * len(pieces):
            return None
        examples = ", ".join(map(repr, changed[:_EXAMPLES]))
        return (
            f"{len(changed):,} of the vocabulary's {len(pieces):,} pieces can't occur, because the cleaning of text "
            f"changes them, such as {examples}"
        )

    def write_vocabulary(self, path: Place) -> None:
        self.vocabulary.write(path)

    @property
    def settings(self) -> WordPieceSettings:
        place, longest = self.vocabulary.class_token, self.longest_word
        return WordPieceSettings(kind="wordpiece", class_token=place, longest_word=longest, **self.cleaning._asdict())


def _lines(texts: Iterable[str]) -> str:
    """The texts, each ended by a line break. A line break within a text becomes a space, as the tokenizer treats it."""
    return "".join([text.replace("\n", " ") + "\n" for text in texts])


def _contradiction(vocabulary: Vocabulary, lowercase: bool) -> str | None:
    """Why the vocabulary contradicts `lowercase`, so that its pieces would never match; None if it doesn't."""
    if len(vocabulary) < _FEW_PIECES:
        return None
    if lowercase and vocabulary.share_of_capitals > MANY_CAPITALS:
        return (
            f"{vocabulary.share_of_capitals:.0%} of the vocabulary's pieces have capitals, which lower-casing takes "
            "from text; set lowercase to false"
        )
    if not lowercase and not vocabulary.share_of_capitals and vocabulary.share_of(_may_have_capitals) > 0.5:
        return "no piece of the vocabulary has a capital, which text has; set lowercase to true"
    return None


def _may_have_capitals(piece: str) -> bool:
    return any(letter != letter.upper() and script_of(letter) in _WITH_CAPITALS for letter in piece)


def wordpiece_pipeline(
    ids: dict[str, int], cleaning: Cleaning, longest_word: int = MAX_WORD_CHARACTERS, cuts: bool = False
) -> Pipeline:
    """The steps of BERT's tokenizer. With `cuts` long words are cut; otherwise they are unknown."""
    pipeline = Pipeline(models.WordPiece(ids, unk_token=UNKNOWN, max_input_chars_per_word=longest_word))
    pipeline.normalizer = cleaning.normalizer()
    words, stretches = pre_tokenizers.BertPreTokenizer(), pre_tokenizers.Split(_STRETCH, "isolated")
    pipeline.pre_tokenizer = pre_tokenizers.Sequence([words, stretches]) if cuts else words
    return pipeline
