"""Packages of the extra `full`, which the quick tier may lack."""

import importlib.util

import pytest


def skip_without(package: str) -> None:
    """Skips as pytest.importorskip does, but imports nothing: some libraries read variables when they are imported,
    which a fixture sets later."""
    if not importlib.util.find_spec(package):
        pytest.skip(f"could not import {package!r}")
