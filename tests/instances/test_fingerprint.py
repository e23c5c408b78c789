"""What a data set is known by, in this and in earlier formats."""

import json
import shutil
from pathlib import Path

import pytest
from prepared_sets import build

from bert_jax.config.data import DataConfig
from bert_jax.config.run import RunConfig
from bert_jax.instances.checked_files import read_checked, write_checked
from bert_jax.instances.chunk_text import Recipe
from bert_jax.instances.prepared_data import PreparedData, fingerprint
from bert_jax.system.errors import RunError, UsageError

GOLDEN = Path(__file__).parents[1] / "golden" / "trainings" / "pretrained"
"""A run whose data sets have format 2."""


class LaterDataConfig(DataConfig):
    """The settings of a release to come."""

    quotes: bool = False
    """A setting that there is not yet."""


def later(recipe, **changes):
    values = {name: getattr(recipe.data, name) for name in DataConfig.model_fields} | changes
    return recipe._replace(data=LaterDataConfig(**values))


def golden_recipe(length=32):
    config = RunConfig(**json.loads((GOLDEN / "config.json").read_text())["config"])
    return Recipe(config.data, length, config.seed, GOLDEN / "tokenizer", config.objective.pair)


@pytest.mark.parametrize("format", [1, 2, 3])
def test_a_new_setting_with_its_default_leaves_fingerprints_as_they_are(recipe, format):
    assert fingerprint(later(recipe), format) == fingerprint(recipe, format)
    assert fingerprint(later(recipe, quotes=True), format) != fingerprint(recipe, format)


@pytest.mark.parametrize("format", [2, 3])
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
def test_every_setting_that_shapes_the_records_is_in_it(recipe, format, change):
    changed = recipe._replace(data=recipe.data.replace(**change))
    assert fingerprint(changed, format) != fingerprint(recipe, format)
    assert fingerprint(recipe._replace(data=changed.data.replace(weights=(3,))), format) == fingerprint(changed, format)


@pytest.mark.parametrize("change", [{"length": 33}, {"seed": 8}, {"pair": "none"}])
def test_all_else_that_shapes_the_records_is_in_it(recipe, change):
    assert fingerprint(recipe._replace(**change)) != fingerprint(recipe)


def test_a_setting_given_as_its_default_is_as_if_it_were_not_given(recipe):
    assert fingerprint(recipe._replace(data=recipe.data.replace(dupe_factor=1))) == fingerprint(recipe)


@pytest.mark.parametrize("length", [32, 48])
def test_a_set_of_format_2_is_known_by_what_its_release_wrote(length):
    written = json.loads((GOLDEN / "data" / f"length-{length}" / "prepared.json").read_text())
    found = PreparedData.open(GOLDEN / "data" / f"length-{length}")
    recipe = golden_recipe(length)
    assert written["format"] == found.format == 2 and fingerprint(recipe, 2) == written["fingerprint"]
    assert found.is_of(recipe) and found.is_of(later(recipe)) and not found.is_of(later(recipe, quotes=True))
    assert not found.is_of(recipe._replace(seed=recipe.seed + 1))


def test_a_new_set_has_the_newest_format_and_its_fingerprint(recipe, tmp_path):
    made = build(recipe, tmp_path / "set")
    assert json.loads((tmp_path / "set" / "prepared.json").read_text())["format"] == made.format == 3
    assert made.fingerprint == fingerprint(recipe) and made.is_of(recipe) and made.is_of(later(recipe))


def with_format(directory, format):
    shutil.copytree(GOLDEN / "data" / "length-32", directory)
    value = read_checked(directory / "prepared.json") | {"format": format}
    write_checked(directory / "prepared.json", value)


def test_a_set_of_a_newer_release_is_refused_and_kept(tmp_path):
    with_format(tmp_path / "set", 4)
    said = r"prepared.json has format 4, and this release of bert_jax reads formats up to 3: a newer release wrote it"
    for read in (PreparedData.open, PreparedData.read):
        with pytest.raises(UsageError, match=said):
            read(tmp_path / "set")
    assert (tmp_path / "set" / "prepared.json").is_file()


@pytest.mark.parametrize("format", [0, -1, "3", 2.0, True, None, [3]])
def test_what_is_no_format_is_damage(tmp_path, format):
    with_format(tmp_path / "set", format)
    with pytest.raises(RunError, match="its format is .* and should be a number from 1"):
        PreparedData.open(tmp_path / "set")
