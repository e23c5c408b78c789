"""One word means one thing: no two modules define the same public name."""

import ast
from collections import defaultdict

from test_floors import MODULES, ROOT


def test_a_public_name_is_defined_in_one_module():
    defined = defaultdict(set)
    for path in MODULES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name[0] != "_":
                defined[node.name].add(str(path.relative_to(ROOT)))
    assert not {name: modules for name, modules in defined.items() if len(modules) > 1}
