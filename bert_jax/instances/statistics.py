"""Statistics of the text and the instances that preparation processed."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

Tally = Annotated[int, Field(ge=0, lt=1 << 53, strict=True)]
MOST_RANDOM = 0.6
"""Share of random second segments above which documents are too short. A share of one half is intended."""
MANY_RANDOM = "{:.0%} of the second segments are random: documents are too short for pairs"


@dataclass
class Statistics:
    """Counts over a part of the corpus. The `+` operator adds the counts of two parts."""

    __pydantic_config__: ClassVar = ConfigDict(strict=False)  # lets pydantic build it from a JSON object
    documents: Tally = 0
    sentences: Tally = 0
    tokens: Tally = 0
    unknown_tokens: Tally = 0
    characters: Tally = 0
    """Number of characters of the sentences, without spaces; 0 in records of earlier versions."""
    unknown_characters: Tally = 0
    """Number of characters behind unknown pieces."""
    words: Tally = 0
    """Number of words of the sentences, split at blanks; 0 in records of earlier versions."""
    instances: Tally = 0
    rows: Tally = 0
    """Number of rows. Each row is a record."""
    instance_tokens: Tally = 0
    """Number of tokens in instances, with special tokens and without padding."""
    random_pairs: Tally = 0
    """Number of instances whose second segment was drawn at random."""
    swapped_pairs: Tally = 0
    """Number of instances whose segments are in reverse order."""
    tokens_cut: Tally = 0
    """Number of tokens that were removed to fit the length."""
    units: Counter[str] = field(default_factory=Counter)
    """Number of marked units by kind: words, phrases, entities. Also the tokens in phrases and in entities, and the
    word boundaries and spans that weren't taken."""
    unit_sizes: Counter[str] = field(default_factory=Counter)
    """Number of units by kind and size in tokens, such as "words 3"."""
    repairs: Counter[str] = field(default_factory=Counter)
    """Kinds of damage that were repaired, with their counts."""

    def __add__(self, other: "Statistics") -> "Statistics":
        mine, theirs = vars(self), vars(other)
        return type(self)(**{name: mine[name] + theirs[name] for name in mine})

    def fill(self, length: int) -> float:
        """Share of the positions that hold tokens in rows of `length` tokens, from 0 to 1."""
        return self.instance_tokens / max(self.rows * length, 1)

    @property
    def unknown_share(self) -> float:
        """Share of unknown pieces among all pieces, from 0 to 1."""
        return self.unknown_tokens / max(self.tokens, 1)

    @property
    def unknown_character_share(self) -> float:
        """Share of the characters behind unknown pieces, from 0 to 1."""
        return self.unknown_characters / max(self.characters, 1)

    @property
    def random_share(self) -> float:
        """Share of the instances whose second segment was drawn at random, from 0 to 1."""
        return self.random_pairs / max(self.instances, 1)

    def longer(self, name: str, budget: int) -> int:
        """Number of units of more than `budget` tokens, which masking never takes."""
        sizes = (key.rpartition(" ") + (count,) for key, count in self.unit_sizes.items())
        return sum(count for kind, _, size, count in sizes if kind == name and int(size) > budget)

    def table(self, length: int, budget: int) -> list[tuple[str, str]]:
        """Names and values for a table that a person reads.

        `length`: the number of tokens in a full sequence. `budget`: the number of them that are masked.
        """
        rows = [
            ("documents", f"{self.documents:,}"),
            ("sentences", f"{self.sentences:,}"),
            ("words, split at blanks", f"{self.words:,}"),
            ("tokens", f"{self.tokens:,}"),
            *self._unit_rows(budget),
            ("unknown pieces", f"{self.unknown_share:.2%}"),
            ("characters of these", f"{self.unknown_character_share:.2%}"),
            ("instances", f"{self.instances:,}"),
        ]
        if self.random_pairs:
            rows.append(("random second segments", f"{self.random_share:.2%}"))
        if self.swapped_pairs:
            rows.append(("swapped segments", f"{self.swapped_pairs / self.instances:.2%}"))
        if self.rows != self.instances:
            rows.append(("rows", f"{self.rows:,}"))
        rows.append(("padding", f"{1 - self.fill(length):.2%}"))
        rows.append(("tokens cut to fit", f"{self.tokens_cut:,}"))
        rows += [(name, f"{times:,}") for name, times in sorted(self.repairs.items())]
        return rows

    def units_json(self, budget: int) -> dict[str, dict[str, float]]:
        """For each kind of unit: its number of units, their mean number of tokens, and how many are `longer`."""
        kinds = {}
        for name, kind in (("words", "word"), ("phrases", "phrase"), ("entities", "entity")):
            if count := self.units[name]:
                tokens = self.tokens if name == "words" else self.units[f"tokens in {name}"]
                kinds[kind] = {"units": count, "tokens": tokens / count, "longer": self.longer(name, budget)}
        return kinds

    def _unit_rows(self, budget: int) -> list[tuple[str, str]]:
        rows = []
        for name, count in self.units.items():
            if name == "words":
                rows.append(("words a sentence", f"{count / max(self.sentences, 1):.1f}"))
            elif name in ("phrases", "entities"):
                tokens = self.units[f"tokens in {name}"] / max(count, 1)
                rows.append((f"{name} a thousand tokens", f"{1000 * count / max(self.tokens, 1):.1f}"))
                rows.append((f"tokens of {'a phrase' if name == 'phrases' else 'an entity'}", f"{tokens:.2f}"))
            elif not name.startswith("tokens in ") and count:
                rows.append((name, f"{count:,}"))
            if longer := self.longer(name, budget):
                rows.append((f"{name} of over {budget} tokens, never masked whole", f"{longer:,}"))
        return rows
