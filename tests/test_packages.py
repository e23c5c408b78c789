"""What an installation that is not editable holds."""

import configparser
from pathlib import Path

import bert_jax

ROOT = Path(bert_jax.__file__).parent


def test_packages_without_an_init_are_installed():
    setup = configparser.ConfigParser()
    setup.read(ROOT.parent / "setup.cfg", encoding="utf-8")
    bare = {path.parent for path in ROOT.rglob("*.py")} - {path.parent for path in ROOT.rglob("__init__.py")}
    assert not bare or setup["options"]["packages"] == "find_namespace:"  # find: would leave them out
