"""One row of a task's file: named values with their location."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from bert_jax.corpora.shown import listed, quoted
from bert_jax.system.errors import UsageError


class Record(NamedTuple):
    """One row of a task's file: a row of a table, a sentence with its tags, or a question with its context."""

    place: str
    """File and line of the row, for error messages."""
    values: dict[str, Any]
    columns: tuple[str, ...] = ()
    """The names of all columns of a table; a row may lack the last ones. Empty for other formats."""

    def value(self, name: str) -> Any:
        """The value of column `name`, or with dots of a nested field: `a.b`. Raises UsageError if it is missing."""
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
        """Whether the column or nested field `name` exists and isn't null."""
        try:
            return self.value(name) is not None
        except UsageError:
            return False


def check_names(names: Sequence[str], place: str) -> None:
    """Raises UsageError if a column name occurs twice. `place` says in the message where the names come from."""
    if len(set(names)) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise UsageError(f"{place} names the column {quoted(twice)} twice; rename one")
