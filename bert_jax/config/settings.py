"""The base of every settings class."""

import difflib
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

Kind = TypeVar("Kind", bound="Settings")


class SettingsError(ValueError):
    """Settings were refused; the text is one line with each field, its value and what was expected."""


class Settings(BaseModel):
    """A frozen, validated group of settings.

    Unknown names are refused, values can't be changed after construction, and instances hash (so they can be
    static arguments of a jitted function or attributes of a Flax module). The string under a field is its help text.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    def __init__(self, **values: Any):
        """Raises SettingsError."""
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise SettingsError(_explain(error)) from None

    def replace(self: Kind, **changes: Any) -> Kind:
        """A copy with `changes`, validated again (pydantic's own `model_copy` isn't)."""
        return type(self)(**{name: getattr(self, name) for name in type(self).model_fields} | changes)


def _explain(error: ValidationError) -> str:
    lines = []
    for problem in error.errors():
        path = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            line = f"{error.title} has no setting {path!r}"
            close = difflib.get_close_matches(str(problem["loc"][-1]), _field_names(Settings), n=1)
            lines.append(line + (f"; did you mean {close[0]!r}?" if close else ""))
        elif problem["type"] == "value_error":
            lines.append(str(problem["ctx"]["error"]))
        else:
            message = problem["msg"][0].lower() + problem["msg"][1:]
            lines.append(f"{error.title} {path}={problem['input']!r}: {message}")
    return "; ".join(lines)


def _field_names(settings: type[Settings]) -> set[str]:
    names = set(settings.model_fields)
    for kind in settings.__subclasses__():
        names |= _field_names(kind)
    return names
