import os
import shutil
import signal

import pytest
from damages import flip_a_bit

from bert_jax.cli.main import run as command
from bert_jax.instances.prepared_data import PreparedData
from bert_jax.run import verification
from bert_jax.run.checkpoint_manifest import complete, delete_checkpoint, make_complete
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.verification import Verdict, verify
from bert_jax.system.errors import UsageError


def test_what_is_whole_is_good(run, capsys):
    verdicts = verify(run)
    assert len(verdicts) >= 3 and not any(verdict.damage for verdict in verdicts)
    assert command(["verify", str(run.path)]) == 0
    said = capsys.readouterr().out
    assert said.count("good") + said.count("every line can be read") == len(verdicts)


def test_a_line_of_measurements_that_cannot_be_read_is_named(run):
    with open(run.metrics_file, "a", encoding="utf-8") as file:
        file.write("{\n")
    [verdict] = [verdict for verdict in verify(run) if verdict.damage]
    number = run.metrics_file.read_text().count("\n")
    assert verdict.path == run.metrics_file and f"lines that can't be read: {number} (it is no JSON" in verdict.damage


def test_one_bit_is_found_in_a_checkpoint_and_in_data(run, capsys):
    checkpoint, data = sorted(run.checkpoints.iterdir())[-1], run.data(32)
    shard = next(data.glob("train-*.array_record"))
    for place in (next((checkpoint / "d").iterdir()), shard):
        flip_a_bit(place)
    damage = {verdict.path: verdict.damage for verdict in verify(run) if verdict.damage}
    assert damage.keys() == {checkpoint, data} and shard.name in damage[data]
    assert command(["verify", str(run.path)]) == 1
    assert f"2 of {len(verify(run))} are damaged or missing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("gone", "named"),
    [
        ("data", "data/length-32"),
        ("data/length-32/prepared.json", "data/length-32"),
        ("checkpoints/00000012", "checkpoints/00000012"),
        ("checkpoints/00000012/manifest.json", "checkpoints/00000012"),
    ],
)
def test_what_is_gone_is_named_in_a_run_given_by_a_relative_path(run, gone, named, monkeypatch, capsys):
    monkeypatch.chdir(run.path.parent)
    (shutil.rmtree if (run.path / gone).is_dir() else os.remove)(run.path / gone)
    assert command(["verify", "run"]) == 1
    said = capsys.readouterr()
    assert named in said.out and f"first {run.path}/{named};" in said.err.replace("\n", "")
    if gone.startswith("checkpoints"):
        assert ("its manifest.json is gone" if gone.endswith(".json") else "it isn't there now") in said.out


def test_data_whose_folder_has_become_a_file_is_damaged(run):
    shutil.rmtree(run.path / "data")
    (run.path / "data").touch()
    assert [verdict.path for verdict in verify(run) if verdict.damage] == [run.data(32)]


def test_a_pipe_in_place_of_a_file_is_damage_and_nobody_waits_for_what_comes_of_it(run):
    signal.alarm(60)  # ends the tests' process rather than wait for ever
    for path in sorted(
        path
        for path in run.path.rglob("*")
        if path.is_file() and path.suffix not in (".png", "") and path.name != "events.jsonl"
    ):
        kept = path.rename(path.with_name("kept"))
        os.mkfifo(path)
        assert [verdict for verdict in verify(run) if verdict.damage], path
        kept.replace(path)
    signal.alarm(0)


def test_data_of_another_release_is_not_damaged(run, monkeypatch):
    prepared = PreparedData.unchecked(run.data(32))
    with monkeypatch.context() as later:
        later.setattr(PreparedData, "FORMAT", 4)
        prepared.save()
    [verdict] = [verdict for verdict in verify(run) if verdict.path == run.data(32)]
    assert not verdict.damage and "use the release that wrote it" in verdict.remark


def test_data_under_preparation_is_not_damaged(run, capsys):
    (run.path / "data" / "length-64").mkdir()
    assert [verdict.path.name for verdict in verify(run) if verdict.remark.startswith("not finished")] == ["length-64"]
    assert command(["verify", str(run.path)]) == 0
    assert "not finished; the command that began it goes on" in " ".join(capsys.readouterr().out.split())


def test_what_is_no_run_is_refused(tiny_run, tmp_path):
    checkpoint = complete(tiny_run.checkpoints)[-1]
    for path, words in ((tmp_path, "has no checkpoint and no data"), (checkpoint, "is a checkpoint, a part of a run")):
        with pytest.raises(UsageError, match=f"{path} {words}; give a run"):
            verify(RunDirectory(path))


def test_what_the_run_deletes_meanwhile_is_no_damage(tmp_path, monkeypatch):
    run, checkpoint_damage = RunDirectory(tmp_path), verification.checkpoint_damage
    for step in ("00000010", "00000020"):
        (run.checkpoints / step).mkdir(parents=True)
        make_complete(run.checkpoints / step, (), int(step), None, None)

    def deleted_while_it_is_read(path):
        if path.name == "00000010":
            delete_checkpoint(path)
        return checkpoint_damage(path)

    monkeypatch.setattr(verification, "checkpoint_damage", deleted_while_it_is_read)
    assert verify(run) == [Verdict(run.manifest.path, None), Verdict(run.checkpoints / "00000020", None)]
