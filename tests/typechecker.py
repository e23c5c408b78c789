"""Checks annotated arrays for shape and type while the tests run."""

import ast
import re
from collections.abc import Sequence

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping import _import_hook

# An int is also a float, as in Python's own typing rules. The name is part of the names of the compiled modules, so it
# must change with what `_OfArrays` decorates.
arrays_checked = beartype(conf=BeartypeConf(is_pep484_tower=True))

_ARRAYS = re.compile(r"Array|ndarray|\b(Word|RunSeed|Measured|Embed)\b")
"""What the annotation of an array contains; the names are aliases in bert_jax."""


class _OfArrays(_import_hook.JaxtypingTransformer):
    """Decorates those functions alone whose signatures have arrays, a quarter of all.

    jaxtyping decorates every function. A call that defines another function then takes milliseconds longer, each time,
    and beartype keeps 7 kB of each; mypy checks the other annotations.
    """

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
        annotations = filter(None, [*(argument.annotation for argument in arguments), node.returns])
        if any(_ARRAYS.search(ast.unparse(each)) for each in annotations):
            return super().visit_FunctionDef(node)
        self.generic_visit(node)
        return node


def check_arrays(modules: Sequence[str]) -> None:
    """Lets the functions of modules, imported from now on, check the arrays that they take and return."""
    _import_hook.JaxtypingTransformer = _OfArrays
    jaxtyping.install_import_hook(modules, f"{__name__}.arrays_checked")
