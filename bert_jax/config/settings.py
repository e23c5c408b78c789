"""The base of every settings class."""

import operator
from collections.abc import Iterator, Mapping, Sequence
from textwrap import indent
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from bert_jax.config.wording import Kind, value_text
from bert_jax.system.errors import Setting, UsageError, did_you_mean

Group = TypeVar("Group", bound="Settings")


def one_or_several(value: Any) -> Any:
    """A tuple of one item for a string, any other value unchanged: for a setting that may have several values."""
    return (value,) if isinstance(value, str) else value


OneOrSeveral = Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(one_or_several)]
"""Names. A string stands for a single name."""


class SettingsError(UsageError, ValueError):
    """Invalid settings. The message is one line that has each wrong field, its value and the expectation."""

    def __init__(self, prefix: str, conflicts: Sequence[str], problems: Mapping[str, str]):
        """`prefix`: the `PREFIX` of the settings class. `conflicts`: messages about fields that don't fit each other.

        `problems` maps the dotted path of each invalid field to a text that is appended to it, such as "=0: expected 1
        or more".
        """
        invalid = (f"{_spelled(prefix, path)}{text}" for path, text in problems.items())
        super().__init__("; ".join([*conflicts, *invalid]))
        self.conflicts, self.problems = conflicts, problems


GIVEN = object()
"""In a `Requirement`: any value but the default."""


class Requirement(NamedTuple):
    """A setting that needs another one: if `name` has `value`, then `other` must have `needed`."""

    name: str
    """Dotted name within the settings that have the requirement."""
    value: object
    """A value, or GIVEN."""
    other: str
    needed: object
    """A value, or GIVEN."""
    reason: str


class Settings(BaseModel):
    """A frozen, validated group of settings.

    Unknown names raise SettingsError, values can't be changed after construction, and instances are hashable, so they
    can be static arguments of a jitted function or attributes of a Flax module. `model_fields_set` has the names of the
    fields that a file, flags or code gave, also where a value is the default; copies keep it. The string under a field
    is its help text. A field's validator raises ValueError with a text that is appended to the field's name, such as
    "=0 is too small".
    """

    PREFIX: ClassVar[str] = ""
    """What messages put before the name of a setting: `--model.`. Empty for settings that have no flags."""
    REQUIREMENTS: ClassVar[tuple[Requirement, ...]] = ()
    """The combinations of two settings that are refused; `_conflicts` has those that must be computed."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    def __init__(self, /, **values: Any):
        """Raises SettingsError for invalid values."""
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise _explained(error, type(self)) from None

    @model_validator(mode="after")
    def _fit_each_other(self: Group) -> Group:
        broken = (each for each in self.REQUIREMENTS if self._has(each.name, each.value))
        if requirement := next((each for each in broken if not self._has(each.other, each.needed)), None):
            name, _, other, needed, reason = requirement
            remedy = f"give {self._flag(other)}" if needed is GIVEN else f"set {self._flag(other, needed)}"
            raise ValueError(
                f"{self._current(name)} with {self._current(other)}: {reason}; {remedy}, or change {self._flag(name)}"
            )
        if conflict := next(self._conflicts(), None):
            raise ValueError(conflict)
        return self

    def _has(self, path: str, value: object) -> bool:
        """Whether the setting has this value, or any but its default if `value` is GIVEN."""
        group, _, name = path.rpartition(".")
        owner = operator.attrgetter(group)(self) if group else self
        if value is GIVEN:
            return bool(getattr(owner, name) != type(owner).model_fields[name].default)
        return bool(getattr(owner, name) == value)

    def _flag(self, path: str, value: object = ...) -> str:
        """A setting of this group as its flag, with `value` unless that is an ellipsis."""
        return Setting(f"{self.PREFIX.removeprefix('--')}{path}", value)

    def _current(self, path: str) -> str:
        """A setting of this group as its flag, with the value that it has."""
        return self._flag(path, operator.attrgetter(path)(self))

    def __repr__(self) -> str:
        """The settings that differ from the defaults; groups of settings have a line each."""
        fields = type(self).model_fields
        defaults = {name: field.get_default(call_default_factory=True) for name, field in fields.items()}
        changed = [f"{name}={value!r}" for name, value in self if value != defaults[name]]
        if any(isinstance(value, Settings) for _, value in self):
            return f"{type(self).__name__}(\n" + indent("".join(f"{each},\n" for each in changed), "  ") + ")"
        return f"{type(self).__name__}({', '.join(changed)})"

    __str__ = __repr__

    def _conflicts(self) -> Iterator[str]:
        """Yields a message for each combination of settings that is refused beside `REQUIREMENTS`; the first one is
        raised."""
        yield from ()

    def replace(self: Group, **changes: Any) -> Group:
        """A validated copy with other values of whole fields. (Pydantic's own `model_copy` doesn't validate.)"""
        return type(self)(**self._explicit | changes)

    @property
    def _explicit(self) -> dict[str, Any]:
        """The fields that were given, with their values."""
        return {name: value for name, value in self if name in self.model_fields_set}

    def change(self: Group, **changes: Any) -> Group:
        """A validated copy. A mapping has other settings of a group, as in `config.change(model={"norm": "pre"})`; any
        other value is that of a whole field, as in `config.change(seed=1)`."""
        groups = {name: getattr(self, name, None) for name, value in changes.items() if isinstance(value, Mapping)}
        inner = {name: old.replace(**changes[name]) for name, old in groups.items() if isinstance(old, Settings)}
        return self.replace(**changes | inner)

    def set(self: Group, values: Mapping[str, Any]) -> Group:
        """A validated copy. `values` maps dotted names, as in `flat` or with hyphens, to new values of single settings.

        The values may be plain ones, as in TOML: one value for a tuple, the text "None" for None. Raises SettingsError,
        and UsageError for an entry of a tuple that isn't there.
        """
        return type(self)(**_set(self, {name.replace("-", "_"): value for name, value in values.items()}))

    def flat(self) -> dict[str, Any]:
        """Every single setting as in JSON, by its dotted name: `model.num_layers`, `phases.0.steps`. Empty tuples are
        left out."""
        return {name: leaf for name, leaf in leaves(self.model_dump(mode="json")) if leaf not in ([], {})}


def _set(old: Any, values: Mapping[str, Any], path: str = "") -> Any:
    """`old`, which lies at `path`, with other values, by dotted names within it; "" names `old` itself. Groups of
    settings become dicts. These are validated within the whole, so that an error names the whole path."""
    if "" in values:
        return values[""]
    inner: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        first, _, rest = name.partition(".")
        inner.setdefault(first, {})[rest] = value
    if isinstance(old, Settings):
        fields = type(old).model_fields
        for name in fields.keys() & inner.keys():
            inner[name] = {rest: value if rest else _plain(fields[name], value) for rest, value in inner[name].items()}
        parts = {name: _set(getattr(old, name, None), within, f"{path}{name}.") for name, within in inner.items()}
        return old._explicit | parts
    if not isinstance(old, tuple):
        return dict(values)
    if absent := inner.keys() - set(map(str, range(len(old)))):
        there = f"{path[:-1]} has {len(old)}, numbered from 0; a config file adds one"
        raise UsageError(f"{Setting(path + min(absent))}: there is no entry {min(absent)}: {there}")
    return tuple(_set(each, inner.get(str(number), {"": each}), f"{path}{number}.") for number, each in enumerate(old))


def _plain(field: FieldInfo, value: Any) -> Any:
    """A setting's value from a plain one: "None" stands for None, one value for a tuple of one item."""
    kind = Kind.of_field(field)
    if kind.optional and value == "None":
        return None
    is_item = kind.several and isinstance(value, str | int | float) and not kind.stands_alone(str(value))
    return (value,) if is_item else value


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the values within nested objects and lists, also empty ones, with their dotted names."""
    if not isinstance(value, (dict, list)) or not value:
        yield name, value
        return
    for key, child in value.items() if isinstance(value, dict) else enumerate(value):
        yield from leaves(child, f"{name}.{key}".removeprefix("."))


def _spelled(prefix: str, path: str) -> str:
    return f"{prefix}{path.replace('_', '-') if prefix else path}"


def _explained(error: ValidationError, settings: type[Settings]) -> SettingsError:
    conflicts: list[str] = []
    problems: dict[str, str] = {}
    for item in error.errors():
        # A part like "tuple[...]" names a member of a union.
        path = ".".join(part for part in map(str, item["loc"]) if "[" not in part)
        cause = item.get("ctx", {}).get("error")
        if isinstance(cause, SettingsError):  # an error of a group of settings within this one
            conflicts += cause.conflicts
            problems |= {f"{path}.{inner}": text for inner, text in cause.problems.items()}
        elif path:
            problems[path] = str(cause or _problem(item, settings))
        else:
            conflicts.append(str(cause))
    # For a tuple with a wrong item, pydantic also reports that the tuple is too short. That second error is dropped.
    wrong = [path for path in problems if not any(other.startswith(f"{path}.") for other in problems)]
    return SettingsError(settings.PREFIX, conflicts, {path: problems[path] for path in wrong})


def _problem(item: Any, settings: type[Settings]) -> str:
    """Describes `item`, one of ValidationError.errors(), with what its field expects."""
    if item["type"] == "extra_forbidden":
        word = str(item["loc"][-1])
        own = settings.model_fields if len(item["loc"]) == 1 else ()
        everywhere = _field_names(Settings)
        meant = did_you_mean(word, own) or (did_you_mean(word, everywhere) if word not in everywhere else "")
        return ": there is no such setting" + (f"; {meant}" if meant else "")
    field = settings.model_fields[str(item["loc"][0])]
    expected = Kind.of_field(field).expected
    if item["type"] == "missing":
        about = " ".join((field.description or "").partition("\n\n")[0].split()).rstrip(".")
        return f" is missing; give {expected}" + (f" ({about})" if about else "")
    return f"={value_text(item['input'])}: expected {expected}"


def _field_names(settings: type[Settings]) -> set[str]:
    names = set(settings.model_fields)
    for kind in settings.__subclasses__():
        names |= _field_names(kind)
    return names
