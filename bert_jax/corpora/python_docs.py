"""The source `python-docs`: the docstrings of the installed Python and its packages. Nothing to download."""

import ast
import os
import re
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from hashlib import blake2b
from pathlib import Path

from bert_jax.system.workers import available_cores, map_in_processes

_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "testing", "_vendor", "__pycache__"}
"""Folders without prose of their own."""


class PythonDocs:
    """A document is a docstring of more than one line, in paragraphs. One that is found again is left out."""

    unit = "files"

    def __init__(self):
        self.paths = _module_paths()
        self.total = len(self.paths)
        self.position = 0
        self.repairs = Counter()

    @cached_property
    def stamp(self) -> str:
        """Hash of the modules' names and sizes."""
        modules = [(os.fspath(path), path.stat().st_size) for path in self.paths]
        return blake2b(repr(modules).encode(), digest_size=8).hexdigest()

    @cached_property
    def revision(self) -> str:
        """Hash of the modules' times."""
        times = [(os.fspath(path), path.stat().st_mtime_ns) for path in self.paths]
        return blake2b(repr(times).encode(), digest_size=8).hexdigest()

    def documents(self) -> Iterator[list[str]]:
        """Each docstring of several lines, as its paragraphs; none comes twice."""
        seen = set()
        docstrings = map_in_processes(_docstrings, self.paths, available_cores(), items_at_once=64)
        for self.position, module in enumerate(docstrings, 1):
            for docstring in module:
                document = [" ".join(block.split()) for block in re.split(r"\n\s*\n", docstring) if block.strip()]
                if "\n" in docstring and docstring not in seen:
                    seen.add(docstring)
                    yield document


def _module_paths() -> list[Path]:
    """Every Python file below the standard library and the installed packages, tests left out."""
    roots = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]
    return [
        path
        for root in dict.fromkeys(roots)
        for path in sorted(root.rglob("*.py"))
        if not _LEFT_OUT.intersection(path.relative_to(root).parts[:-1])
        and not path.name.startswith("test_")
        and not path.name.endswith("_test.py")
    ]


def _docstrings(path: Path) -> list[str]:
    """Docstrings of the module, its classes and their methods, and its functions, in the order of the text."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # other people's invalid escapes
            module = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return []  # templates and broken files in packages are not modules
    found, pending = [], [module]
    while pending:
        node = pending.pop()
        if docstring := ast.get_docstring(node):
            found.append(docstring.encode(errors="replace").decode())  # some quote lone surrogates
        pending.extend(reversed(list(_definitions(node))))
    return found


def _definitions(node: ast.AST) -> Iterator[ast.AST]:
    """Classes and functions in the body of a module or class, also below `if` and `try`; not inside functions."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield child
        elif isinstance(child, (ast.If, ast.Try, ast.With)):
            yield from _definitions(child)
