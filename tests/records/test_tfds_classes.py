"""The metadata of a TFDS set: only TFDS' own feature classes are imported, and damage is one line."""

import json
import sys
from collections import Counter

import numpy as np
import pytest
import tensorflow_datasets as tfds
from damages import attack
from tfds_sets import LABELS, TEXT, read, write_set

from bert_jax.records.sources import task_records
from bert_jax.system.errors import UsageError


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """The folder of the set tfds:pages, beside a module `marker` that could be imported."""
    folder = tmp_path / "pages" / "1.0.0"
    features = {"text": TEXT, "label": LABELS, "tags": tfds.features.Sequence({"n": np.int32, "t": TEXT})}
    write_set(folder, features, [[{"text": f"Page {n}.", "label": 0, "tags": []} for n in range(20)]])
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "marker.py").write_text("print('ran')")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.syspath_prepend(str(tmp_path / "here"))
    yield folder
    assert "marker" not in sys.modules


def with_class(feature, name):
    return feature | {"pythonClassName": name}


def changed(features, info, where, name):
    """features.json and dataset_info.json with the class `name` in one of the places where TFDS looks for it."""
    inside = features["featuresDict"]["features"]
    if where == "top":
        features = with_class(features, name)
    elif where == "in a dictionary":
        inside["text"] = with_class(inside["text"], name)
    elif where == "in a sequence":
        inside["tags"]["sequence"]["feature"] = with_class(inside["tags"]["sequence"]["feature"], name)
    elif where == "spelled as protobuf does":
        del inside["text"]["pythonClassName"]
        inside["text"]["python_class_name"] = name
    elif where == "as older sets name it":
        features = {"type": name, "content": {}}
    elif where == "by its protobuf message":
        features = {"type": features["pythonClassName"], "content": "{}", "proto_cls": name}
    elif where == "in JSON within JSON":
        sequence = inside["tags"]["pythonClassName"]
        content = json.dumps({"length": None, "feature": {"type": name, "content": {}}})
        inside["text"] = {"pythonClassName": sequence, "jsonFeature": {"json": content}}
    else:
        info["features"] = with_class(inside["text"], name)
    return features, info


@pytest.mark.parametrize(
    "where",
    [
        *("top", "in a dictionary", "in a sequence", "spelled as protobuf does", "as older sets name it"),
        *("by its protobuf message", "in JSON within JSON", "in dataset_info.json"),
    ],
)
def test_a_class_that_is_none_of_tfds_own_is_refused_and_not_imported(directory, where):
    files = [directory / "features.json", directory / "dataset_info.json"]
    values = changed(*(json.loads(file.read_text()) for file in files), where, "marker.Feature")
    for file, value in zip(files, values):
        file.write_text(json.dumps(value))
    for reading in (lambda: read("tfds:pages:train#text"), lambda: list(task_records("tfds:pages:train", Counter()))):
        with pytest.raises(UsageError, match=r"(features|dataset_info).json is not read: .*source that you trust"):
            reading()


@pytest.mark.parametrize("name", ["features.json", "dataset_info.json", "pages-train.array_record-00000-of-00001"])
def test_a_damaged_set_is_one_line_whatever_the_damage(directory, name, slow):
    attack(lambda: read("tfds:pages:train#text"), directory / name, count=2_000 if slow else 40)
