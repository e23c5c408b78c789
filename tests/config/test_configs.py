"""The configs that come with the project."""

import runpy
from pathlib import Path

import pytest

from bert_jax.config.run import RunConfig

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.py"))
SIZES = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}


def test_the_published_sizes_are_there():
    assert {path.stem for path in CONFIGS} == {*SIZES, "cpu", "demo"}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_config_says_how_to_run_it_and_builds(path):
    built = runpy.run_path(str(path))
    assert isinstance(built["config"], RunConfig)
    assert f"bert-jax pretrain configs/{path.name} --workdir" in built["__doc__"]
    if path.stem in SIZES:
        model = built["config"].model
        assert (model.num_layers, model.hidden_size) == SIZES[path.stem]
        assert model.hidden_size == 64 * model.num_heads
        assert model.inner_size == 4 * model.hidden_size
