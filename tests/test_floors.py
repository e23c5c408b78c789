"""The house's floors: a module imports from lower floors and from its own package only."""

import ast
import re
from pathlib import Path

import pytest

import bert_jax

ROOT = Path(bert_jax.__file__).parent
FLOORS = {
    "system": 0,
    "layout": 0,
    "config": 1,
    "text": 2,
    "model": 2,
    "batching": 3,
    "records": 3,
    "interchange": 3,
    "instances": 4,
    "run": 5,
    "training": 6,
    "pretraining": 7,
    "finetuning": 7,
    "inference": 8,
    "products": 9,
    "cli": 10,
}
ABOVE = "__init__.py", "__main__.py"
"""The package's own modules, which have no floor."""
MODULES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT or path.name not in ABOVE)


def room(path: Path) -> str:
    """The package, or the one module beside the packages, that a file belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Full names of all modules that the file imports anywhere."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            found.add(node.module)
    return found


def test_every_package_has_a_floor():
    assert set(map(room, MODULES)) == set(FLOORS)


def test_the_map_of_the_readme_has_all_floors():
    lines = re.findall(r"^\| (\d+) \| ([^|]*) \|", (ROOT.parent / "README.md").read_text(encoding="utf-8"), re.M)
    assert {Path(name).stem: int(floor) for floor, names in lines for name in re.findall("`([^`]+)`", names)} == FLOORS


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_down_or_sideways(path):
    package = room(path)
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "bert_jax":
            other = parts[1] if len(parts) > 1 else "bert_jax itself"
            assert other == package or FLOORS.get(other, 10) < FLOORS[package], f"{path} imports {name}"


@pytest.mark.parametrize("path", [path for path in MODULES if room(path) == "products"], ids=lambda path: path.stem)
def test_products_do_without_each_other(path):
    """Each product stands on the core alone; `page`, which draws, is the one that others use."""
    product = path.relative_to(ROOT).parts[1]
    others = {name.split(".")[2] for name in imports(path) if name.startswith("bert_jax.products.")}
    assert others <= {product, "page"} if product != "page" else others <= {"page"}


@pytest.mark.parametrize("package", ["layout", "config", "system", "text", "records"])
def test_lower_floors_do_without_jax(package):
    for path in (path for path in MODULES if room(path) == package):
        assert not {name.split(".")[0] for name in imports(path)} & {"jax", "flax", "optax", "orbax", "grain"}, path


def packages_with(pattern: str) -> set[str]:
    """The packages that have a module whose text matches."""
    return {
        str(path.relative_to(ROOT).parent) for path in MODULES if re.search(pattern, path.read_text(encoding="utf-8"))
    }


def test_the_model_asks_for_the_platform_in_its_kernels_alone():
    asking = packages_with(r"\b(platform|on_one_device|default_backend)\(")
    assert "model/kernels" in asking and not asking & {"model", "model/relatives"}


def test_schemes_of_positions_are_told_apart_by_their_table_alone():
    assert packages_with(r"\.positions (==|!=|in|not in) ") <= {"config"}
