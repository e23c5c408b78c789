"""Signatures of documents, and the copies that are found by them: equal documents have equal signatures, similar
documents similar ones."""

import functools
import unicodedata
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Int, UInt8, UInt32, UInt64

from bert_jax.text.scripts import sets_no_spaces

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_BANDS = 32
"""Bands of a MinHash signature. Documents that agree in one band are compared. Two documents of Jaccard similarity s
agree in one with probability 1 - (1 - s^4)^32, which is 0.87 at s = 0.5 and 0.999 at s = 0.66."""
_ROWS = 4
"""32-bit numbers in a band."""
_SHINGLE = 5
"""Words in a shingle; a document of fewer words has one shingle of all of them."""
_SEED = 1
_LAST_LETTER = 0x323B0
"""Code points from here on aren't letters."""
_NO_WORD, _IN_WORD, _WORD_ALONE = range(3)
"""Kinds of characters: in no word, part of a word, and a word by itself, as in Chinese."""


def digests(texts: Sequence[str]) -> UInt32[np.ndarray, "N 4"]:
    """The 128-bit hash of each text: a signature of one band."""
    joined = b"".join(blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest() for text in texts)
    return np.frombuffer(joined, np.uint32).reshape(-1, _ROWS)


def minhashes(texts: Sequence[str]) -> UInt32[np.ndarray, "N 128"]:
    """The MinHash signature of each text (Broder 1997), of its shingles of five words.

    Case and punctuation make no difference. In scripts without spaces each character counts as a word. The share of
    equal numbers in two signatures estimates the Jaccard similarity of the texts.
    """
    from rensa import RMinHash

    shingles, ends = _shingles(texts)
    rows = RMinHash.digest_matrix_from_flat_token_hashes(shingles, ends.astype(np.uint64), _BANDS * _ROWS, _SEED)
    return np.array(rows.to_rows(), np.uint32)


def band_keys(signatures: UInt32[np.ndarray, "N numbers"]) -> UInt64[np.ndarray, "N bands"]:
    """A hash of each band of the signatures and of the band's number."""
    halves = signatures.view(np.uint64).reshape(len(signatures), -1, 2)
    bands = np.arange(halves.shape[1], dtype=np.uint64)
    return _mixed(_mixed(_mixed(halves[..., 0]) ^ halves[..., 1]) + bands)


def word_counts(texts: Sequence[str]) -> Int[np.ndarray, " N"]:
    """The number of words in each text, counted as for shingles."""
    return np.diff(word_hashes(texts)[1])


def _shingles(texts: Sequence[str]) -> tuple[UInt64[np.ndarray, " S"], Int[np.ndarray, " N+1"]]:
    """The hashes of all shingles, and the indices at which those of each text begin and end."""
    words, ends = word_hashes(texts)
    joined = words.copy()
    for place in range(1, _SHINGLE):
        joined[:-place] += words[place:] * np.uint64(2 * place + 1)
    number, of_text = np.arange(len(words)), np.diff(ends)
    whole = number + _SHINGLE <= np.repeat(ends[1:], of_text)
    first = number == np.repeat(ends[:-1], of_text)
    short = np.flatnonzero(of_text < _SHINGLE)
    for text in short[of_text[short] > 0]:  # one shingle of its own words, without the next text's
        begin, end = ends[text : text + 2]
        joined[begin] = (words[begin:end] * (2 * np.arange(end - begin) + 1).astype(np.uint64)).sum()
    kept = whole | first
    counts = np.diff(np.concatenate([[0], np.cumsum(kept)])[ends])
    return _mixed(joined[kept]), np.concatenate([[0], np.cumsum(counts)])


def word_hashes(texts: Sequence[str]) -> tuple[UInt64[np.ndarray, " W"], Int[np.ndarray, " N+1"]]:
    """The hashes of all words, and the indices at which those of each text begin and end.

    A text without words counts as one word.
    """
    return words_of(texts)[:2]


def words_of(texts: Sequence[str]) -> tuple[UInt64[np.ndarray, " W"], Int[np.ndarray, " N+1"], Bool[np.ndarray, " W"]]:
    """The `word_hashes` of texts, and which words are single characters of a script without spaces."""
    lowered = [text.lower() for text in texts]
    codes = np.frombuffer("\n".join([*lowered, ""]).encode("utf-32-le", "surrogatepass"), np.uint32)
    kinds = _kinds()[np.minimum(codes, _LAST_LETTER)]
    ends_of_texts = np.cumsum([0, *(len(text) + 1 for text in lowered)])
    letters = np.searchsorted(np.flatnonzero(kinds > _NO_WORD), ends_of_texts)
    for text in np.flatnonzero(np.diff(letters) == 0):  # an empty text is its line feed alone
        begin, end = ends_of_texts[text : text + 2]
        kinds[begin : max(end - 1, begin + 1)] = _IN_WORD if end - 1 > begin else _WORD_ALONE
    before = np.concatenate([[_NO_WORD], kinds[:-1]])
    starts = np.flatnonzero((kinds == _WORD_ALONE) | ((kinds == _IN_WORD) & (before != _IN_WORD)))
    in_word = np.arange(len(codes)) - np.repeat(starts, np.diff(starts[1:], prepend=0, append=len(codes)))
    hashes = _mixed((codes.astype(np.uint64) << np.uint64(32)) + in_word.astype(np.uint64))
    hashes[kinds == _NO_WORD] = 0
    words = _mixed(np.add.reduceat(hashes, starts))
    return words, np.searchsorted(starts, ends_of_texts), kinds[starts] == _WORD_ALONE


@functools.cache
def _kinds() -> UInt8[np.ndarray, " _"]:
    """The kind of each character, by its code point."""
    kinds = np.full(_LAST_LETTER + 1, _NO_WORD, np.uint8)
    for code in range(_LAST_LETTER):
        character = chr(code)
        if unicodedata.category(character)[0] in "LMN":
            kinds[code] = _WORD_ALONE if sets_no_spaces(character) else _IN_WORD
    return kinds


def _mixed(numbers: UInt64[np.ndarray, "..."]) -> UInt64[np.ndarray, "..."]:
    """A hash of each number: the finalizer of SplitMix64 (Steele et al. 2014)."""
    numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


LEAST_SIMILARITY = 0.5
"""Least estimated Jaccard similarity of copies."""

_TABLES = """
create temp table pairs (earlier ubigint, document ubigint, similarity double);
create temp view keys as select unnest(bands) as key, place from batches where refusal = 0;
"""
# Pairs that connect all documents of a key: each one with the first, and each one with the one before it.
_CANDIDATES = """
create temp table candidates as
select distinct earlier, document
from (
    select unnest([first_value(place) over equal_keys, lag(place) over equal_keys]) as earlier, place as document
    from keys semi join (select key from keys group by key having count(*) > 1) using (key)
    window equal_keys as (partition by key order by place)
)
where earlier < document
"""
_COMPARE = """
insert into pairs
select
    earlier,
    document,
    len(list_filter(ours.signature, lambda number, slot: number = theirs.signature[slot])) / len(ours.signature)
from candidates join batches ours on ours.place = earlier join batches theirs on theirs.place = document
"""
_SIMILAR = f"select earlier, document from pairs where similarity >= {LEAST_SIMILARITY} order by document, earlier"
# A document that is similar to copies alone may be similar to their originals, too.
_OTHER_CANDIDATES = f"""
create or replace temp table candidates as
select original as earlier, pairs.document
from pairs join originals on earlier = originals.document
where similarity >= {LEAST_SIMILARITY} and pairs.document not in (select document from originals)
except select earlier, document from pairs
"""
_COPIES = """
insert into copies
select pairs.document, original, similarity
from originals join pairs on earlier = original and pairs.document = originals.document
"""


def find_copies(database: "DuckDBPyConnection") -> None:
    """Fills the table `copies` with the places of the documents that are copies and of their originals.

    A document is a copy if it is similar to an earlier document that is kept. The first such document is its original.
    Documents that a filter refuses don't count. The result doesn't depend on the order of the work. `database` has a
    view `batches` of the examined documents.
    """
    database.execute(_TABLES)
    database.execute(_CANDIDATES)
    originals: dict[int, int] = {}
    while database.execute("from candidates limit 1").fetchone():
        database.execute(_COMPARE)
        pairs = database.execute(_SIMILAR).fetchnumpy()
        originals = _originals(pairs["earlier"], pairs["document"])
        columns = {"document": [*originals.keys()], "original": [*originals.values()]}
        database.register("originals", {name: np.array(places, np.uint64) for name, places in columns.items()})
        database.execute(_OTHER_CANDIDATES)
    if originals:
        database.execute(_COPIES)


def _originals(earlier: UInt64[np.ndarray, " P"], document: UInt64[np.ndarray, " P"]) -> dict[int, int]:
    """The original of each copy. The arguments are all P similar pairs, ordered by place."""
    originals: dict[int, int] = {}
    for first, second in zip(earlier.tolist(), document.tolist(), strict=True):
        if second not in originals and first not in originals:  # all pairs of `first` as the later one are decided
            originals[second] = first
    return originals
