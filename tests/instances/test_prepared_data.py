"""By what a data set is recognized, the version of its format, and its upload."""

import json

import pytest

from bert_jax.config.data import DataConfig
from bert_jax.instances.prepared_data import PreparedData, publish_prepared
from bert_jax.system.bucket import objects, place_of
from bert_jax.system.copies import local_path

DEFAULTS = {
    "source": ["python-docs"],
    "layout": "paragraphs",
    "language": ["en"],
    "words": None,
    "phrases": None,
    "entities": None,
    "spans": None,
    "undecodable": "replace",
    "deduplicate": None,
    "drop_boilerplate": False,
    "min_doc_words": 0,
    "max_symbol_word_ratio": None,
    "language_filter": False,
    "held_out": 0.01,
    "short_sequence_probability": 0.1,
    "dupe_factor": 1,
    "across_documents": True,
    "whole_sentences": True,
    "packed": False,
    "chunk_megabytes": 8.0,
}
"""The defaults of format 1, which its fingerprints leave out."""


class LaterDataConfig(DataConfig):
    """The settings of a release to come."""

    quotes: bool = False
    """A setting that there is not yet."""


def later(recipe, **changes):
    values = {name: getattr(recipe.data, name) for name in DataConfig.model_fields} | changes
    return recipe._replace(data=LaterDataConfig(**values))


def test_a_new_setting_with_its_default_leaves_fingerprints_as_they_are(recipe):
    assert later(recipe).fingerprint() == recipe.fingerprint()
    assert later(recipe, quotes=True).fingerprint() != recipe.fingerprint()


def test_a_default_changes_only_with_the_format():
    """Otherwise a release would take a data set of an earlier one, made with the old default, for one of its own."""
    assert PreparedData.FORMAT == 1 and DEFAULTS.items() <= DataConfig().model_dump(mode="json").items()


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
def test_every_setting_that_shapes_the_records_is_in_the_fingerprint(recipe, change):
    changed = recipe._replace(data=recipe.data.replace(**change))
    assert changed.fingerprint() != recipe.fingerprint()
    assert recipe._replace(data=changed.data.replace(weights=(3,))).fingerprint() == changed.fingerprint()


def test_length_seed_and_pairs_are_in_the_fingerprint(recipe):
    changed = [recipe._replace(**change) for change in ({}, {"length": 33}, {"seed": 8}, {"pair": "none"})]
    assert len({each.fingerprint() for each in changed}) == 4


def test_a_set_has_the_format_and_its_fingerprint(recipe, whole):
    made = PreparedData.open(whole)
    assert json.loads((whole / "prepared.json").read_text())["format"] == 1
    assert made.fingerprint == recipe.fingerprint() and made.is_of(recipe) and made.is_of(later(recipe))


def test_a_set_in_a_bucket_is_finished_by_its_record(bucket):
    there = place_of(f"{bucket}/data/length-32")
    local_path(there).mkdir()
    for name in ("prepared.json", "piece_counts.safetensors", "train-00000.array_record"):
        (local_path(there) / name).write_text(name)
    publish_prepared(there)
    generations = {name: int(stored.revision) for name, stored in objects(there).items()}
    assert max(generations, key=generations.get) == "prepared.json" and len(generations) == 3
