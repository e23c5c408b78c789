import errno
import os
from types import SimpleNamespace

import pytest

from bert_jax.instances.prepared_data import PreparedData, publish_prepared
from bert_jax.system.bucket import objects, place_of
from bert_jax.system.copies import worked_on
from bert_jax.system.files import FileSum


def test_a_set_in_a_bucket_is_finished_by_its_record(bucket):
    there = place_of(f"{bucket}/data/length-32")
    worked_on(there).mkdir()
    for name in ("prepared.json", "piece_counts.npy", "train-00000.array_record"):
        (worked_on(there) / name).write_text(name)
    publish_prepared(there)
    generations = {name: int(stored.generation) for name, stored in objects(there).items()}
    assert max(generations, key=generations.get) == "prepared.json" and len(generations) == 3


@pytest.mark.parametrize("name", ["train-00000.array_record", "piece_counts.npy"])
def test_a_file_that_a_disk_cannot_read_is_damaged(tmp_path, monkeypatch, name):
    (tmp_path / name).write_bytes(bytes(10))
    kind = "shards" if name.startswith("train") else "files"
    sums = {"shards": {}, "files": {}, kind: {name: FileSum.of(tmp_path / name)}}
    data = SimpleNamespace(directory=tmp_path, **sums)
    assert PreparedData.damaged_file(data) is None

    def unreadable(path):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(FileSum, "of", unreadable)
    assert PreparedData.damaged_file(data) == name
