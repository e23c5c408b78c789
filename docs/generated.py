"""Writes the tables of settings and the signatures that pages show, so that they read as Markdown too.

`python docs/generated.py` replaces what stands between `<!-- settings CLASS -->` or `<!-- signatures NAME ... -->` and
`<!-- end -->`; a test fails where a page differs from the code.
"""

import ast
import importlib
import inspect
import itertools
import operator
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

_PLACE = re.compile(r"<!-- (settings|signatures) ([^>]*?) -->\n.*?<!-- end -->\n", re.DOTALL)


def generated(page: str) -> str:
    """The text of a page with its tables and signatures written from the code."""
    shown: set[object] = set()
    return _PLACE.sub(
        lambda place: (
            f"<!-- {place[1]} {place[2]} -->\n"
            + (_settings(place[2], shown) if place[1] == "settings" else "".join(map(_signature, place[2].split())))
            + "<!-- end -->\n"
        ),
        page,
    )


def _object(name: str) -> object:
    """The object of a dotted name."""
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError:
        return getattr(_object(module), attribute)


def _settings(name: str, shown: set[object]) -> str:
    """A table of each group of the settings of a command's CONFIG, without those in an earlier table of the page."""
    from bert_jax.cli.flags import flags_of

    command = _object(name)
    flags = [
        flag
        for flag in flags_of(command, command.model_fields["config"].default)
        if not (flag.is_argument or (flag.name, flag.help, flag.default_in_words) in shown)
    ]
    shown |= {(flag.name, flag.help, flag.default_in_words) for flag in flags}
    groups = [(flag.name.rpartition(".")[0], flag.group, flag) for flag in flags]
    groups.sort(key=lambda each: each[0] != "")  # settings without a group come first
    text = "\n"
    for (group, about), members in itertools.groupby(groups, operator.itemgetter(0, 1)):
        text += f"**{group}**: {about}\n\n" if group else ""
        text += "| setting | default | meaning |\n|---|---|---|\n"
        for *_, flag in members:
            default = flag.default_in_words.removeprefix(" (default: ").removeprefix(" (").removesuffix(")")
            usage = flag.usage.replace("|", "\\|")
            text += f"| `{usage}` | {_cell(default)} | {_cell(flag.help)} |\n"
        text += "\n"
    return text


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;").replace("$", "\\$").replace("\n", "<br>")


def _signature(name: str) -> str:
    """The signature and the docstring of a function, or of a class and its public members."""
    thing = _object(name)
    text = f"\n**`{name.removeprefix('bert_jax.training.step.')}{_arguments(thing)}`**\n\n{_about(thing)}"
    text += "".join(f"\n- **`{field}`**: {about}\n" for field, about in _fields(thing))
    if inspect.isclass(thing) and not issubclass(thing, Exception):
        for member, value in vars(thing).items():
            function = getattr(value, "fget", None) or getattr(value, "func", value)
            if not member.startswith("_") and inspect.isfunction(function):
                arguments = _arguments(function) if function is value else ""
                text += f"\n- **`{member}{arguments}`**\n\n{textwrap.indent(_about(function), '  ')}"
    return text


def _arguments(thing: object) -> str:
    """The arguments of a function or of a class, without types."""
    if inspect.isclass(thing) and issubclass(thing, Exception):
        return ""
    signature = inspect.signature(thing)
    empty = inspect.Parameter.empty
    arguments = [each.replace(annotation=empty) for name, each in signature.parameters.items() if name != "self"]
    return str(signature.replace(parameters=arguments, return_annotation=inspect.Signature.empty))


def _fields(thing: object) -> Iterator[tuple[str, str]]:
    """The fields of a named tuple, with the strings below them."""
    if not hasattr(thing, "_fields"):
        return
    [body] = ast.parse(textwrap.dedent(inspect.getsource(thing))).body
    for field, below in itertools.pairwise(body.body):
        if isinstance(field, ast.AnnAssign):
            about = below.value.value if isinstance(below, ast.Expr) else ""
            yield field.target.id, " ".join(about.split())


def _about(thing: object) -> str:
    text = inspect.getdoc(thing) or ""
    return re.sub(r"(?<!`)([*<])", r"\\\1", text) + "\n"


if __name__ == "__main__":
    for path in sorted(Path(__file__).parent.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if (new := generated(text)) != text:
            path.write_text(new, encoding="utf-8")
            print(f"{path.name}: written")
