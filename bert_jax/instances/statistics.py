"""What preparation saw."""

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field

Count = Annotated[int, Field(ge=0, lt=1 << 53, strict=True)]


@dataclass
class Statistics:
    """Counts over some part of the corpus; they add up."""

    __pydantic_config__: ClassVar = ConfigDict(strict=False)  # so that pydantic makes it of a JSON object
    documents: Count = 0
    sentences: Count = 0
    tokens: Count = 0
    unknown_tokens: Count = 0
    instances: Count = 0
    instance_tokens: Count = 0
    """Tokens in instances, special ones included, padding not."""
    random_pairs: Count = 0
    tokens_cut: Count = 0
    """Tokens taken off to fit the length."""
    repairs: Counter[str] = field(default_factory=Counter)
    """What was mended, and how often."""

    def __add__(self, other: "Statistics") -> "Statistics":
        mine, theirs = vars(self), vars(other)
        return type(self)(**{name: mine[name] + theirs[name] for name in mine})

    @property
    def unknown_share(self) -> float:
        """Unknown pieces of all."""
        return self.unknown_tokens / max(self.tokens, 1)

    def as_json(self) -> dict[str, Any]:
        """For a JSON file."""
        return asdict(self) | {"repairs": dict(self.repairs)}

    def rows(self, length: int) -> list[tuple[str, str]]:
        """Names and values for a person; `length` is that of a full sequence."""
        share = lambda part, whole: f"{part / max(whole, 1):.2%}"
        return [
            ("documents", f"{self.documents:,}"),
            ("sentences", f"{self.sentences:,}"),
            ("tokens", f"{self.tokens:,}"),
            ("unknown pieces", f"{self.unknown_share:.2%}"),
            ("instances", f"{self.instances:,}"),
            *([("random second segments", share(self.random_pairs, self.instances))] if self.random_pairs else []),
            ("padding", share(self.instances * length - self.instance_tokens, self.instances * length)),
            ("tokens cut to fit", f"{self.tokens_cut:,}"),
            *((name, f"{times:,}") for name, times in sorted(self.repairs.items())),
        ]
