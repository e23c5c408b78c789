import json

from bert_jax.run import metrics
from bert_jax.run.metrics import MetricsLog, read_metrics
from bert_jax.system.bucket import object_name, place_of
from bert_jax.system.errors import RunError


def test_lines_are_json_and_only_json(tmp_path):
    assert read_metrics(tmp_path / "metrics.jsonl") == []
    log = MetricsLog(tmp_path, 0)
    log.write(1, "train", {"loss": 1.5, "mfu": None, "grad_norm": float("nan")})
    log.close()
    line = '{"step": 1, "split": "train", "loss": 1.5, "mfu": null, "grad_norm": null}\n'
    assert (tmp_path / "metrics.jsonl").read_text() == line


def test_going_on_cuts_back_to_the_restored_step(tmp_path):
    log = MetricsLog(tmp_path, 0)
    for step in (10, 20, 30):
        log.write(step, "train", {"loss": float(step)})
    log.close()
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 40, "spl')  # killed in the middle of a line
    log = MetricsLog(tmp_path, 20)
    assert log.last_step("train") == 20 and log.last_step("eval") == -1
    log.write(30, "train", {"loss": 3.0})
    log.close()
    assert log.last_step("train") == 30
    lines = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert [(line["step"], line["loss"]) for line in lines] == [(10, 10), (20, 20), (30, 3)]


def test_a_process_that_lost_its_run_uploads_nothing_more(bucket, bucket_server, monkeypatch):
    monkeypatch.setattr("bert_jax.system.copies.PUBLISH_EVERY_S", 0.0)
    lost = []

    def check_owner():
        if lost:
            raise RunError("the run was taken over by another process")

    log = MetricsLog(place_of(bucket), 0, check_owner=check_owner)
    log.write(1, "train", {"loss": 2.0})
    log.publish()
    lost.append(True)
    bucket_server.put(object_name(log.path), b"of the new owner")
    log.write(2, "train", {"loss": 1.0})
    log.publish()
    log.close()
    assert log.path.read_text() == "of the new owner"


def test_a_full_disk_is_said_once_and_what_it_did_not_take_is_written_later(tmp_path, capsys):
    log = MetricsLog(tmp_path, 0)
    log.write(1, "train", {"loss": 1.0})
    real, log._file = log._file, open("/dev/full", "ab", buffering=0)
    for step in (2, 3):
        log.write(step, "train", {"loss": 1.0})
    said = capsys.readouterr().err.replace("\n", " ")
    assert said.count("WARNING") == 1 and "No space left on device" in said and "training goes on" in said
    log._file.close()
    log._file = real
    log.write(4, "train", {"loss": 1.0})
    log.close()
    assert [line["step"] for line in read_metrics(log.path)] == [1, 2, 3, 4] and not capsys.readouterr().err
    log._file = open("/dev/full", "ab", buffering=0)
    log.write(5, "train", {"loss": 1.0})
    log.close()
    assert "the last lines of" in capsys.readouterr().err


def test_a_damaged_line_is_left_out_and_said_by_its_number(tmp_path, capsys):
    file = tmp_path / "metrics.jsonl"
    damaged = ['{"ste\x00p', "[]", '{"stfp": 2, "split": "train"}', '{"step": "2", "split": "train"}', '{"step": 2}']
    file.write_text("\n".join(['{"step": 1, "split": "train"}', *damaged, '{"step": 3, "split": "eval"}', ""]))
    assert [line["step"] for line in read_metrics(file)] == [1, 3]
    said = " ".join(capsys.readouterr().err.split())
    assert "metrics.jsonl: lines that can't be read are left out: 2 (it is no JSON" in said
    assert ", 3 (it holds an array and should hold an object)" in said
    assert MetricsLog(tmp_path, 3).last_step("eval") == 3


def test_a_line_without_end_takes_no_memory_and_costs_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "_LONGEST", 64)
    file = tmp_path / "metrics.jsonl"
    good = '{"step": 1, "split": "eval"}\n'
    file.write_text(good + "x" * 64 * 3 + "\n" + good + "y" * 63 + "\n" + good + "z" * 100)
    read = list(metrics.metrics_lines(file))
    assert [line.number for line in read if isinstance(line, metrics.DamagedLine)] == [2, 4, 6]
    assert sum(isinstance(line, metrics.Line) for line in read) == 3
