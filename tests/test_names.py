"""One word means one thing: no two modules define the same public name."""

import ast
from collections import defaultdict
from collections.abc import Iterator

from test_floors import MODULES, ROOT

TYPE_VARIABLES = {"TypeVar", "ParamSpec"}
"""What may have the same name everywhere."""


def defined_names(node: ast.stmt) -> Iterator[str]:
    """The names that a statement at the top of a module defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        if isinstance(node.value, ast.Call) and getattr(node.value.func, "id", "") in TYPE_VARIABLES:
            return
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from (
                part.id for part in ast.walk(target) if isinstance(part, ast.Name) and "[" not in ast.unparse(target)
            )


def test_a_public_name_is_defined_in_one_module():
    defined = defaultdict(set)
    for path in MODULES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for name in defined_names(node):
                if name[0] != "_":
                    defined[name].add(str(path.relative_to(ROOT)))
    assert not {name: modules for name, modules in defined.items() if len(modules) > 1}
