"""Packages of the extra `full`, which the quick tier may lack."""

import importlib.util

import pytest


def skip_without(package: str) -> None:
    """Skips a test as pytest.importorskip does, but imports nothing: gcsfs reads variables at its import, which a
    fixture sets later, and PyTorch takes memory."""
    if not importlib.util.find_spec(package):
        pytest.skip(f"could not import {package!r}")
