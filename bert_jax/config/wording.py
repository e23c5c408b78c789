"""Describes in words which values a setting accepts, for messages, --help and completion."""

import math
import operator
import re
import types
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import annotated_types
from pydantic import GetCoreSchemaHandler
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from bert_jax.system.errors import shortened

_SENTENCE_END = re.compile(r"(?<=[a-z0-9)`\]]\.)(?<! al\.)\s+(?=[A-Z0-9`])")
"""The space between two sentences; `et al.` ends none."""


def counted(number: float, nouns: str) -> str:
    """A number and what it counts. `nouns` is in the plural: 1 and "empty lines left out" give "1 empty line left
    out"."""
    return f"{number:,.15g} " + (re.sub(r"s\b", "", nouns, count=1) if number == 1 else nouns)


def help_items(described: Mapping[str, str]) -> str:
    """A list for a help text: what each value of a setting means."""
    return "\n".join(f"- {value}: {meaning}." for value, meaning in described.items())


class OneOf:
    """In an Annotated: restricts a text to some values, such as the keys of a table, which a Literal would have to
    repeat."""

    def __init__(self, choices: Iterable[str]):
        self.choices = tuple(choices)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.literal_schema(list(self.choices))


class Kind(NamedTuple):
    """Which values a setting accepts, as read from its type annotation."""

    base: Any
    """int, float, str, bool, or another class."""
    choices: tuple[Any, ...] = ()
    """The values of a Literal or a OneOf; () for other types."""
    several: bool = False
    """Whether the setting is a tuple of any length. `base` is then the type of its items."""
    fewest: int = 0
    """Minimum number of items of such a tuple."""
    optional: bool = False
    """Whether the setting may be None."""
    bounds: tuple[Any, ...] = ()
    """Bounds of the value or of each item: annotated_types' Gt, Ge, Lt and Le."""
    pattern: str | None = None
    """Regular expression that a text must match."""
    example: str | None = None
    """An example of a text that matches `pattern`."""
    words: tuple[str, ...] = ()
    """Words that may replace the value or all items, as in `Literal["balanced"] | tuple[float, ...]`."""

    @classmethod
    def of(cls, annotation: Any, metadata: tuple[Any, ...] = ()) -> "Kind":
        """The values that a type annotation accepts. `metadata` is that of an Annotated around it."""
        origin, parts = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            return cls.of(parts[0], (*metadata, *parts[1:]))
        if origin in (Union, types.UnionType):
            options = [option for option in parts if option is not types.NoneType]
            others = [option for option in options if get_origin(option) is not Literal] or options
            kind = cls.of(others[0], metadata) if len(others) == 1 else cls(annotation)
            words = tuple(word for option in options if option not in others for word in get_args(option))
            return kind._replace(optional=types.NoneType in parts, words=words)
        fields = [each for each in metadata if isinstance(each, FieldInfo)]
        constraints = [*metadata, *(each for field in fields for each in field.metadata)]
        if origin is tuple:
            fewest = max((each.min_length for each in constraints if hasattr(each, "min_length")), default=0)
            return cls.of(parts[0])._replace(several=True, fewest=fewest)
        choices = next((each.choices for each in constraints if isinstance(each, OneOf)), ())
        return cls(
            str if origin is Literal else annotation,
            choices=parts if origin is Literal else choices,
            bounds=tuple(each for each in constraints if type(each) in _BOUNDS),
            pattern=next((each.pattern for each in constraints if getattr(each, "pattern", None)), None),
            example=next((field.examples[0] for field in fields if field.examples), None),
        )

    @classmethod
    def of_field(cls, field: FieldInfo) -> "Kind":
        """What values a setting accepts, from its type annotation."""
        return cls.of(field.annotation, tuple(field.metadata))

    @property
    def expected(self) -> str:
        """The expected value in words: "a whole number above 0"."""
        if self.choices:
            names = list(map(str, self.choices))
            words = f"one of {', '.join(names)}" if len(names) > 2 else " or ".join(names)
        elif self.base is bool:
            words = "True or False"
        elif self.base in (int, float):
            bounded = any(isinstance(bound, annotated_types.Lt | annotated_types.Le) for bound in self.bounds)
            number = "whole number" if self.base is int else "number" if bounded else "finite number"
            bounds = " and ".join(map(_in_words, self.bounds))
            words = f"{number}s{bounds and f' {bounds}'}" if self.several else f"a {number}{bounds and f' {bounds}'}"
        elif self.example:
            words = f"a text like {self.example}"
        elif isinstance(self.base, type) and hasattr(self.base, "model_fields"):
            words = f"a {self.base.__name__}"
        elif self.base is str:
            words = "a text"
        elif get_origin(self.base) is dict:
            words = "a table of settings"
        else:
            words = "a path"
        if self.several and self.base not in (int, float):
            words = f"{'one or more' if self.fewest else 'any number of them'}, each {words}"
        return ", or ".join([words, *self.words, *(["None"] if self.optional else [])])

    @property
    def placeholder(self) -> str:
        """Placeholder of the value in a usage line: "N", "adamw|lamb", "TEXT ..."."""
        if self.choices:
            name = "|".join(map(str, self.choices))
        elif self.base is bool:
            name = "True|False"
        else:
            name = {int: "N", float: "X", str: "TEXT"}.get(self.base, "PATH")
        return "|".join([*self.words, f"{name} ..." if self.several else name])

    def stands_alone(self, word: str) -> bool:
        """Whether a word is a whole value rather than an item: `None`, or one of `words`."""
        return word in self.words or (self.optional and word == "None")

    def read(self, word: str) -> Any:
        """The value that a word of a command line stands for; in a tuple, the value of an item. Raises ValueError if
        the setting doesn't accept the word."""
        if self.optional and word == "None":
            return None
        if word in self.words:
            return word
        choices = (True, False) if self.base is bool else self.choices
        if choices:
            return choices[list(map(str, choices)).index(word)]
        if self.base in (int, float):
            value = self.base(word)
            if not (abs(value) < math.inf and all(_within(value, bound) for bound in self.bounds)):
                raise ValueError(f"{word} is outside the bounds")
            return value
        if self.pattern is not None and not re.search(self.pattern, word):
            raise ValueError(f"{word} doesn't match {self.pattern}")
        return word


def _within(value: float, bound: Any) -> bool:
    name = _BOUNDS[type(bound)][1]
    return bool(getattr(operator, name)(value, getattr(bound, name)))


_BOUNDS = {
    annotated_types.Gt: ("above", "gt"),
    annotated_types.Ge: ("of at least", "ge"),
    annotated_types.Lt: ("below", "lt"),
    annotated_types.Le: ("of at most", "le"),
}
"""For each type of bound: its words in messages, and a name. The attribute with the limit has this name, and so does
the function of `operator` that compares a value with the limit."""


def _in_words(bound: Any) -> str:
    words, name = _BOUNDS[type(bound)]
    return f"{words} {getattr(bound, name):,.10g}"


def value_text(value: Any) -> str:
    """`value` for a message: on one line, and cut if it is long."""
    text = value if isinstance(value, str) else repr(value)
    text = text if text.isprintable() and text.strip() else repr(text)
    return shortened(text)


def article(model: str) -> str:
    """The article before the name of a model: "an" if its first letter is spoken as a vowel, else "a"."""
    return "an" if model[0] in "AEX" else "a"


def first_sentence(text: str) -> str:
    """The first sentence of the first line of `text`."""
    return _SENTENCE_END.split(text.partition("\n")[0])[0]
