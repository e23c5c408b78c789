"""Survey of the documents of a sample without a tokenizer: languages, scripts, and faults of the text."""

import random
import re
from collections import Counter
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from bert_jax.records.corpus import Document
from bert_jax.records.curation import FEWEST_TIMES, times_allowed
from bert_jax.records.line_kinds import KINDS, LONG_LINE
from bert_jax.system import figures
from bert_jax.system.figures import Figures
from bert_jax.system.workers import available_cores, map_in_processes
from bert_jax.text.identification import blocks, identified
from bert_jax.text.scripts import letters_by_script

_BLOCKS = 16_000
"""Most blocks of text whose language is identified. Of a language with 5% of the text, the share is then right to 0.2
points (one standard deviation)."""
_BLOCKS_AT_ONCE = 200
_EXAMPLE_CHARACTERS = 50
_KINDS = {kind.name: re.compile(kind.pattern, re.MULTILINE) for kind in KINDS if kind.is_fault}
"""Faults that a pattern finds in the text, by their names."""
UNDECODED = "lines with undecodable bytes"
LONG_LINES = f"lines over {LONG_LINE:,} characters"
DUPLICATES, BOILERPLATE = "duplicate documents", "boilerplate lines"


class TextShare(Figures):
    """A language or a script in the text."""

    name: str
    share: figures.Percentage
    """A language's share of the characters, or a script's share of the letters."""


class Fault(Figures):
    """A fault of the text: a model shouldn't learn it, or it wastes training time."""

    fault: str
    count: int
    """How often the sample has it."""
    documents: int | None
    """Documents of the sample that have it; None for repairs, which the reader counts by lines or records."""
    share: Annotated[float | None, figures.Unit("{:.2%}".format), "share of documents"]
    example: Annotated[str, Field(max_length=2 * _EXAMPLE_CHARACTERS)] = ""


class Survey:
    """Counts what documents show, one document after the other. Only a few documents stay in memory."""

    def __init__(self):
        self.documents = self.characters = self.longest_line = 0
        # Of each fault: how often it occurs, how many documents have it, and its first example.
        self._counts, self._documents, self._examples = Counter[str](), Counter[str](), dict[str, str]()
        # Hashes of documents; the number of documents that have a line, by its hash; lines that many have.
        self._seen, self._lines, self._frequent = set[int](), Counter[int](), dict[int, str]()
        self._blocks, self._blocks_seen = list[str](), 0
        self._random = random.Random(0)

    def add(self, document: Document) -> None:
        text = "\n".join(document)
        self.documents += 1
        self.characters += len(text)
        for name, pattern in _KINDS.items():
            if first := pattern.search(text):
                around = text[max(first.start() - 20, 0) : first.end() + 20]
                self._note(name, len(pattern.findall(text)), around)
        self.longest_line = max(self.longest_line, *map(len, document))
        if long := [line for line in document if len(line) > LONG_LINE]:
            self._note(LONG_LINES, len(long), long[0])
        if (digest := hash(text)) in self._seen:
            self._note(DUPLICATES, 1, text)
        self._seen.add(digest)
        for line in set(document):
            self._lines[hash(line)] += 1
            if self._lines[hash(line)] == FEWEST_TIMES:
                self._frequent[hash(line)] = line
        for block in blocks(document):
            self._offer(block)

    def faults(self, repairs: Counter[str]) -> Iterator[Fault]:
        lost = repairs[UNDECODED]
        for name, count in repairs.items():
            if count:
                yield Fault(fault=name, count=count, documents=None, share=None)
        for name, count in self._counts.items():
            if not (lost and name.startswith("U+FFFD")):
                yield self._fault(name, count, self._documents[name], self._examples[name])
        if common := self._boilerplate():
            line = max(common, key=lambda line: common[line] * len(line))
            # How many documents have any of the lines isn't known.
            yield self._fault(BOILERPLATE, sum(common.values()), None, line)

    @property
    def boilerplate_share(self) -> float:
        return sum(len(line) * count for line, count in self._boilerplate().items()) / max(self.characters, 1)

    def languages(self) -> tuple[list[TextShare], list[TextShare]]:
        """The languages of blocks of the text, and its scripts, by their shares, largest first."""
        languages, scripts = Counter[str](), Counter[str]()
        processes = available_cores() if len(self._blocks) > _BLOCKS // 4 else 1
        judged = map_in_processes(_judged, self._blocks, processes, _BLOCKS_AT_ONCE)
        for block, (language, letters) in zip(self._blocks, judged, strict=True):
            languages[language] += len(block)
            scripts += letters
        return _shares(languages), _shares(Counter({name.title(): count for name, count in scripts.items()}))

    def _note(self, name: str, count: int, example: str) -> None:
        self._counts[name] += count
        self._documents[name] += 1
        self._examples.setdefault(name, example)

    def _fault(self, name: str, count: int, documents: int | None, example: str) -> Fault:
        shown = "".join(each if each.isprintable() else repr(each)[1:-1] for each in example.strip())
        if len(shown) > _EXAMPLE_CHARACTERS:
            shown = shown[: _EXAMPLE_CHARACTERS - 3] + "..."
        share = None if documents is None else documents / max(self.documents, 1)
        return Fault(fault=name, count=count, documents=documents, share=share, example=shown)

    def _boilerplate(self) -> dict[str, int]:
        """The lines that are boilerplate, with the number of documents that have them."""
        allowed = times_allowed(self.documents)
        return {line: self._lines[digest] for digest, line in self._frequent.items() if self._lines[digest] > allowed}

    def _offer(self, block: str) -> None:
        """Offers a block to the uniform sample of blocks (reservoir sampling)."""
        self._blocks_seen += 1
        if len(self._blocks) < _BLOCKS:
            self._blocks.append(block)
        elif (place := self._random.randrange(self._blocks_seen)) < _BLOCKS:
            self._blocks[place] = block


def _judged(block: str) -> tuple[str, Counter[str]]:
    return identified(block), letters_by_script(block)


def _shares(counts: Counter[str]) -> list[TextShare]:
    total = max(counts.total(), 1)
    return [TextShare(name=name, share=count / total) for name, count in counts.most_common()]
