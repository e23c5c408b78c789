"""Looks up the rows of tasks in the text that a model was pretrained on."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, UInt64

from bert_jax.config.run import RunConfig
from bert_jax.instances.prepared_data import TRAIN
from bert_jax.instances.shards import InstanceSource
from bert_jax.pretraining.dataset import prepared_for
from bert_jax.records.signatures import words_of
from bert_jax.run.recorded_config import is_elsewhere
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.run_files import is_checkpoint
from bert_jax.system.bucket import Place, place_of
from bert_jax.system.errors import RunError, UsageError
from bert_jax.system.progress import stage
from bert_jax.text.tokenizer import Tokenizer

_WORD, _CHARACTER = 30, 13
"""Weights of a word, and of a character in a script without spaces: 13 words weigh as much as 30 characters."""
_WHOLE, _LEAST = 13 * _WORD, 10 * _WORD
"""Weight of an n-gram (Brown et al. 2020, appendix C, take 13 words, too) and of the shortest text that is looked up.

In spoken English, 1% of the sentences of 8 words and 0.1% of those of 10 words occur elsewhere by chance."""
_TOKENS_AT_ONCE = 50_000
"""Tokens of prepared text that are searched at once. Each token takes about 500 bytes of memory."""
_EXAMPLES, _EXAMPLE_CHARACTERS = 2, 200
_BASE = 0x9E3779B97F4A7C15
"""Base of the polynomial hashes of n-grams, which are numbers modulo 2^64."""


class Contamination(NamedTuple):
    """How many rows of a task are in the text that a model was pretrained on."""

    rows: int
    rows_found: int
    too_short: int
    """Number of rows of fewer than 10 words, or 24 characters. Not looked up, because common phrases are as long."""
    tokens: int
    """Tokens of prepared text that were looked through, special ones included."""
    examples: list[str]
    """The beginnings of the first rows that were found."""
    unknown: str | None
    """Why the model's text, or a part of it, couldn't be looked through; None if all was."""

    @property
    def share(self) -> float | None:
        """The share found of the rows that aren't too short; None if nothing could be looked up."""
        looked_up = self.rows - self.too_short
        return self.rows_found / looked_up if looked_up and self.tokens else None


def contaminations(run: Place, rows: Mapping[str, Sequence[Sequence[str]]]) -> dict[str, Contamination]:
    """Looks up sets of rows in the text that the model of `run` (a run or a checkpoint) was pretrained on.

    A row has one text or several, and is found if one of them is.

    The text is the prepared training sequences of the longest length, without held-out documents, whether training has
    reached them or not. A model that began with another one (`init`) has also seen the text of that model; rows that it
    was fine-tuned on don't count. A text is found if the sequences have 13 of its words in a row, or 30 characters in
    scripts without spaces; in mixed text, both count in proportion. A text of 10 to 12 words (24 to 29 characters) is
    found as a whole. Words are compared as the tokenizer cleans them, and without case and punctuation. Text with an
    unknown piece isn't found, nor is text that the preparation divided between sequences that aren't adjacent.

    The text is read once for all sets, 1 to 2 million tokens a second; memory is bounded.
    """
    every, tokens, unknown = [*chain.from_iterable(rows.values())], 0, None
    found, long_enough = np.zeros((2, len(every)), bool)
    try:
        for config, pretraining in pretrainings(run):
            prepared = prepared_for(config, pretraining, max(config.lengths))
            search = _Search(every, pretraining.files.tokenizer)
            source = InstanceSource(prepared, TRAIN, config.input.damaged_records)
            search.look_through(source, prepared.length)
            found, long_enough = found | search.found, long_enough | search.long_enough
            tokens += prepared.train.instance_tokens
    except (UsageError, RunError) as error:
        unknown = str(error)
    counted, end = {}, 0
    for name, of_set in rows.items():
        begin, end = end, end + len(of_set)
        places = begin + np.flatnonzero(found[begin:end])
        examples = [" | ".join(every[place])[:_EXAMPLE_CHARACTERS] for place in places[:_EXAMPLES]]
        too_short = int((~long_enough[begin:end]).sum()) if tokens else 0
        counted[name] = Contamination(len(of_set), len(places), too_short, tokens, examples, unknown)
    return counted


def pretrainings(path: Place) -> Iterator[tuple[RunConfig, RunDirectory]]:
    """Yields the pretraining runs that made the model at `path`, newest first, by following `init`.

    Raises UsageError for a model whose text isn't here.
    """
    seen = set[Place]()
    while path not in seen:
        seen.add(path)
        run = RunDirectory(path.parent.parent if is_checkpoint(path) else path)
        if run.files.published or run.files.origin:
            raise UsageError(f"{run.path} is a model of another program, whose text isn't here")
        config = run.files.config
        if isinstance(config, RunConfig):
            yield config, run
        elif config.from_random:
            raise UsageError(f"{run.path} began with random parameters and saw no text but its rows")
        if config.init is None:
            return
        if is_elsewhere(config.init, is_model=True):
            raise UsageError(f"{run.path} began with {config.init}, which isn't on this machine")
        path = place_of(config.init)


class _Search:
    """The n-grams of all rows, as one tokenizer spells them, by their number of words."""

    def __init__(self, rows: Sequence[Sequence[str]], tokenizer: Tokenizer):
        self._spelling = [tokenizer.text_bytes(number) for number in range(len(tokenizer.vocabulary))]
        self._unknown = tokenizer.vocabulary.unknown_id
        self._spelling[self._unknown] = " \U00010000row ".encode()  # a word that no text has
        encoded = tokenizer.encode_batch([text for row in rows for text in row])
        hashes, ends, alone = words_of([*map(self._spelled, encoded), ""])
        ngrams, text = _Ngrams(hashes, alone), np.repeat(np.arange(len(ends) - 1), np.diff(ends))
        begin, end, last = np.arange(len(hashes)), ngrams.ends(_WHOLE), ends[text + 1]
        short = (begin == ends[text]) & (ngrams.ends(_LEAST) <= last)  # a whole text
        begin = np.flatnonzero((end <= last) | short)
        end = np.minimum(end, last)[begin]
        row = np.repeat(np.arange(len(rows)), [len(row) for row in rows])[text[begin]]
        hashes = ngrams.hashes(begin, end)
        order = np.argsort(hashes)
        sizes = (end - begin)[order]
        self._ngrams = [(size, hashes[order][sizes == size], row[order][sizes == size]) for size in np.unique(sizes)]
        """For each number of words: the hashes of the n-grams, ascending, and the numbers of their rows."""
        self.found, self.long_enough = np.zeros((2, len(rows)), bool)
        self.long_enough[row] = True

    def _spelled(self, ids: Iterable[int]) -> str:
        return b"".join(map(self._spelling.__getitem__, ids)).decode("utf-8", "replace")

    def look_through(self, source: InstanceSource, length: int) -> None:
        """Looks up the rows in the sequences of `source`, of `length` tokens at most."""
        self._spelling[self._unknown] = " \U00010000text ".encode()
        at_once = max(_TOKENS_AT_ONCE // length, 1)
        again = at_once // 16 + 1  # n-grams may begin in earlier sequences
        with stage("Looking up rows in the prepared text", len(source), "sequences") as progress:
            for first in range(0, len(source) if self._ngrams else 0, at_once):
                last = min(first + at_once, len(source))
                ids = source.read(range(max(first - again, 0), last)).ids
                hashes, _, alone = words_of([self._spelled(ids.tolist())])
                self._look_up(_Ngrams(hashes, alone))
                progress.advance(last - first)

    def _look_up(self, text: "_Ngrams") -> None:
        for size, hashes, rows in self._ngrams:
            begin = np.arange(text.count - size + 1)
            of_text = text.hashes(begin, begin + size)
            places = np.searchsorted(hashes, of_text).clip(max=len(hashes) - 1)
            if (same := hashes[places] == of_text).any():
                # Sorts, because numpy 2.0 overflows when it checks whether a table of 64-bit numbers is small.
                self.found[rows[np.isin(hashes, of_text[same], kind="sort")]] = True


class _Ngrams:
    """The n-grams in W words, by the words' hashes; `alone` are the characters of scripts without spaces."""

    def __init__(self, hashes: UInt64[np.ndarray, " W"], alone: Bool[np.ndarray, " W"]):
        self.count = len(hashes)
        self._before = np.concatenate([[0], np.cumsum(np.where(alone, _CHARACTER, _WORD))])
        powers = np.cumprod(np.full(self.count, _BASE, np.uint64))
        self._inverses = np.cumprod(np.full(self.count, pow(_BASE, -1, 1 << 64), np.uint64))
        self._sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(hashes * powers)])

    def ends(self, weight: int) -> Int[np.ndarray, " W"]:
        """The end of the shortest n-gram of at least this `weight` that begins at each word; W+1 if there is none."""
        return np.searchsorted(self._before, self._before[:-1] + weight)

    def hashes(self, begin: Int[np.ndarray, " n"], end: Int[np.ndarray, " n"]) -> UInt64[np.ndarray, " n"]:
        """The hashes of the n-grams of words begin[i] to end[i] - 1. Equal n-grams have equal hashes."""
        return (self._sums[end] - self._sums[begin]) * self._inverses[begin]
