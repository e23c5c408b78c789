"""By what a data set is recognized, and the version of its format."""

import json

import pytest

from bert_jax.config.data import DataConfig
from bert_jax.instances.prepared_data import PreparedData, fingerprint


class LaterDataConfig(DataConfig):
    """The settings of a release to come."""

    quotes: bool = False
    """A setting that there is not yet."""


def later(recipe, **changes):
    values = {name: getattr(recipe.data, name) for name in DataConfig.model_fields} | changes
    return recipe._replace(data=LaterDataConfig(**values))


def test_a_new_setting_with_its_default_leaves_fingerprints_as_they_are(recipe):
    assert fingerprint(later(recipe)) == fingerprint(recipe)
    assert fingerprint(later(recipe, quotes=True)) != fingerprint(recipe)


@pytest.mark.parametrize(
    "change",
    [
        {"layout": "sentences"},
        {"language": "de"},
        {"undecodable": "refuse"},
        {"held_out": 0.2},
        {"short_sequence_probability": 0.2},
        {"dupe_factor": 2},
        {"chunk_megabytes": 9.0},
        {"source": "text:other"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_setting_that_shapes_the_records_is_in_it(recipe, change):
    changed = recipe._replace(data=recipe.data.replace(**change))
    assert fingerprint(changed) != fingerprint(recipe)
    assert fingerprint(recipe._replace(data=changed.data.replace(weights=(3,)))) == fingerprint(changed)


@pytest.mark.parametrize("change", [{"length": 33}, {"seed": 8}, {"pair": "none"}])
def test_all_else_that_shapes_the_records_is_in_it(recipe, change):
    assert fingerprint(recipe._replace(**change)) != fingerprint(recipe)


def test_a_set_has_the_format_and_its_fingerprint(recipe, whole):
    made = PreparedData.open(whole)
    assert json.loads((whole / "prepared.json").read_text())["format"] == 1
    assert made.fingerprint == fingerprint(recipe) and made.is_of(recipe) and made.is_of(later(recipe))
