"""A whole run in a bucket, and all that is done with one."""

import json

import numpy as np
import pytest

import bert_jax
from bert_jax.cli.main import run as command
from bert_jax.config.operation import LoggingConfig
from bert_jax.config.training import Phase
from bert_jax.pretraining.pretrain import pretrain
from bert_jax.run import metrics
from bert_jax.run.checkpoint_manifest import complete
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.tracking import open_trackers
from bert_jax.system.bucket import place_of

pytestmark = pytest.mark.long
TEXT = "The old [MASK] sees the house."


@pytest.fixture(scope="module")
def trained(bucket_server, tiny_config, tmp_path_factory) -> dict[str, bytes]:
    """The objects of `tiny_config` trained in a bucket, by their names in the run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        pretrain(tiny_config, RunDirectory("gs://bucket/run"))
    return {name: bucket_server.objects[f"bucket/run/{name}"].data for name in bucket_server.names("bucket/run/")}


@pytest.fixture
def run(bucket_server, trained, bucket) -> RunDirectory:
    """A copy of that run, on a machine that has never seen it."""
    for name, data in trained.items():
        bucket_server.put(f"{bucket}/{name}".removeprefix("gs://"), data)
    return RunDirectory(bucket)


def flip_a_bit(bucket_server, path):
    name = "/".join(path.parts[2:])
    data = bytearray(bucket_server.objects[name].data)
    data[len(data) // 2] ^= 4
    bucket_server.put(name, bytes(data))


def losses(run):
    return [line["loss"] for line in metrics.read_metrics(run.path / "metrics.jsonl")]


def test_it_learns_what_a_run_on_disk_learns(run, tiny_run):
    for one, other in zip((run, tiny_run), (tiny_run, run)):
        assert json.loads(one.results_file.read_text()) == json.loads(other.results_file.read_text())
        assert losses(one) == losses(other)
    assert [path.name for path in complete(run.checkpoints)] == [path.name for path in complete(tiny_run.checkpoints)]


def test_its_model_is_loaded_as_one_on_disk(run, tiny_run, capsys):
    here, there = bert_jax.load(tiny_run.path), bert_jax.load(str(run.path))
    assert here.fill_mask(TEXT) == there.fill_mask(TEXT)
    one = bert_jax.load(f"{run.checkpoints}/00000008")
    assert one.fill_mask(TEXT) == bert_jax.load(tiny_run.checkpoints / "00000008").fill_mask(TEXT)
    assert bert_jax.load_tokenizer(str(run.path)).encode("house") == here.tokenizer.encode("house")
    assert command(["fill-mask", str(run.path), TEXT]) == 0
    assert here.fill_mask(TEXT)[0][0][0] in capsys.readouterr().out


def test_every_command_takes_it(run, tiny_run, corpus, bucket_server, capsys):
    bucket_server.put("bucket/texts/a.txt", corpus.read_bytes())
    for arguments in (["inspect"], ["verify"], ["evaluate", "--data", "gs://bucket/texts/*.txt"]):
        printed = []
        for one in (run, tiny_run):
            assert command([arguments[0], str(one.path), *arguments[1:]]) == 0
            printed.append(capsys.readouterr().out)
        assert printed[0] == printed[1]


def test_a_model_is_exported_and_imported_there(run, bucket, capsys):
    assert command(["export", str(run.path), f"{bucket}-exported"]) == 0
    assert command(["import", f"{bucket}-exported", f"{bucket}-imported"]) == 0
    places = run.path, f"{bucket}-exported", f"{bucket}-imported"
    found = [bert_jax.load(path).fill_mask(TEXT)[0][0] for path in places]
    assert [piece for piece, _ in found] == [found[0][0]] * 3
    np.testing.assert_allclose([share for _, share in found], found[0][1], 1e-5)


def test_it_goes_on_from_a_checkpoint_on_another_machine(run, tiny_config, bucket_server, capsys):
    flip_a_bit(bucket_server, next((run.checkpoints / "00000012" / "d").iterdir()))
    assert command(["verify", str(run.path)]) == 1
    before = losses(run)
    pretrain(tiny_config, run)
    said = capsys.readouterr().err.replace("\n", "")
    assert "00000012 is damaged" in said and "going on from step 8" in said
    events = [line["event"] for line in map(json.loads, (run.path / "events.jsonl").read_text().splitlines())]
    assert events[0] == "begun" and events[-3:] == ["resumed", "environment", "finished"] and "fault" in events
    assert losses(run) == before and (run.checkpoints / "damaged-00000012" / "manifest.json").exists()
    assert command(["verify", str(run.path)]) == 0


def test_a_finished_run_does_nothing_and_an_outage_in_a_save_of_more_steps_costs_that_checkpoint_only(
    run, tiny_config, bucket_server, capsys
):
    pretrain(tiny_config, run)
    assert not [one for one in bucket_server.requests if one.startswith("POST") and "checkpoints" in one]
    longer = tiny_config.replace(phases=(Phase(steps=20, length=32, batch_size=8),))
    bucket_server.fail("POST /upload/.*00000016%2Fd%2F", "403", 50)
    bucket_server.fail("GET .*%2F.owner[?]alt", "403")
    assert pretrain(longer, RunDirectory(run.path)).steps == 20
    assert "checkpoint 16 could not be written" in capsys.readouterr().err.replace("\n", "")
    assert [path.name for path in complete(run.checkpoints)][-1] == "00000020"
    bucket_server.faults.clear()


def test_damaged_data_is_named_and_a_damaged_copy_is_not_used(run, bucket_server, capsys):
    shard = next(run.data(32).glob("train-*.array_record"))
    bucket_server.fail(f"GET /download/.*{shard.name}", "wrong")
    assert command(["inspect", str(run.path)]) == 1
    assert f"{shard} did not arrive as it is stored" in capsys.readouterr().err.replace("\n", "")
    assert command(["inspect", str(run.path)]) == 0
    flip_a_bit(bucket_server, shard)
    assert command(["verify", str(run.path)]) == 1
    assert f"{shard.name} is not as it was written" in capsys.readouterr().out.replace("\n", "")


def test_metrics_are_there_while_it_trains(bucket, tiny_config, monkeypatch):
    monkeypatch.setattr("bert_jax.system.copies.PUBLISH_EVERY_S", 0.0)
    trackers = open_trackers(tiny_config.replace(logging=LoggingConfig()), place_of(bucket), 0)
    log = metrics.MetricsLog(place_of(bucket), 0, trackers)
    log.write(1, "train", {"loss": 2.0})
    log._publisher._thread.join()
    assert [line["loss"] for line in metrics.read_metrics(log.path)] == [2.0]
    log.write(2, "train", {"loss": 1.0})
    log.close()
    assert [line["loss"] for line in metrics.read_metrics(log.path)] == [2.0, 1.0]
    assert len(list((place_of(bucket) / "tensorboard").iterdir())) == 1
    log = metrics.MetricsLog(place_of(bucket), 1)
    log.close()
    assert [line["loss"] for line in metrics.read_metrics(log.path)] == [2.0]
