import json
import sys

import numpy as np
import pytest
from damages import attack

from bert_jax.instances.shards import shard_path, write_shard
from bert_jax.instances.store import InstanceSource
from bert_jax.instances.store_metadata import StoreMetadata, write_metadata
from bert_jax.system.errors import RunError


@pytest.fixture
def store(tmp_path):
    """A set of no records."""
    for split in ("train", "held_out"):
        write_shard(shard_path(tmp_path, split, 0), [], np.uint16)
    write_metadata(tmp_path, {"train": [0], "held_out": [0]}, np.uint16)
    return tmp_path


def test_what_was_written_is_read(store):
    for dtype, packed in ((np.uint16, False), (np.int32, False), (np.uint16, True)):
        write_metadata(store, {"train": [200, 0, 100], "held_out": []}, dtype, packed)
        assert StoreMetadata.read(store) == (dtype, {"train": [200, 0, 100], "held_out": []}, packed)


def test_no_class_that_a_set_names_is_imported(store, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "marker.py").write_text("print('ran')")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.syspath_prepend(str(tmp_path / "here"))
    path = store / "features.json"
    features = json.loads(path.read_text())
    features["pythonClassName"] = "marker.X"
    features["featuresDict"]["features"]["ids"]["pythonClassName"] = "marker.X"
    path.write_text(json.dumps(features))
    assert len(InstanceSource(store, "train")) == 0
    assert "marker" not in sys.modules


@pytest.mark.parametrize("name", ["features.json", "dataset_info.json"])
def test_damaged_metadata_are_one_line(store, name, slow):
    attack(lambda: InstanceSource(store, "held_out"), store / name, count=10_000 if slow else 200)
    (store / name).unlink()
    with pytest.raises(RunError, match=f"{name} is damaged .* delete"):
        InstanceSource(store, "train")


def test_a_missing_split_is_damage(store):
    with pytest.raises(RunError, match="lacks the split test"):
        InstanceSource(store, "test")
