"""Writes settings as a config file."""

from typing import Any

from bert_jax.config.settings import Settings

_INDENT = "    "


def config_source(config: Settings, command: str) -> str:
    """The text of a Python file that builds `config` with every setting; its docstring shows `command`."""
    names: dict[str, list[str]] = {}
    for kind in sorted(_kinds(config), key=lambda kind: (kind.__module__, kind.__name__)):
        names.setdefault(kind.__module__, []).append(kind.__name__)
    imports = "\n".join(_import(module, classes) for module, classes in names.items())
    return f'"""All settings of a run.\n\n    {command}\n"""\n\n{imports}\n\nconfig = {_written(config, 0)}\n'


def _import(module: str, classes: list[str]) -> str:
    if len(classes) == 1:
        return f"from {module} import {classes[0]}"
    lines = [f"{_INDENT}{name},\n" for name in classes]
    return f"from {module} import (\n{''.join(lines)})"


def _kinds(value: Any) -> set[type[Settings]]:
    """The settings classes of `value` and of everything in it."""
    if isinstance(value, tuple):
        return {kind for each in value for kind in _kinds(each)}
    if not isinstance(value, Settings):
        return set()
    return {type(value)} | {kind for name in type(value).model_fields for kind in _kinds(getattr(value, name))}


def _written(value: Any, depth: int) -> str:
    inner, outer = _INDENT * (depth + 1), _INDENT * depth
    if isinstance(value, Settings):
        lines = [f"{inner}{name}={_written(getattr(value, name), depth + 1)},\n" for name in type(value).model_fields]
        return f"{type(value).__name__}(\n{''.join(lines)}{outer})"
    if isinstance(value, tuple) and value and isinstance(value[0], Settings):
        lines = [f"{inner}{_written(each, depth + 1)},\n" for each in value]
        return f"(\n{''.join(lines)}{outer})"
    return repr(value)
