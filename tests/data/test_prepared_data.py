import errno
import os
from types import SimpleNamespace

from bert_jax.data.prepared_data import PreparedData, publish_prepared
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


def test_a_shard_that_a_disk_cannot_read_is_damaged(tmp_path, monkeypatch):
    (tmp_path / "train-00000").write_bytes(bytes(10))
    data = SimpleNamespace(directory=tmp_path, shards={"train-00000": FileSum.of(tmp_path / "train-00000")})
    assert PreparedData.damaged_shard(data) is None

    def unreadable(path):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(FileSum, "of", unreadable)
    assert PreparedData.damaged_shard(data) == "train-00000"
