"""The source `python-docs`: the docstrings of the installed Python and its packages, which need no download."""

import ast
import functools
import os
import re
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

from bert_jax.records.decoded_lines import Pass
from bert_jax.records.record import Record
from bert_jax.records.source import Source
from bert_jax.system.content import content_hash
from bert_jax.system.workers import available_cores, map_in_processes

_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "testing", "_vendor", "__pycache__"}
"""Directories that are skipped: packages listed elsewhere, copies, tests and caches."""
_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class PythonDocs(Source):
    """Docstrings of more than one line, each a record with its paragraphs as the lines of `text`; no text twice."""

    name = "python-docs"
    unit = "files"
    field = "text"

    def __init__(self) -> None:
        self.paths = _module_paths()
        self.total = float(len(self.paths))

    @functools.cached_property
    def content_hash(self) -> str:
        return content_hash(*self.paths)

    def records(self, progress: Pass) -> Iterator[Record]:
        """Yields the docstrings. Processes of this machine read them."""
        yielded: set[str] = set()
        docstrings = map_in_processes(_docstrings, self.paths, available_cores(), items_at_once=64)
        for path, module in zip(self.paths, docstrings, strict=True):
            progress.position += 1
            for docstring in module:
                if "\n" in docstring and docstring not in yielded:
                    yielded.add(docstring)
                    paragraphs = (" ".join(block.split()) for block in re.split(r"\n\s*\n", docstring))
                    yield Record(str(path), {self.field: "\n".join(paragraphs)})


def _module_paths() -> list[Path]:
    """All Python files of the standard library and the installed packages, except tests."""
    roots = dict.fromkeys(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    return [path for root in roots for path in _modules_below(root)]


@functools.cache  # listing thousands of folders takes half a second, and a command opens its source several times
def _modules_below(root: str) -> tuple[Path, ...]:
    paths: list[Path] = []
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in _LEFT_OUT]
        modules = (name for name in files if name.endswith(".py") and not name.startswith("test_"))
        paths += [Path(folder, name) for name in modules if not name.endswith("_test.py")]
    return tuple(sorted(paths))


def _docstrings(path: Path) -> list[str]:
    """The docstrings of a module and its classes, methods and functions, in source order."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's code
            module = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return []  # packages contain templates and broken files, which can't be parsed
    docstrings: list[str] = []
    pending: list[_Documented] = [module]
    while pending:
        node = pending.pop()
        if docstring := ast.get_docstring(node):
            docstrings.append(docstring.encode(errors="replace").decode())  # some docstrings have lone surrogates
        pending += reversed([*_definitions(node)])
    return docstrings


def _definitions(node: ast.AST) -> Iterator[_Documented]:
    """Yields the classes and functions in the body of a module or class, also in `if`, `try` and `with` blocks."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield child
        elif isinstance(child, (ast.If, ast.Try, ast.With)):
            yield from _definitions(child)
