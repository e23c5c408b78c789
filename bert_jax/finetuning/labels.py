"""Classes and tags: their names and numbers."""

from collections.abc import Iterable, Sequence

from bert_jax.corpora.shown import listed, quoted
from bert_jax.system.errors import UsageError


class Labels:
    """Names in the order of the model's outputs."""

    def __init__(self, names: Sequence[str]):
        """Raises UsageError where there are fewer than two, or one stands twice."""
        if len(set(names)) < max(len(names), 2):
            raise UsageError(f"there are no two different labels to tell apart, only {_listed(names)}; give more rows")
        self.names = tuple(names)
        self._numbers = {name: number for number, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)

    def number(self, name: str, place: str) -> int:
        """The number of `name`. Raises UsageError, which names its `place`, for one that isn't there."""
        if name not in self._numbers:
            raise UsageError(
                f"{place}: the label {quoted(name)} is none of the {len(self)} that are known, {_listed(self.names)}; "
                "correct it, or name all labels by task.labels (those of the training rows are taken)"
            )
        return self._numbers[name]


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Different `names`, sorted; by value where all are whole numbers, and then as they are written: 01 and 1.

    A name of more digits than 18 counts as no number: Python reads no number of thousands of digits.
    """
    different = set(names)
    numbers = all(len(name) <= 18 and name.removeprefix("-").isdecimal() for name in different)
    return tuple(sorted(different, key=(lambda name: (int(name), name)) if numbers else None))


def _listed(names: Sequence[str]) -> str:
    return listed(names) if names else "none"
