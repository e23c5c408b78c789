"""One row of a task's file: named values, and where they stand."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from bert_jax.corpora.shown import listed, quoted
from bert_jax.system.errors import UsageError


class Record(NamedTuple):
    """A row of a table, a sentence of words, a question: whatever a task's file has one after the other."""

    place: str
    """File and line, as an error names them."""
    values: dict[str, Any]
    columns: tuple[str, ...] = ()
    """Of a table the names of all its columns, of which a row may lack the last ones."""

    def value(self, name: str) -> Any:
        """The value named `name`, or with dots one in an object: `a.b`. Raises UsageError where there is none."""
        if name in self.values:
            return self.values[name]
        value = self.values
        for part in name.split("."):
            if not isinstance(value, dict) or part not in value:
                there = listed(self.values)
                raise UsageError(
                    f"{self.place} has no column {name!r}: there is {there}; give rows with this one, or name "
                    "what is there: to finetune by --task.texts, --task.label and the like, to features by --texts, to "
                    "predict and evaluate, if that is no line of names, by --columns"
                )
            value = value[part]
        return value

    def has(self, name: str) -> bool:
        """Whether `value` would give something that is not null."""
        try:
            return self.value(name) is not None
        except UsageError:
            return False


def check_names(names: Sequence[str], place: str) -> None:
    """Raises UsageError, which says what at `place` names the columns, for a name that stands twice."""
    if len(set(names)) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise UsageError(f"{place} names the column {quoted(twice)} twice; rename one")
